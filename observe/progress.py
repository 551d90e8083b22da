"""Progress of long work: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Self, final

VARIABLE = "PACELINE_PROGRESS"
"""With "lines" in this environment variable progress is told in lines, for `RemoteProgress`."""

_MARK = b"\x1epaceline-progress "
_MIN_INTERVAL_SECS = 0.2


class Progress(ABC):
    """What `progress` returns. Closed at the end of a `with` block, or by `close`."""

    @abstractmethod
    def update(self, completed: int, **values: float) -> None:
        """Says how far the work is.

        Meant to be called after every step: it draws at most ten times a second, and in no more
        than 0.2 % of the time.

        Args:
            completed: units done so far. The first call sets where the rate is counted from, so
                work that is resumed may start anywhere.
            values: figures to show beside the bar, such as `loss=0.123`.
        """

    @abstractmethod
    def close(self) -> None:
        """Draws the last state and gives the terminal back; further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@final
class _Unseen(Progress):
    """Where nobody watches; hooks write log lines there."""

    def update(self, completed: int, **values: float) -> None:
        pass

    def close(self) -> None:
        pass


@final
class _Told(Progress):
    """Where the process that has started this one shows a bar: lines of JSON, a few a second."""

    def __init__(self, total: int | None, description: str, unit: str) -> None:
        self._about = {"total": total, "description": description, "unit": unit}
        self._next = 0.0
        self._latest: str | None = None

    def update(self, completed: int, **values: float) -> None:
        numbers = {name: float(value) for name, value in values.items()}
        self._latest = json.dumps({**self._about, "completed": completed, "values": numbers})
        now = time.perf_counter()
        if now >= self._next:
            self._next = now + _MIN_INTERVAL_SECS
            self._tell()

    def close(self) -> None:
        self._tell()

    def _tell(self) -> None:
        if self._latest is not None:
            sys.stderr.write(f"{_MARK.decode()}{self._latest}\n")
            sys.stderr.flush()
            self._latest = None


@final
class RemoteProgress:
    """A bar for what another process tells in lines; see `VARIABLE`."""

    def __init__(self) -> None:
        self._bar: Progress | None = None
        self._about: object = None

    def take(self, line: bytes, is_shown: bool = True) -> bool:
        """Draw what a line tells.

        Args:
            line: What a process has written to stderr.
            is_shown: Whether it is the process whose progress is shown.

        Returns:
            Whether it was such a line, which nobody need see. One that is damaged is not.
        """
        if not line.startswith(_MARK):
            return False
        try:
            told = json.loads(line.removeprefix(_MARK))
            about = told["total"], told["description"], told["unit"]
            completed, values = told["completed"], dict(told["values"])
        except (ValueError, KeyError, TypeError):
            return False
        if is_shown:
            self._open(about).update(completed, **values)
        return True

    def close(self) -> None:
        """Take the bar away, if there is one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = self._about = None

    def _open(self, about: tuple[int | None, str, str]) -> Progress:
        if self._bar is None or about != self._about:
            self.close()
            self._about = about
            self._bar = progress(*about)
        return self._bar


def progress(
    total: int | None,
    description: str,
    unit: str = "step",
    environ: Mapping[str, str] = os.environ,
) -> Progress:
    """Shows the progress of long work on stderr if that is a terminal, else nothing.

    Bars that are open at the same time share the terminal. While one is open, what is written to
    `sys.stderr` (our log lines are) appears above it.

    Args:
        total: units of the whole work; None if not known.
        description: what is going on, in a word or two.
        unit: what is counted, in the singular.
        environ: where `VARIABLE` is looked up.

    Returns:
        The object to update, also a context manager.
    """
    if environ.get(VARIABLE) == "lines":
        return _Told(total, description, unit)
    if sys.stderr is None or not sys.stderr.isatty():
        return _Unseen()
    from ._bar import Bar  # imports rich, which takes 0.1 s

    return Bar(total, description, unit)
