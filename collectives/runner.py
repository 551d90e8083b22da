"""Operations that were started and are waited for later, one after the other, in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import final

from ..cluster import num_cores
from .communicator import Handle

_JOIN_SECS = 10.0


def has_core_to_spare(num_ranks_here: int) -> bool:
    """Whether each of so many ranks of one host has a core for what runs behind its back."""
    return num_cores() >= 2 * num_ranks_here


@final
class Runner:
    """Runs tasks in the order given.

    At once, by a daemon thread that exists from the first such `start` on; or when somebody waits
    for them, by whoever does. The second is for processes that have no core to spare: a thread that
    waits for others would take from the work that it is to be hidden behind.

    One thread at a time hands in tasks. That is why `idle` needs no lock: nobody else can add work
    between the caller's question and its next step.

    Attributes:
        last: The latest task, if it is not known to have ended.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._put_off: deque[_Task] = deque()
        self._working_off = threading.Lock()
        self._tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._newest_task: _Task | None = None
        self.last: _Task | None = None
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """Whether all started tasks have ended, so that the caller may work inline."""
        if self.last is not None and self.last.ended.is_set():
            self.last = None
        return self.last is None

    def start(self, action: Callable[[], None], *, at_once: bool = True) -> Handle:
        """Queue ``action`` and return its handle; if not ``at_once`` it runs when waited for."""
        task = self.last = _Task(action, self)
        self._put_off.append(task)
        if at_once:
            self._hand_over()
        return task

    def work_off(self, task: _Task) -> None:
        """Run what was put off up to ``task``, here and now, behind what the thread has to do."""
        with self._working_off:
            if self._newest_task is not None:
                self._newest_task.ended.wait()
            while self._put_off and not task.ended.is_set():
                self._put_off.popleft().run()

    def stop(self) -> None:
        """End the thread after the tasks in the queue; the owner has seen to it that they fail."""
        thread = self._thread
        if thread is not None:
            self._tasks.put(None)
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)
        while self._put_off:
            self._put_off.popleft().run()

    def _hand_over(self) -> None:
        """Let the thread do everything that was put off."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        while self._put_off:
            self._newest_task = self._put_off.popleft()
            self._newest_task.is_put_off = False
            self._tasks.put(self._newest_task)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.run()


class _Task(Handle):
    def __init__(self, action: Callable[[], None], runner: Runner) -> None:
        self._action: Callable[[], None] | None = action
        self._runner = runner
        self._error: BaseException | None = None
        self.is_put_off = True
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
        if self.is_put_off:
            self._runner.work_off(self)
        self.ended.wait()
        if self._error is not None:
            raise self._error
