"""Interrupts (Ctrl-C) that wait for an update to be whole.

Python raises KeyboardInterrupt in the main thread, between any two of its instructions. In the
midst of an update that would leave some variables changed and others not, or the copies of one
replica changed and those of another not, for good. And with a lock held by half it would leave the
other replicas waiting.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, final

# What `signal` wraps to make enums of numbers: the wrappers cost each step 10 to 30 microseconds.
_set_handler = _signal.signal
_handler_of = _signal.getsignal


class _MainThread:
    """How the main thread stands towards SIGINT. Only that thread comes here."""

    def __init__(self) -> None:
        self.num_holds = 0
        self.has_come = False
        self._handler: Callable[[int, FrameType | None], Any] | None = None

    def hold(self) -> None:
        if self.num_holds == 0:
            handler = _handler_of(signal.SIGINT)
            if callable(handler):  # else the system ends the process, or ignores the signal
                self._handler = handler
                _set_handler(signal.SIGINT, self._note)
        self.num_holds += 1

    def release(self) -> None:
        self.num_holds -= 1
        if self.num_holds or self._handler is None:
            return
        handler, self._handler = self._handler, None
        _set_handler(signal.SIGINT, handler)
        if self.has_come:
            self.has_come = False
            handler(signal.SIGINT, None)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if not self.has_come:
            self.has_come = True
        elif self._handler is not None:  # who asks twice does not want to wait
            self.has_come = False
            self._handler(number, frame)


_main = _MainThread()


@final
class InterruptsPutOff:
    """From `begin` to the end of the `with` block an interrupt is put off, the second one is not.

    In threads other than the main one, which get none, nothing happens.

    >>> with InterruptsPutOff() as interrupts:
    ...     interrupts.begin()
    ...     pass  # what is to be done as a whole
    """

    __slots__ = ("_holds",)

    def __init__(self) -> None:
        self._holds = False

    def __enter__(self) -> InterruptsPutOff:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    def begin(self) -> None:
        """From here on interrupts wait."""
        if not self._holds and threading.get_ident() == threading.main_thread().ident:
            _main.hold()
            self._holds = True

    def end(self) -> None:
        """Here they come, unless another one still holds them.

        Raises:
            KeyboardInterrupt: There was one.
        """
        if self._holds:
            self._holds = False
            _main.release()

    @property
    def is_due(self) -> bool:
        """Whether one waits for nothing else than the end of this."""
        return self._holds and _main.has_come and _main.num_holds == 1
