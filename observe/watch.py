"""`paceline watch`: follow a run from any machine that sees its `model_dir`."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, final

from .chart import number
from .run import Event, Run, of_kind

if TYPE_CHECKING:
    from rich.console import RenderableType

_SECS_BETWEEN_LOOKS = 1.0
_LOOKING_SHARE = 0.05  # of the time
_SILENT_AFTER_SECS = 30.0
_LINES_FOR_RATE = 5
_BAR_CELLS = 32
_MOST_SECS = 1e11
_MISSING_AFTER_SECS = 3.0


@final
@dataclass(frozen=True)
class TaskStatus:
    """How one task is.

    Args:
        name: Such as "worker-0".
        step: The global step that it told last.
        state: In words.
        is_well: Whether nothing speaks against that.
        heard_secs_ago: When it said something last.
        slowest: The phase that takes most of its time, and which share; empty if not known.
    """

    name: str
    step: int
    state: str
    is_well: bool
    heard_secs_ago: float
    slowest: str = ""


@final
@dataclass(frozen=True)
class Status:
    """How a run is, at a moment.

    Args:
        step, last_step: How far it is, and where it is to end, if that is known.
        loss: Of its last step; None if not known.
        steps_per_sec, examples_per_sec: Over the last few lines of its history.
        secs_left: None if nobody can say.
        checkpoint: In words: the last one.
        evaluation: In words: the last metrics.
        tasks: All tasks.
        ended: How it ended; empty while it has not.
        has_failed: Whether that was an error.
    """

    step: int
    last_step: int | None
    loss: float | None
    steps_per_sec: float
    examples_per_sec: float
    secs_left: float | None
    checkpoint: str
    evaluation: str
    tasks: Sequence[TaskStatus]
    ended: str
    has_failed: bool

    def line(self) -> str:
        """All in a line, for where there is no terminal."""
        of_all = "" if self.last_step is None else f" of {self.last_step:,}"
        loss = "" if self.loss is None else f"  loss {number(self.loss)}"
        left = "" if self.secs_left is None else f"  {_clock(self.secs_left)} left"
        rate = f"  {number(self.steps_per_sec)} step/s" if self.steps_per_sec else ""
        ill = "".join(f"  {task.name}: {task.state}" for task in self.tasks if not task.is_well)
        ended = f"  {self.ended}" if self.ended else ""
        return f"step {self.step:,}{of_all}{loss}{rate}{left}{ill}{ended}"


def status(run: Run, now: float) -> Status:
    """How a run is, as its histories say.

    Args:
        run: What was read.
        now: Seconds since 1970.
    """
    steps, beginnings, end = run.steps, run.beginnings, run.end
    last_step = beginnings[-1].get("last_step") if beginnings else None
    step = int((steps or beginnings or run.chief)[-1]["step"])
    rate, examples = _rates(of_kind("steps", run.chief))
    left = None if last_step is None or not rate or end else max(0, last_step - step) / rate
    ended = ""
    if end is not None:
        ended = end.get("reason") or f"failed: {end.get('error', '')}"
    return Status(
        step=step,
        last_step=last_step,
        loss=steps[-1].get("loss") if steps else None,
        steps_per_sec=rate,
        examples_per_sec=examples,
        secs_left=left,
        checkpoint=_checkpoint(run, now),
        evaluation=_evaluation(run),
        tasks=[_of_task(name, events, now) for name, events in run.tasks.items() if events],
        ended=ended,
        has_failed=end is not None and end["event"] == "failure",
    )


def _rates(steps: Sequence[Event]) -> tuple[float, float]:
    """Steps and examples per second of the last few lines, each for as long as it stands for."""
    recent = [(e, sum(filter(None, e["phases"].values()))) for e in steps[-_LINES_FOR_RATE:]]
    total = sum(secs for _, secs in recent)
    if not total:
        return 0.0, 0.0
    by_name = [
        sum((event.get(name) or 0.0) * secs for event, secs in recent) / total
        for name in ("steps_per_sec", "examples_per_sec")
    ]
    return by_name[0], by_name[1]


def _checkpoint(run: Run, now: float) -> str:
    if not run.checkpoints:
        return "none yet"
    last = run.checkpoints[-1]
    return f"step {last['step']:,}, {_clock(now - last['time'])} ago"


def _evaluation(run: Run) -> str:
    found = [e for events in run.tasks.values() for e in of_kind("evaluation", events)]
    if not found:
        return "none yet"
    last = max(found, key=lambda event: event["time"])
    measured = {name: value for name, value in last["metrics"].items() if value is not None}
    metrics = ", ".join(f"{name} {number(value)}" for name, value in measured.items())
    return f"step {last['step']:,}: {metrics}"


def _of_task(name: str, events: Sequence[Event], now: float) -> TaskStatus:
    last, silent = events[-1], now - events[-1]["time"]
    kinds = [e["event"] for e in events if e["event"] in ("begin", "end", "failure")]
    state, is_well = "at work", True
    if kinds and kinds[-1] == "end":
        state = "ended"
    elif kinds and kinds[-1] == "failure":
        state, is_well = "failed", False
    elif not kinds:
        state = "evaluates"
    elif silent > _SILENT_AFTER_SECS:
        state, is_well = f"silent for {_clock(silent)}", False
    return TaskStatus(name, int(last["step"]), state, is_well, max(0.0, silent), _slowest(events))


def _slowest(events: Sequence[Event]) -> str:
    steps = of_kind("steps", events)
    phases = {name: secs or 0.0 for name, secs in steps[-1]["phases"].items()} if steps else {}
    total = sum(phases.values())
    if not total:
        return ""
    name = max(phases, key=phases.__getitem__)
    return f"{name} {100 * phases[name] / total:.0f} %"


def screen(run: Run, now: float) -> RenderableType:
    """What is drawn on a terminal."""
    from rich.console import Group  # takes 0.1 s: only where there is a terminal
    from rich.table import Table
    from rich.text import Text

    found = status(run, now)
    facts = Table.grid(padding=(0, 2))
    loss = "" if found.loss is None else number(found.loss)
    rates = f"{number(found.steps_per_sec)} step/s, {number(found.examples_per_sec)} examples/s"
    for name, value in (
        ("step", _progress(found)),
        ("loss", loss),
        ("speed", rates),
        ("last checkpoint", found.checkpoint),
        ("last evaluation", found.evaluation),
    ):
        facts.add_row(Text(name, style="dim"), Text(value))
    tasks = Table(box=None, padding=(0, 2), header_style="dim")
    for heading in ("task", "step", "state", "last heard", "most of its time"):
        tasks.add_column(heading)
    for task in found.tasks:
        style = "" if task.is_well else "bold red"
        heard = f"{_clock(task.heard_secs_ago)} ago"
        cells = (task.name, f"{task.step:,}", task.state, heard, task.slowest)
        tasks.add_row(*[Text(cell, style=style) for cell in cells])
    title = Text(run.name, style="bold")
    if found.ended:
        title.append(f"  {found.ended}", style="bold red" if found.has_failed else "green")
    return Group(title, facts, Text(""), tasks)


def _progress(found: Status) -> str:
    if not found.last_step:
        return f"{found.step:,}"
    share = min(1.0, found.step / found.last_step)
    full = round(share * _BAR_CELLS)
    left = "" if found.secs_left is None else f"  {_clock(found.secs_left)} left"
    bar = "━" * full + "╌" * (_BAR_CELLS - full)
    return f"{bar} {found.step:,} of {found.last_step:,} ({share:.0%}){left}"


def _clock(secs: float) -> str:
    return str(timedelta(seconds=round(min(max(0, secs), _MOST_SECS))))


def add_watch_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line of `paceline watch`."""
    parser.description = (
        "Follow a run, from any machine that sees its model_dir: how far it is, its loss and "
        "speed, who is alive, the last checkpoint and evaluation. Ends with the run (exit code 1 "
        "if it failed), or with Ctrl-C. Clocks of machines that differ show in 'last heard'."
    )
    parser.add_argument("model_dir", help="where it is trained; a path or a URL")
    parser.add_argument("--once", action="store_true", help="look once, and print a line")


