"""Watching over a started job: its output, its ends, and the signals sent to the launcher."""

from __future__ import annotations

import os
import select
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

from .exit_codes import LOST_PEER
from .processes import Pipe, Process, Processes
from .spec import Task

_LOOK_SECS = 1.0
_REPORT_SECS = 30.0
_CULPRIT_SECS = 2.0
"""How long a task that lost another may have ended before that one is seen to end."""

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Signals:
    """Within it, signals to this process are bytes to read from `fd`. For the main thread."""

    def __init__(self) -> None:
        self.fd, self._write_fd = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write_fd, False)
        self._before: dict[int, Any] = {}
        self._wakeup_before = -1

    def __enter__(self) -> Signals:
        for number in (*_ENDING, signal.SIGCHLD):
            self._before[number] = signal.signal(number, _ignore)
        self._wakeup_before = signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._wakeup_before)
        for number, before in self._before.items():
            signal.signal(number, before)
        os.close(self.fd)
        os.close(self._write_fd)

    def received(self) -> list[int]:
        """The signals since the last call that ask this process to end."""
        try:
            numbers = os.read(self.fd, 4096)
        except BlockingIOError:
            return []
        return [number for number in numbers if number in _ENDING]

    def wait(self, secs: float) -> list[int]:
        """Let time pass, or less if such a signal comes: then the signals."""
        until = time.monotonic() + secs
        while not (numbers := self.received()) and (left := until - time.monotonic()) > 0:
            select.select([self.fd], [], [], left)
        return numbers


def _ignore(number: int, frame: FrameType | None) -> None:
    """A handler of our own, because an ignored signal would write no byte."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a job ended: 0, or the status and traceback of the task whose failure ended it.

    Args:
        status: An exit code, or -n for signal n.
        failed: The task, if it is known.
        traceback: What it wrote last.
        interrupted: A signal to the launcher has ended the job.
    """

    status: int = 0
    failed: Task | None = None
    traceback: list[bytes] = field(default_factory=list)
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """As a shell has it: 128 + n after signal n."""
        return self.status if self.status >= 0 else 128 - self.status


def supervise(
    job: Processes, signals: Signals, note: Callable[[str], None], grace_secs: float
) -> Outcome:
    """Watch a job until all of its tasks have ended; when one fails, end the others.

    A signal ends the job, too: SIGTERM to all, and after `grace_secs` SIGKILL. `note` prints a line
    of the launcher's own.
    """
    watch = _Watch(job, signals, note, grace_secs)
    try:
        watch.until_all_ended()
        return watch.outcome()
    finally:
        watch.close()


