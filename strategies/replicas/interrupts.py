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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, final

# What `signal` wraps to make enums of numbers: the wrappers cost each step 10 to 30 microseconds.
_set_handler = _signal.signal
_handler_of = _signal.getsignal
_SIGINT = int(signal.SIGINT)


class _MainThread:
    """How the main thread stands towards SIGINT. Only that thread comes here.

    What puts interrupts off is one handler, the *gate*: it passes them on to the handler that it
    stands in for, or keeps the first one while somebody holds it. An interrupt may come between
    any two lines here as well: before the gate is there it ends the call, behind that it is kept.
    """

    def __init__(self) -> None:
        self.num_holds = 0
        self.has_come = False
        self._is_for_hold = False
        self._behind: list[Callable[[int, FrameType | None], Any]] = []
        """Whom the gate stands in for; where it does so several times, the last one counts."""
        self._gate = self._pass_on_or_keep  # one object, by which it is known

    def enter_gate(self, for_hold: bool = False) -> bool:
        """Let interrupts come to the gate; return whether it was not there and is now."""
        handler = _handler_of(_SIGINT)
        # What is not callable lets the system end the process, or ignore the signal.
        if handler is self._gate or not callable(handler):
            return False
        self._behind.append(handler)
        self._is_for_hold = for_hold
        _set_handler(_SIGINT, self._gate)
        return True

    def leave_gate(self) -> None:
        """Let them come to whom they came to before; or to whom somebody has chosen since."""
        if _handler_of(_SIGINT) is self._gate:
            _set_handler(_SIGINT, self._behind[-1])
        self._behind.pop()

    def hold(self) -> None:
        if self.num_holds == 0:
            self.enter_gate(for_hold=True)
        self.num_holds += 1

    def release(self) -> None:
        self.num_holds -= 1
        if self.num_holds or not self._behind:
            return
        handler = self._behind[-1]
        if self._is_for_hold:
            self.leave_gate()
            self._is_for_hold = False
        if self.has_come:
            self.has_come = False
            handler(_SIGINT, None)

    def _pass_on_or_keep(self, number: int, frame: FrameType | None) -> None:
        if (self.num_holds or self._is_for_hold) and not self.has_come:
            self.has_come = True
            return
        self.has_come = False  # who asks twice does not want to wait
        # Who has found the gate where he put a handler of his own may put it back behind its end.
        handler = self._behind[-1] if self._behind else signal.default_int_handler
        handler(number, frame)


_main = _MainThread()


@contextmanager
def interrupts_pass_gate() -> Iterator[None]:
    """In the block, where it is the main thread's, `InterruptsPutOff` finds all prepared.

    Interrupts come as ever. A loop of steps enters it once: to change the process's handler of
    signals twice in each step is two calls of the system.
    """
    has_entered = _is_main_thread() and _main.enter_gate()
    try:
        yield
    finally:
        if has_entered:
            _main.leave_gate()


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident


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
        if not self._holds and _is_main_thread():
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