def run_watch(arguments: argparse.Namespace) -> int:
    """Carry out `paceline watch`; its exit code."""
    try:
        if arguments.once:
            print(status(Run.read(arguments.model_dir), time.time()).line())
            return 0
        return _follow(arguments.model_dir)
    except (ValueError, ImportError, OSError) as error:
        print(f"paceline watch: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 0


def _follow(model_dir: str) -> int:
    """Draw, or print, what there is, until the run has ended."""
    from rich.console import Console
    from rich.live import Live

    console, shown, started = Console(), "", time.monotonic()
    is_drawn = console.is_terminal
    with Live(console=console, auto_refresh=False) if is_drawn else nullcontext() as live:
        while True:
            began = time.monotonic()
            run = _read(model_dir)
            found = None if run is None else status(run, time.time())
            line = _waiting(model_dir, began - started) if found is None else found.line()
            if live is not None:
                live.update(line if run is None else screen(run, time.time()), refresh=True)
            elif line != shown:
                print(line, flush=True)
                shown = line
            if found is not None and found.ended:
                return int(found.has_failed)
            # A long history takes a while to read, a distant one too.
            looked = time.monotonic() - began
            time.sleep(max(_SECS_BETWEEN_LOOKS, looked / _LOOKING_SHARE))


def _waiting(model_dir: str, secs: float) -> str:
    """What to say while there is no run; a directory may be made soon, or be misspelt."""
    is_missing = "://" not in model_dir and not os.path.isdir(model_dir)
    if is_missing and secs >= _MISSING_AFTER_SECS:
        return f"waiting for a run in {model_dir}, which does not exist: is the path right?"
    return f"waiting for a run in {model_dir}"


def _read(model_dir: str) -> Run | None:
    try:
        return Run.read(model_dir)
    except ValueError:
        return None
