"""Operations that were started and are waited for later, one after the other, in order."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import deque
from queue import SimpleQueue
from typing import final

from ..cluster import num_cores

_JOIN_SECS = 10.0


def has_core_to_spare(num_ranks_here: int) -> bool:
    """Whether each of so many ranks of one host has a core for what runs behind its back."""
    return num_cores() >= 2 * num_ranks_here


class Handle(ABC):
    """An operation under way."""

    @abstractmethod
    def wait(self) -> None:
        """Block until the operation has ended; raise what it raised. May be called again."""


@final
class _Done(Handle):
    def wait(self) -> None:
        pass


DONE: Handle = _Done()
"""Nothing is under way, or nothing that anybody has to wait for."""


class Task(Handle):
    """An operation that an `Executor` runs."""

    def __init__(self) -> None:
        self._executor: Executor | None = None
        self._error: BaseException | None = None
        self._is_put_off = True
        self._ended = threading.Event()

    @abstractmethod
    def work(self) -> None:
        """Do what is to be done; called once."""

    @property
    def has_ended(self) -> bool:
        """Whether it has been done, or has failed."""
        return self._ended.is_set()

    @final
    def wait(self) -> None:
        assert self._executor is not None, "it has not been started"
        self._executor.finish(self)
        if self._error is not None:
            raise self._error

    @final
    def _run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()


@final
class Executor:
    """Runs tasks in the order given.

    At once, by a daemon thread that exists from the first such `start` on; or when somebody waits
    for them, by whoever does. The second is for processes that have no core to spare: a thread that
    waits for others would take from the work that it is to be hidden behind.

    One thread at a time hands in tasks. That is why `is_idle` needs no lock: nobody else can add
    work between the caller's question and its next step. `latest` is what was started last, unless
    it is known to have ended.
    """

    def __init__(self, name: str) -> None:
        self.latest: Task | None = None
        self._name = name
        self._put_off: deque[Task] = deque()
        self._handed_over: SimpleQueue[Task | None] = SimpleQueue()
        self._newest_handed_over: Task | None = None
        self._finishing = threading.Lock()
        self._is_stopped = False
        self._thread: threading.Thread | None = None

    @property
    def is_idle(self) -> bool:
        """Whether all started tasks have ended, so that the caller may work inline."""
        if self.latest is not None and self.latest.has_ended:
            self.latest = None
        return self.latest is None

    def start(self, task: Task, *, at_once: bool = True) -> None:
        """Queue ``task``; if not ``at_once`` it runs when it is waited for."""
        task._executor = self
        self.latest = task
        self._put_off.append(task)
        if at_once and not self._is_stopped:
            self._hand_over()

    def finish(self, task: Task | None = None) -> None:
        """Return when ``task``, or whatever was started, has ended; what was put off runs here."""
        task = task or self.latest
        if task is None:
            return
        if task._is_put_off:
            # Several threads may wait: one of them works on behalf of all. What the executor's own
            # thread was given comes before everything that is still put off.
            with self._finishing:
                if self._newest_handed_over is not None:
                    self._newest_handed_over._ended.wait()
                while self._put_off and not task.has_ended:
                    self._put_off.popleft()._run()
        task._ended.wait()

    def stop(self) -> None:
        """End the thread after the tasks in the queue; the owner has seen to it that they fail."""
        thread, self._is_stopped = self._thread, True
        if thread is not None:
            self._handed_over.put(None)
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)
        while self._put_off:
            self._put_off.popleft()._run()

    def _hand_over(self) -> None:
        """Let the thread do everything that was put off."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        while self._put_off:
            self._newest_handed_over = self._put_off.popleft()
            self._newest_handed_over._is_put_off = False
            self._handed_over.put(self._newest_handed_over)

    def _work(self) -> None:
        while (task := self._handed_over.get()) is not None:
            task._run()
