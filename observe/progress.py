"""Progress of long work: a bar on a terminal, lines for who draws one, nothing elsewhere."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Self, final

if TYPE_CHECKING:
    from rich.progress import Progress as Display
    from rich.progress import TaskID

VARIABLE = "PACELINE_PROGRESS"
"""With "lines" in this environment variable progress is told in lines, for `RemoteProgress`."""

_MARK = b"\x1epaceline-progress "
_SECS_BETWEEN_LINES = 0.2
_MIN_SECS_BETWEEN_DRAWINGS = 0.1
_DRAWING_SHARE = 0.002  # of the time; a redraw takes about 1 ms
_RATE_WINDOW_SECS = 10.0
_FIGURES_WIDTH = 90


class Progress(ABC):
    """What `progress` returns. Closed at the end of a `with` block, or by `close`.

    Attributes:
        is_seen: Whether anybody watches; else `update` need not be called.
    """

    is_seen = True

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

    is_seen = False

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
            self._next = now + _SECS_BETWEEN_LINES
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
    return _Bar(total, description, unit)


def progress_for_launcher(
    total: int | None,
    description: str,
    unit: str = "step",
    environ: Mapping[str, str] = os.environ,
) -> Progress:
    """As `progress`, but only where the process that has started this one shows a bar."""
    told = environ.get(VARIABLE) == "lines"
    return _Told(total, description, unit) if told else _Unseen()


@final
class _Bar(Progress):
    """One bar of the terminal. No thread redraws it: `update` does, now and then."""

    def __init__(self, total: int | None, description: str, unit: str) -> None:
        self._total = total
        self._unit = unit
        self._completed: int | None = None
        self._values: Mapping[str, float] = {}
        self._rate = Rate(_RATE_WINDOW_SECS)
        self._start = time.perf_counter()
        self._next_draw = self._start
        self._display, self._task = _screen.add(description, total)

    def update(self, completed: int, **values: float) -> None:
        self._completed = completed
        self._values = values
        if time.perf_counter() >= self._next_draw:
            self._draw()

    def close(self) -> None:
        if self._next_draw == math.inf:
            return
        self._draw()
        self._next_draw = math.inf
        _screen.remove(self._task)

    def _draw(self) -> None:
        if self._completed is None:
            return
        now = time.perf_counter()
        rate = self._rate.update(self._completed, now)
        left = None if self._total is None else self._total - self._completed
        text = figures(rate, self._unit, now - self._start, left, self._values)
        self._display.update(self._task, completed=self._completed, figures=text, refresh=True)
        after = time.perf_counter()
        self._next_draw = after + max(_MIN_SECS_BETWEEN_DRAWINGS, (after - now) / _DRAWING_SHARE)


def figures(
    rate: float | None,
    unit: str,
    elapsed_secs: float,
    left: int | None,
    values: Mapping[str, float],
) -> str:
    """The text beside a bar, such as `2,450 step/s  0:00:12 < 0:01:03  loss 0.1234`.

    Args:
        rate: units per second, None if not known yet.
        unit: what is counted, in the singular.
        elapsed_secs: since the bar was opened.
        left: units that remain, None if not known.
        values: further figures by name.
    """
    times = _clock(elapsed_secs)
    if rate and left is not None:
        times += f" < {_clock(left / rate)}"
    parts = [f"{_rounded(rate)} {unit}/s"] if rate else []
    shown = [f"{name} {_value(float(value))}" for name, value in values.items()]
    return "  ".join([*parts, times, *shown])


def _value(value: float) -> str:
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def _rounded(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


def _clock(secs: float) -> str:
    return str(timedelta(seconds=max(0, round(secs))))


@final
class _Screen:
    """The part of the terminal in which bars live: there is one terminal, hence one of these."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._display: Display | None = None
        self._num_bars = 0

    def add(self, description: str, total: int | None) -> tuple[Display, TaskID]:
        """Opens a bar below those that are open."""
        with self._lock:
            if self._display is None:
                self._display = _new_display()
                self._display.start()
            self._num_bars += 1
            return self._display, self._display.add_task(description, total=total, figures="")

    def remove(self, task: TaskID) -> None:
        """Closes a bar. The last one stays on the terminal as it was drawn last."""
        with self._lock:
            assert self._display is not None
            self._num_bars -= 1
            if self._num_bars:
                self._display.remove_task(task)
                self._display.refresh()
            else:
                self._display.stop()
                self._display = None


_screen = _Screen()


def _new_display() -> Display:
    from rich.console import Console  # takes 0.1 s: only where there is a terminal
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.table import Column

    console = Console(file=sys.stderr)
    # Where the line is too narrow the bar is shorter, and then the last figures are left out.
    bar_width = max(4, min(24, console.width - _FIGURES_WIDTH))
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
        BarColumn(bar_width=bar_width),
        MofNCompleteColumn(table_column=Column(no_wrap=True)),
        TextColumn(
            "{task.fields[figures]}",
            markup=False,
            table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"),
        ),
        console=console,
        expand=True,
        auto_refresh=False,
        # Output that goes to a file or a pipe must arrive there, not on the terminal.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        redirect_stderr=True,
    )


@final
class Rate:
    """Turns (step, time) marks into steps per second.

    Args:
        window_secs: how far back the rate looks; 0 means back to the previous mark.
    """

    def __init__(self, window_secs: float = 0.0) -> None:
        if window_secs < 0:
            raise ValueError(f"window_secs must be at least 0; got {window_secs}")
        self._window_secs = window_secs
        self._marks: deque[tuple[int, float]] = deque()

    def update(self, step: int, now: float) -> float | None:
        """Adds a mark.

        Args:
            step: steps done so far; going back (training restarted) forgets earlier marks.
            now: time in seconds on any clock that does not go back, such as `time.monotonic`.

        Returns:
            Steps per second over the window; None at the first mark, or when no time has passed.
        """
        if self._marks and step < self._marks[-1][0]:
            self._marks.clear()
        self._marks.append((step, now))
        # The oldest mark that is kept is the last one at or before the window's start.
        while len(self._marks) > 2 and self._marks[1][1] <= now - self._window_secs:
            self._marks.popleft()
        first_step, first_time = self._marks[0]
        return (step - first_step) / (now - first_time) if now > first_time else None
