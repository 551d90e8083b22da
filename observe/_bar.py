"""A progress bar drawn by rich. Imported only when there is a terminal to draw on."""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn
from rich.progress import Progress as Display

from .progress import Progress
from .rate import Rate

_MIN_INTERVAL_SECS = 0.1
_DRAWING_SHARE = 0.002  # of the time; a redraw takes about 1 ms
_RATE_WINDOW_SECS = 10.0


@final
class Bar(Progress):
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
        self._next_draw = after + max(_MIN_INTERVAL_SECS, (after - now) / _DRAWING_SHARE)


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
    return "  ".join([*parts, times, *(f"{k} {float(v):.4g}" for k, v in values.items())])


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
    return Display(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[figures]}", markup=False),
        console=Console(file=sys.stderr),
        auto_refresh=False,
        # Output that goes to a file or a pipe must arrive there, not on the terminal.
        redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        redirect_stderr=True,
    )
