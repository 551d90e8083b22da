"""The processes of one start of a job: on their own, or as the ranks of an mpirun."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from .mpi_memory import mpich_leftovers, remove_leftovers
from .output import LineSplitter, Tail
from .spec import Task

_TETHER = str(Path(__file__).with_name("tether.py"))
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Command:
    """One task and what it runs."""

    task: Task
    arguments: Sequence[str]
    environ: Mapping[str, str]


@dataclass(eq=False)
class Pipe:
    """The reading end of what a process writes.

    Args:
        fd: Its file descriptor, not blocking.
        take: Gets each list of lines.
    """

    fd: int
    take: Callable[[list[bytes]], None]
    splitter: LineSplitter = field(default_factory=LineSplitter)

    def __post_init__(self) -> None:
        os.set_blocking(self.fd, False)

    def read(self) -> bool:
        """Take what is there now; whether there may be more later."""
        piece = self._piece()
        return piece is None or bool(piece)

    def drain(self) -> None:
        """Take what is left, without waiting for more, and close."""
        try:
            while self._piece():
                pass
            self._hand_on(self.splitter.end())
        finally:
            os.close(self.fd)

    def _piece(self) -> bytes | None:
        """What one read brings: nothing at the end, None if there is nothing yet."""
        try:
            piece = os.read(self.fd, _READ_BYTES)
        except BlockingIOError:
            return None
        self._hand_on(self.splitter.feed(piece))
        return piece

    def _hand_on(self, lines: list[bytes]) -> None:
        if lines:
            self.take(lines)


class Process:
    """One task of a started job.

    Args:
        task: Which one.
        send_signal: Sends a signal to it.
        pid: Gives its process id; None while that is not known.
    """

    def __init__(
        self, task: Task, send_signal: Callable[[int], None], pid: Callable[[], int | None]
    ) -> None:
        self.task = task
        self.name = str(task)
        self.tail = Tail()
        self.status: int | None = None
        self._send_signal = send_signal
        self._pid = pid

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still, by SIGSTOP or in a debugger, as far as the system tells."""
        pid = self._pid()
        try:
            # The name in parentheses may hold anything.
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in ("T", "t")

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.status is None:
            with suppress(ProcessLookupError):
                self._send_signal(number)


Show = Callable[[str, list[bytes], bool], None]
"""Prints lines: name, lines, whether they were written to stderr."""


class Job(ABC):
    """The processes of one start of a job, and the pipes to which they write."""

    def __init__(self) -> None:
        self.processes: list[Process] = []
        self.pipes: list[Pipe] = []

    @abstractmethod
    def poll(self) -> bool:
        """Note the status of what has ended; whether everything has."""

    @abstractmethod
    def signal(self, number: int) -> None:
        """Send a signal to everything that still runs."""

    @abstractmethod
    def first_failure(self) -> tuple[Process | None, int] | None:
        """Who failed first and its status (negative: the signal that ended it); None if nobody."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back. All processes have ended."""


@final
class LocalJob(Job):
    """Tasks as processes of their own.

    Args:
        commands: What to run; one process each.
        show: Prints what they write.
    """

    def __init__(self, commands: Sequence[Command], show: Show) -> None:
        super().__init__()
        self._children: list[subprocess.Popen[bytes]] = []
        self._failures: list[Process] = []
        for command in commands:
            self._start(command, show)

    def _start(self, command: Command, show: Show) -> None:
        how = ("exec", str(int(signal.SIGKILL)), str(os.getpid()))
        child, out, err = start((*how, *command.arguments), command.environ)
        process = Process(
            command.task, lambda number: os.killpg(child.pid, number), lambda: child.pid
        )
        self._children.append(child)
        self.processes.append(process)
        self.pipes += output_pipes(process, out, err, show)

    def poll(self) -> bool:
        failed = []
        for child, process in zip(self._children, self.processes, strict=True):
            if process.status is None and child.poll() is not None:
                process.status = child.returncode
                _end_group(child.pid)  # what the task started ends with it
                if process.status:
                    failed.append(process)
        # Of several that failed since the last look, a killed one or the first to raise was it.
        self._failures += sorted(failed, key=lambda p: ((p.status or 0) > 0, p.tail.raised_at))
        return all(process.status is not None for process in self.processes)

    def signal(self, number: int) -> None:
        for process in self.processes:
            process.signal(number)

    def first_failure(self) -> tuple[Process | None, int] | None:
        if not self._failures:
            return None
        first = self._failures[0]
        return first, first.status or 0

    def close(self) -> None:
        for child in self._children:
            child.wait()


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


