"""What the histories of a run's tasks come to: curves, phases, checkpoints, faults.

Histories are written by other processes, also by ones that were killed in the middle of a line or
that run right now, or come from strangers. Lines that are damaged are passed over, told and
counted. What is left is checked once, here: the report and `paceline watch` show it as it is.
"""

from __future__ import annotations

import json
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, final

from .growing_file import read_directory
from .history import DIRECTORY, EVENTS
from .log import log_once
from .printable import printable

Event: TypeAlias = Mapping[str, Any]
Curve: TypeAlias = Sequence[tuple[int, float]]
"""(step, value), each step once, in order."""

_NUMBERS = ("loss", "steps_per_sec", "examples_per_sec", "own_steps", "last_step", "restart")
_NUMBERS_BY_NAME = ("phases", "scalars", "metrics")
_SETTINGS = ("config", "params")
_TEXTS = ("name", "reason", "error", "host", "strategy")
_LARGEST_NUMBER: Final = 1e300  # so that sums and differences of two can be drawn
_END_OF_TIME: Final = 1e11  # the year 5138
_TOLD_LINES: Final = 5
_TOLD_CHARACTERS: Final = 200


@final
@dataclass(frozen=True)
class Run:
    """All that was noted of the runs in one `model_dir`.

    Args:
        name: The last part of its path.
        tasks: The events of each task, such as `worker-0`, in the order in which they were noted.
        num_damaged: How many lines could not be read.
    """

    name: str
    tasks: Mapping[str, Sequence[Event]]
    num_damaged: int = field(default=0, compare=False)

    @classmethod
    def read(cls, model_dir: str) -> Run:
        """What there is now.

        Raises:
            ValueError: There is no history in `model_dir`.
            ImportError: It is a URL, and fsspec is not installed.
        """
        directory = f"{model_dir.rstrip('/')}/{DIRECTORY}"
        files = read_directory(directory, ".jsonl")
        tasks, num_damaged = {}, 0
        for task, content in files.items():
            events, damaged = _events(content)
            _tell_damaged(f"{directory}/{printable(task)}.jsonl", damaged)
            num_damaged += len(damaged)
            if events:
                tasks[printable(task)] = events
        if not tasks:
            raise ValueError(
                f"there is no history in {model_dir}: either nothing has been trained there, or "
                f"it was with RunConfig(save_summary_steps=0)"
            )
        name = os.path.basename(model_dir.rstrip("/")) or model_dir
        return cls(printable(name), tasks, num_damaged)

    @property
    def chief(self) -> Sequence[Event]:
        """What the chief has noted; of a run without any, the first task."""
        for events in self.tasks.values():
            if any(event.get("is_chief") for event in events):
                return events
        return next(iter(self.tasks.values()))

    @property
    def beginnings(self) -> Sequence[Event]:
        """Each time that the chief has begun, or gone on."""
        return of_kind("begin", self.chief)

    @property
    def steps(self) -> Sequence[Event]:
        """What the chief has noted of its steps; those that a later run has made anew are out."""
        return kept(of_kind("steps", self.chief), self.chief)

    def curve(self, name: str) -> Curve:
        """A number of the chief's steps: "loss", "steps_per_sec", "examples_per_sec"."""
        return _points((e["step"], e.get(name)) for e in self.steps)

    @property
    def scalars(self) -> dict[str, Curve]:
        """What `model_fn` has shown, the learning rate and such, by name."""
        found: defaultdict[str, list[tuple[int, Any]]] = defaultdict(list)
        for event in self.steps:
            for name, value in event.get("scalars", {}).items():
                found[name].append((event["step"], value))
        return {name: _points(points) for name, points in sorted(found.items())}

    @property
    def metrics(self) -> dict[str, dict[str, Curve]]:
        """Metrics of evaluations: by metric, then by the name of the evaluation ("eval", …)."""
        found: defaultdict[str, defaultdict[str, dict[int, Any]]]
        found = defaultdict(lambda: defaultdict(dict))
        evaluations = [e for events in self.tasks.values() for e in of_kind("evaluation", events)]
        for event in sorted(evaluations, key=lambda e: e["time"]):
            where = f"eval_{event['name']}" if event.get("name") else "eval"
            for name, value in event.get("metrics", {}).items():
                found[name][where][event["step"]] = value
        return {
            name: {where: _points(sorted(points.items())) for where, points in by_name.items()}
            for name, by_name in sorted(found.items())
        }

    @property
    def phases(self) -> dict[str, dict[str, float]]:
        """For each worker, the milliseconds of a step of its own by phase."""
        result = {}
        for task, events in self.tasks.items():
            seconds: Counter[str] = Counter()
            steps = of_kind("steps", events)
            for event in steps:
                seconds.update({k: v for k, v in event.get("phases", {}).items() if v})
            num_steps = sum(event.get("own_steps", 0) for event in steps)
            if num_steps:
                result[task] = {name: 1e3 * secs / num_steps for name, secs in seconds.items()}
        return result

    @property
    def checkpoints(self) -> Sequence[Event]:
        return of_kind("checkpoint", self.chief)

    @property
    def incidents(self) -> list[tuple[str, Event]]:
        """(task, event) of beginnings, failures and ends of all tasks, by time.

        A run that has begun and was neither ended nor has failed before the next one began was
        killed: an event "killed" with the time of its last sign of life says so.
        """
        found = [(task, e) for task, events in self.tasks.items() for e in _incidents(events)]
        return sorted(found, key=lambda pair: pair[1]["time"])

    @property
    def last_time(self) -> float:
        """When any task has noted something last, in seconds since 1970."""
        return max(e["time"] for events in self.tasks.values() for e in events)

    @property
    def end(self) -> Event | None:
        """How the chief's last run has ended, or failed; None while it is under way."""
        last: Event | None = None
        for event in self.chief:
            if event["event"] in ("begin", "end", "failure"):
                last = event
        return None if last is None or last["event"] == "begin" else last


