"""What a launched job prints: each line with the name of the task that wrote it."""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

_COLOURS = tuple(f"\x1b[{code}m".encode() for code in (36, 32, 33, 35, 34, 96, 92, 93, 95, 94))
_RESET = b"\x1b[0m"
_LONGEST_LINE_BYTES = 1 << 16
_TAIL_LINES = 400
_LOGGED = re.compile(rb"\d\d:\d\d:\d\d (?=DEBUG|INFO|WARNING|ERROR|CRITICAL)")
_TIMES = re.compile(rb"(?<=/sec: )[\d.]+|\b[\d.]+(?= s(ec)?\b)")
"""How long or how fast something was, in lines that are alike otherwise."""

_REMEMBERED_LINES = 1000
_TRACEBACK = b"Traceback (most recent call last):"
_CHAINED = (b"During handling of the above exception", b"The above exception was the direct cause")
# What MPI libraries print below the traceback of a rank that aborts the job.
_MPI_ABORT = (b"Abort(", b"MPI_ABORT")
_MPI_EPILOGUE = (*_MPI_ABORT, b"-----")


class Prefixer:
    """Writes lines to a stream, each after its task's name, or with it as an object of JSON.

    A stream that takes nothing, as a file on a full disk, is no reason to end a job: what it does
    not take is counted, and told when it takes lines again.
    """

    def __init__(
        self, stream: BinaryIO, names: Sequence[str], colour: bool, as_json: bool = False
    ) -> None:
        self._stream = stream
        self._as_json = as_json
        self._num_lost = 0
        self._has_reader = True
        self._prefixes = {
            name: _COLOURS[i % len(_COLOURS)] + f"[{name}]".encode() + _RESET + b" "
            if colour
            else f"[{name}] ".encode()
            for i, name in enumerate(names)
        }

    def write(self, name: str, lines: Sequence[bytes]) -> None:
        """Print lines of one task. BrokenPipeError, once, where nobody reads them any more."""
        text = b"".join(self._named(name, line) + b"\n" for line in lines)
        if self._num_lost:
            lost = f"{self._num_lost} lines could not be written".encode()
            text = self._named("launch", lost) + b"\n" + text
        try:
            if self._has_reader:
                self._stream.write(text)
                self._stream.flush()
                self._num_lost = 0
        except BrokenPipeError:
            self._has_reader = False
            raise
        except OSError:
            self._num_lost += len(lines)

    def _named(self, name: str, line: bytes) -> bytes:
        if not self._as_json:
            return (self._prefixes.get(name) or f"[{name}] ".encode()) + line
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):  # what the script prints by itself
            found = {"message": line.decode(errors="backslashreplace")}
        return json.dumps({"task": name, **found}).encode()


class CommonLines:
    """Tells which lines of the log are new: several tasks of one job log much alike.

    A line is the same whatever its time, and how fast that task was. Its k-th occurrence is new in
    the task that logs it first. What a script prints by itself is always new.
    """

    def __init__(self) -> None:
        self._counts: dict[bytes, Counter[str]] = {}

    def new_in(self, name: str, lines: Sequence[bytes]) -> list[bytes]:
        """Those lines of task `name` that no other task has logged before."""
        return [line for line in lines if self._is_new(name, line)]

    def _is_new(self, name: str, line: bytes) -> bool:
        logged = _LOGGED.match(line)
        if logged is None:
            return True
        text = _TIMES.sub(b"", line[logged.end() :])
        counts = self._counts.pop(text, None) or Counter()
        self._counts[text] = counts  # now the youngest
        if len(self._counts) > _REMEMBERED_LINES:
            del self._counts[next(iter(self._counts))]
        # By occurrences, as a line may come again: the second "saved" of one worker is news, that
        # of another one is its echo.
        most = max(counts.values(), default=0)
        counts[name] += 1
        return counts[name] > most


def console(name: str) -> BinaryIO:
    """stdout or stderr as it is at the time: a progress bar puts itself there while it is drawn."""
    return io.BufferedWriter(_Console(name))


class _Console(io.RawIOBase):
    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, data: Any) -> int:
        stream = getattr(sys, self._name)
        stream.write(bytes(data).decode(errors="replace"))
        stream.flush()
        return len(data)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return bool(getattr(sys, self._name).isatty())


def drop_unwritten() -> None:
    """Give up what stdout and stderr hold and cannot write, or Python's exit code would be 120."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


class LineSplitter:
    """Puts the pieces read from a pipe together to lines. Very long ones are cut."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """The lines that `piece` completes, without their ends."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if len(self._rest) > _LONGEST_LINE_BYTES:
            lines.append(self._rest)
            self._rest = b""
        return [line.removesuffix(b"\r") for line in lines]

    def end(self) -> list[bytes]:
        rest, self._rest = self._rest, b""
        return [rest] if rest else []


class Tail:
    """The last lines that a task wrote to stderr, and when it first wrote a traceback."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_TAIL_LINES)
        self.raised_at = math.inf

    def add(self, lines: Sequence[bytes]) -> None:
        self._lines.extend(lines)
        if self.raised_at == math.inf and any(_TRACEBACK in line for line in lines):
            self.raised_at = time.monotonic()

    def traceback(self) -> list[bytes]:
        """The last traceback with those it was chained to; without any, the last ten lines."""
        lines = list(self._lines)
        return traceback_in(lines) or _up_to(_MPI_ABORT, lines)[-10:]

    def has_traceback(self) -> bool:
        return self.raised_at < math.inf


def traceback_in(lines: list[bytes]) -> list[bytes]:
    """The last traceback in a task's output, with those to which it is chained; [] without one."""
    starts = [i for i, line in enumerate(lines) if _TRACEBACK in line]
    if not starts:
        return []
    start = starts.pop()
    while starts and any(
        line.strip().startswith(_CHAINED) for line in lines[max(0, start - 3) : start]
    ):
        start = starts.pop()
    return _up_to(_MPI_EPILOGUE, lines[start:])


def _up_to(beginnings: tuple[bytes, ...], lines: list[bytes]) -> list[bytes]:
    """The lines before the first one with such a beginning."""
    ends = (i for i, line in enumerate(lines) if line.startswith(beginnings))
    return lines[: next(ends, len(lines))]


def wants_colour(stream: BinaryIO, environ: Mapping[str, str]) -> bool:
    """Whether a stream is a terminal whose user has not asked for plain text (NO_COLOR)."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
