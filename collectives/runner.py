"""Operations behind the caller's back, one after the other, in the order in which they came."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import final

from .communicator import Handle

_JOIN_SECS = 10.0


@final
class Runner:
    """Runs tasks in the order given, by one daemon thread that exists from the first `start` on.

    One thread at a time hands in tasks. That is why `idle` needs no lock: nobody else can add work
    between the caller's question and its next step.

    Attributes:
        last: The latest task, if it is not known to have ended.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self.last: _Task | None = None
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether all started tasks have ended, so that the caller may work inline."""
        if self.last is not None and self.last.ended.is_set():
            self.last = None
        return self.last is None

    def start(self, action: Callable[[], None]) -> Handle:
        """Queue ``action`` and return its handle."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        task = self.last = _Task(action)
        self._tasks.put(task)
        return task

    def stop(self) -> None:
        """End the thread after the tasks in the queue; the owner has seen to it that they fail."""
        thread = self._thread
        if thread is None:
            return
        self._tasks.put(None)
        if thread is not threading.current_thread():
            thread.join(_JOIN_SECS)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.run()


class _Task(Handle):
    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action
        self._error: BaseException | None = None
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            assert self._action is not None
            self._action()
        except BaseException as error:
            self._error = error
        finally:
            self._action = None
            self.ended.set()

    def wait(self) -> None:
        self.ended.wait()
        if self._error is not None:
            raise self._error