def of_kind(kind: str, events: Sequence[Event]) -> list[Event]:
    """The events of one kind."""
    return [event for event in events if event["event"] == kind]


def kept(points: Sequence[Event], events: Sequence[Event]) -> list[Event]:
    """Those of `points` that no later run has gone back behind."""
    result: list[Event] = []
    waiting = iter(points)
    following = next(waiting, None)
    for event in events:
        if event["event"] == "begin":
            result = [e for e in result if e["step"] <= event["step"]]
        elif event is following:
            result.append(event)
            following = next(waiting, None)
    return result


def _incidents(events: Sequence[Event]) -> Iterator[Event]:
    is_running, last = False, None
    for event in events:
        if event["event"] == "begin":
            if is_running and last is not None:
                yield {"event": "killed", "time": last["time"], "step": last.get("step", 0)}
            is_running = True
        if event["event"] in ("end", "failure"):
            is_running = False
        if event["event"] in ("begin", "failure", "end"):
            yield event
        last = event


def _points(points: Iterable[tuple[int, Any]]) -> Curve:
    return [(step, float(value)) for step, value in points if value is not None]


def _events(content: bytes) -> tuple[list[Event], list[tuple[int, str]]]:
    """The events of a history, and what is wrong with its other lines, by their numbers.

    A last line without an end is being written.
    """
    events, damaged = [], []
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            events.append(_checked(json.loads(line)))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if number < len(lines):
                damaged.append((number, f"{type(error).__name__}: {str(error)[:_TOLD_CHARACTERS]}"))
    return events, damaged


def _tell_damaged(path: str, damaged: Sequence[tuple[int, str]]) -> None:
    for number, problem in damaged[:_TOLD_LINES]:
        log_once(
            logging.WARNING,
            "%s, line %d is damaged and passed over (%s).",
            path,
            number,
            printable(problem),
        )
    if len(damaged) > _TOLD_LINES:
        more = len(damaged) - _TOLD_LINES
        log_once(logging.WARNING, "%s has %d more damaged lines.", path, more)


def _checked(event: Any) -> Event:
    """An event whose fields are of the kinds that they should be, and whose texts are printable.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: They are not.
    """
    event = {"phases": {}, "scalars": {}, "metrics": {}, "config": {}, "params": {}} | event
    numbers = [event["time"], event["step"]]
    told = [event.get(name) for name in _NUMBERS]
    for name in _NUMBERS_BY_NAME:
        told += event[name].values()
    numbers += [number for number in told if number is not None]
    if event["event"] not in EVENTS:
        raise ValueError(f"there is no event {event['event']!r}")
    if not all(isinstance(n, int | float) and abs(n) <= _LARGEST_NUMBER for n in numbers):
        raise ValueError("one of its numbers is none, or too large")
    if not 0 <= event["time"] < _END_OF_TIME or not 0 <= event["step"] < 2**63:
        raise ValueError(f"step {event['step']} at time {event['time']}")
    for name in _SETTINGS:
        event[name].items()
    for name in _TEXTS:
        if not isinstance(event.get(name), str | None):
            raise ValueError(f"its {name} is no text")
    return _shown({**event, "step": int(event["step"])})


def _shown(value: Any) -> Any:
    """The value with all texts in it as they may be shown."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {printable(key): _shown(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_shown(inner) for inner in value]
    return value