@final
class MpiJob(Job):
    """Tasks as the ranks of one mpirun.

    Args:
        mpirun: The mpirun with its options.
        tasks: The task of each rank.
        program: What each rank runs.
        environ: The environment of mpirun and of all ranks.
        show: Prints what they write.
    """

    def __init__(
        self,
        mpirun: Sequence[str],
        tasks: Sequence[Task],
        program: Sequence[str],
        environ: Mapping[str, str],
        show: Show,
    ) -> None:
        super().__init__()
        self._pids: dict[Process, int] = {}
        self._failures: list[Process] = []
        self._show = show
        self._own_output = Tail()
        self._asked_to_end = False
        self._is_ending = False
        self._left_before = mpich_leftovers()
        self._directory = tempfile.mkdtemp(prefix="paceline-launch-")
        for rank, task in enumerate(tasks):
            self._listen_to(rank, task)
        how = ("exec", str(int(signal.SIGTERM)), str(os.getpid()))
        ranks = (*tether_arguments(), "rank", self._directory, *program)
        self._mpirun, out, err = start((*how, *mpirun, "-n", str(len(tasks)), *ranks), environ)
        self.pipes += [Pipe(out, self._own_output.add), Pipe(err, self._own_output.add)]

    def _listen_to(self, rank: int, task: Task) -> None:
        out, err, status = (self._named_pipe(f"{rank}.{kind}") for kind in ("out", "err", "status"))
        process = Process(
            task,
            lambda number: self._signal_rank(process, number),
            lambda: self._pids.get(process),
        )
        self.processes.append(process)
        self.pipes += output_pipes(process, out, err, self._show)
        self.pipes.append(Pipe(status, lambda lines: self._take_report(process, lines)))

    def _named_pipe(self, name: str) -> int:
        path = Path(self._directory, name)
        os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def _take_report(self, process: Process, lines: list[bytes]) -> None:
        for line in lines:
            kind, _, number = line.partition(b" ")
            if kind == b"pid":
                self._pids[process] = int(number)
            else:
                process.status = int(number)
            if process.status:
                self._failures.append(process)
        if self._is_ending and not self._is_training():
            for process in self.processes:
                if process.task.type == "evaluator":
                    process.signal(signal.SIGTERM)
        if len(self._pids) == len(self.processes):  # all have opened their pipes
            shutil.rmtree(self._directory, ignore_errors=True)

    def _is_training(self) -> bool:
        trainers = (p for p in self.processes if p.task.type in ("chief", "worker"))
        return any(process.status is None for process in trainers)

    def _signal_rank(self, process: Process, number: int) -> None:
        if process in self._pids:
            os.kill(self._pids[process], number)

    def poll(self) -> bool:
        return self._mpirun.poll() is not None

    def signal(self, number: int) -> None:
        """mpirun ends when its ranks have; it is asked only if some have not begun, or will not.

        An evaluator that is asked to end does so at once, with an exit code for which mpirun would
        kill the others before they have saved. So its turn comes when they have ended.
        """
        self._is_ending = number == signal.SIGTERM
        for process in self.processes:
            if process.task.type != "evaluator" or not (self._is_ending and self._is_training()):
                process.signal(number)
        if number == signal.SIGKILL or len(self._pids) < len(self.processes):
            number = signal.SIGKILL if self._asked_to_end else signal.SIGTERM
            self._asked_to_end = True
            with suppress(ProcessLookupError):
                os.killpg(self._mpirun.pid, number)

    def first_failure(self) -> tuple[Process | None, int] | None:
        """MPICH ends a rank that aborts before it can report: its traceback tells on it then.

        Another rank, which left with an exit code because of that, may have reported already.
        """
        if not self._failures and not self._mpirun.poll():
            return None
        raised = [p for p in self.processes if p.status != 0 and p.tail.has_traceback()]
        first = min(raised, key=lambda p: p.tail.raised_at, default=None)
        if self._failures and (first is None or (self._failures[0].status or 0) < 0):
            first = self._failures[0]  # a rank that was killed has no traceback
        return first, (first and first.status) or self._mpirun.poll() or 1

    def close(self) -> None:
        if self._mpirun.wait() and self.first_failure() == (None, self._mpirun.returncode):
            self._show("mpirun", self._own_output.traceback(), True)
        shutil.rmtree(self._directory, ignore_errors=True)
        remove_leftovers(self._left_before)


def output_pipes(process: Process, out: int, err: int, show: Show) -> list[Pipe]:
    """The pipes of a process's stdout and stderr, which show and remember what they bring."""

    def take_error(lines: list[bytes]) -> None:
        process.tail.add(lines)
        show(process.name, lines, True)

    return [Pipe(out, lambda lines: show(process.name, lines, False)), Pipe(err, take_error)]


def tether_arguments() -> tuple[str, ...]:
    """The interpreter and the program that ties a process to its parent."""
    return (sys.executable, "-I", "-S", _TETHER)


def start(
    arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start a program under the tether, in a process group of its own, without input.

    Returns:
        The process, and the reading ends of its stdout and stderr.
    """
    out, err = os.pipe(), os.pipe()
    try:
        child = subprocess.Popen(
            (*tether_arguments(), *arguments),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=out[1],
            stderr=err[1],
            process_group=0,
        )
    except BaseException:
        os.close(out[0])
        os.close(err[0])
        raise
    finally:
        os.close(out[1])
        os.close(err[1])
    return child, out[0], err[0]
