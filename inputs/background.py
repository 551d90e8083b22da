"""Threads that work ahead, and end with the iterator that they work for or with the process."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from abc import ABC, abstractmethod
from functools import cache
from typing import Any, final

_JOIN_SECS = 5.0
_JOIN_SECS_AT_EXIT = 1.0

_running: weakref.WeakSet[BackgroundThreads] = weakref.WeakSet()


class Work(ABC):
    """What background threads do together."""

    @abstractmethod
    def run_until_stopped(self) -> None:
        """Called by each of the threads, which ends with it."""

    @abstractmethod
    def stop(self) -> None:
        """Makes `run_until_stopped` return as soon as it can, and waits for nothing.

        The garbage collector may call this, in the midst of whatever a thread does.
        """


@final
class BackgroundThreads:
    """Daemon threads, started at once; they end with `owner`.

    The work must hold no reference to it.
    """

    def __init__(self, owner: Any, work: Work, name: str, count: int = 1) -> None:
        self._work = work
        self._threads = [
            threading.Thread(target=work.run_until_stopped, name=name, daemon=True)
            for _ in range(count)
        ]
        _stop_all_at_exit()
        _running.add(self)
        # An iterator that nobody holds any more has nobody to call `close`.
        self._finalizer = weakref.finalize(owner, _stop, work, self._threads)
        # Finalizers run at exit one after another, and each would wait for its own threads; all are
        # told first, and waited for together, in `_stop_all`.
        self._finalizer.atexit = False
        for thread in self._threads:
            thread.start()

    def stop(self) -> bool:
        """Ends the threads; False if one is kept by what it does for longer than is waited."""
        self._finalizer()
        return not any(thread.is_alive() for thread in self._threads)

    def tell_to_stop(self) -> None:
        """Makes them end, and waits for nothing."""
        self._work.stop()

    def join(self, deadline: float) -> None:
        """Waits for the threads until then."""
        _join(self._threads, deadline)


def _stop(work: Work, threads: list[threading.Thread]) -> None:
    work.stop()
    _join(threads, time.monotonic() + _JOIN_SECS)


def _join(threads: list[threading.Thread], deadline: float) -> None:
    for thread in threads:
        # The garbage collector may call this in one of the threads.
        if thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()))


@cache
def _stop_all_at_exit() -> None:
    """Has all threads end before the interpreter does; one that hangs must not keep the process."""
    atexit.register(_stop_all)


def _stop_all() -> None:
    running = list(_running)
    for threads in running:
        threads.tell_to_stop()
    deadline = time.monotonic() + _JOIN_SECS_AT_EXIT
    for threads in running:
        threads.join(deadline)