class _Watch:
    def __init__(
        self, job: Processes, signals: Signals, note: Callable[[str], None], grace_secs: float
    ) -> None:
        self._job = job
        self._signals = signals
        self._note = note
        self._grace_secs = grace_secs
        self._kill_at: float | None = None
        self._interrupt: int | None = None
        self._failure: tuple[Process | None, int] | None = None
        self._said_who_is_left = False
        self._peer_lost_at: float | None = None
        self._chief_ended_at: float | None = None
        self._report_at = 0.0
        self._stopped_since: float | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals.fd, selectors.EVENT_READ)
        for pipe in job.pipes:
            self._selector.register(pipe.fd, selectors.EVENT_READ, pipe)

    def until_all_ended(self) -> None:
        # One thread waits for all: pipes, and signals as bytes of a pipe. SIGCHLD is among them, so
        # that the end of a task wakes `select`, too, and nothing is polled while all is well.
        while not self._job.poll():
            self._end_if_due()
            for key, _ in self._selector.select(self._wait_secs()):
                if key.data is not None:
                    self._read(key.data)
            for number in self._signals.received():
                self._on_interrupt(number)
        # What the tasks wrote last may still be in the pipes, the traceback of the failed one too.
        self._drain()
        self._failure = self._failure or self._job.first_failure()

    def _read(self, pipe: Pipe) -> None:
        try:
            if not pipe.read():
                self._selector.unregister(pipe.fd)
        except BrokenPipeError:  # nobody reads what we print: the job is to end, but may save
            self._on_interrupt(signal.SIGPIPE)

    def _wait_secs(self) -> float | None:
        if self._kill_at is None:
            has_to_look = self._peer_lost_at is not None or self._has_any_ended()
            return _LOOK_SECS if has_to_look else None
        return max(0.0, self._kill_at - time.monotonic())

    def _on_interrupt(self, number: int) -> None:
        """Ask all to end; a second time, end them."""
        if self._interrupt is None:
            self._interrupt = number
            with suppress(BrokenPipeError):
                self._note(f"{signal.Signals(number).name}: ending all tasks")
            self._ask_to_end()
        elif number != signal.SIGPIPE:  # which comes with every line, and asks for nothing more
            self._kill_at = time.monotonic()

    def _ask_to_end(self) -> None:
        if self._kill_at is None:
            self._job.signal(signal.SIGTERM)
            self._kill_at = time.monotonic() + self._grace_secs

    def _end_if_due(self) -> None:
        self._failure = self._failure or self._failure_of_the_culprit()
        if self._failure and self._kill_at is None:
            self._ask_to_end()
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._job.signal(signal.SIGKILL)
            self._kill_at = time.monotonic() + 1.0  # again: a rank may only now say who it is
        self._say_who_is_left()
        self._look_after_those_who_are_left()

    def _failure_of_the_culprit(self) -> tuple[Process | None, int] | None:
        """The first failure, None while it may be that of a task which has only lost another.

        The culprit writes why it ends, tells the others, and may yet end after them.
        """
        failure = self._job.first_failure()
        if failure is None or failure[1] != LOST_PEER:
            return failure
        now = time.monotonic()
        if self._peer_lost_at is None:
            self._peer_lost_at = now
        return failure if now - self._peer_lost_at >= _CULPRIT_SECS else None

    def _look_after_those_who_are_left(self) -> None:
        """Name the tasks that run long after the chief, and end those that stand still for ever.

        What the others have done is saved. A task that a user or a debugger has stopped, be it the
        chief, would keep the launcher waiting.
        """
        if self._kill_at is not None or not self._has_any_ended():
            return
        now = time.monotonic()
        left = [p for p in self._job.processes if p.status is None]
        self._report_after_chief(left, now)
        if not left or not all(p.is_stopped for p in left):
            self._stopped_since = None
        elif self._stopped_since is None:
            self._stopped_since = now
        elif now - self._stopped_since >= self._grace_secs:
            self._note(f"all others have ended; killing {_names(left)}")
            self._kill_at = now

    def _report_after_chief(self, left: Sequence[Process], now: float) -> None:
        if self._chief_ended_at is None and self._has_chief_ended():
            self._chief_ended_at, self._report_at = now, now + _REPORT_SECS
        if self._chief_ended_at is not None and left and now >= self._report_at:
            self._report_at = now + _REPORT_SECS
            waited_secs = now - self._chief_ended_at
            self._note(f"the chief ended {waited_secs:.0f} s ago; waiting for {_names(left)}")

    def _has_any_ended(self) -> bool:
        return any(p.status == 0 for p in self._job.processes)

    def _has_chief_ended(self) -> bool:
        trainers = [p for p in self._job.processes if p.task.type in ("chief", "worker")]
        chiefs = [p for p in trainers if p.task.type == "chief"] or trainers[:1]
        return bool(chiefs) and chiefs[0].status == 0

    def _say_who_is_left(self) -> None:
        trainers = [p for p in self._job.processes if p.task.type in ("chief", "worker")]
        left = [p.name for p in self._job.processes if p.status is None]
        if left and not self._said_who_is_left and all(p.status == 0 for p in trainers):
            self._said_who_is_left = True
            self._note(f"training has ended; waiting for {', '.join(left)}")

    def outcome(self) -> Outcome:
        if self._interrupt is not None:
            return Outcome(status=128 + self._interrupt, interrupted=True)
        if self._failure is None:
            return Outcome()
        process, status = self._failure
        could_speak = status != -signal.SIGKILL
        return Outcome(
            status=status,
            failed=process.task if process else None,
            traceback=process.tail.traceback() if process and could_speak else [],
        )

    def _drain(self) -> None:
        while self._job.pipes:
            with suppress(BrokenPipeError):
                self._job.pipes.pop().drain()

    def close(self) -> None:
        """End what still runs, if watching it failed, and give everything back."""
        self._selector.close()
        while not self._job.poll():
            self._job.signal(signal.SIGKILL)
            select.select([self._signals.fd], [], [], 0.1)
            self._signals.received()
        for pipe in self._job.pipes:
            os.close(pipe.fd)
        self._job.close()


def _names(processes: Sequence[Process]) -> str:
    return ", ".join(f"{p.name} (stopped)" if p.is_stopped else p.name for p in processes)
