"""The processes of one start of a job: on their own, or as the ranks of an mpirun."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from .exit_codes import LOST_PEER
from .output import LineSplitter, Tail
from .spec import Task

_PROGRAM = str(Path(__file__).with_name("die_with_parent.py"))
_READ_BYTES = 1 << 16


@dataclass(frozen=True)
class Command:
    task: Task
    arguments: Sequence[str]
    environ: Mapping[str, str]


@dataclass(eq=False)
class Pipe:
    """The reading end of what a process writes; `take` gets each list of lines."""

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

    Attributes:
        pid: None while it is not known.
        status: How it ended (negative: the signal that ended it); None while it runs.
        tail: The last that it wrote to stderr.
    """

    def __init__(self, task: Task, leads_group: bool) -> None:
        self.task = task
        self.name = str(task)
        self.tail = Tail()
        self.status: int | None = None
        self.pid: int | None = None
        self._leads_group = leads_group

    @property
    def is_stopped(self) -> bool:
        """Whether it stands still, by SIGSTOP or in a debugger, as far as the system tells."""
        try:
            # The name in parentheses may hold anything.
            state = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):
            return False
        return state in ("T", "t")

    def signal(self, number: int) -> None:
        """Send a signal, unless the process has ended or is not known yet."""
        if self.status is None and self.pid is not None:
            with suppress(ProcessLookupError):
                (os.killpg if self._leads_group else os.kill)(self.pid, number)


Show = Callable[[str, list[bytes], bool], None]
"""Prints lines: name, lines, whether they were written to stderr."""


class Processes(ABC):
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
        """The task that failed first and its status (negative: the signal that ended it).

        A task that has only lost another one comes after those that failed by themselves. None if
        none has failed; the task is None if it is not known.
        """

    @abstractmethod
    def close(self) -> None:
        """Give everything back. All processes have ended."""


@final
class LocalProcesses(Processes):
    def __init__(self, commands: Sequence[Command], show: Show) -> None:
        super().__init__()
        self._children: list[subprocess.Popen[bytes]] = []
        self._failures: list[Process] = []
        for command in commands:
            self._start(command, show)

    def _start(self, command: Command, show: Show) -> None:
        how = ("exec", str(int(signal.SIGKILL)), str(os.getpid()))
        child, out, err = start((*how, *command.arguments), command.environ)
        process = Process(command.task, leads_group=True)
        process.pid = child.pid
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
        first = min(self._failures, key=has_lost_peer)
        return first, first.status or 0

    def close(self) -> None:
        for child in self._children:
            child.wait()


def has_lost_peer(process: Process) -> bool:
    """Whether it failed because another task did."""
    return process.status == LOST_PEER


def _end_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def output_pipes(process: Process, out: int, err: int, show: Show) -> list[Pipe]:
    """The pipes of a process's stdout and stderr, which show and remember what they bring."""

    def take_error(lines: list[bytes]) -> None:
        process.tail.add(lines)
        show(process.name, lines, True)

    return [Pipe(out, lambda lines: show(process.name, lines, False)), Pipe(err, take_error)]


def die_with_parent() -> tuple[str, ...]:
    """The interpreter and the program that makes a process end with its parent."""
    return (sys.executable, "-I", "-S", _PROGRAM)


def start(
    arguments: Sequence[str], environ: Mapping[str, str]
) -> tuple[subprocess.Popen[bytes], int, int]:
    """Start a program that ends with this one, in a process group of its own, without input.

    Returns the process, and the reading ends of its stdout and stderr.
    """
    out, err = os.pipe(), os.pipe()
    try:
        child = subprocess.Popen(
            # Between fork and exec no Python may run here (other threads hold locks), wherefore a
            # small program of its own asks the kernel to end with us.
            (*die_with_parent(), *arguments),
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
