"""What the histories of a run's tasks come to: curves, phases, checkpoints, faults.

Histories are written by other processes, also by ones that were killed in the middle of a line or
that run right now. Lines that are damaged are passed over, and counted.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from .growing_file import read_directory
from .history import DIRECTORY, EVENTS

Event: TypeAlias = Mapping[str, Any]
Curve: TypeAlias = Sequence[tuple[int, float]]
"""(step, value), each step once, in order."""

_NUMBERS = ("loss", "steps_per_sec", "examples_per_sec", "own_steps", "last_step", "restart")
_NUMBERS_BY_NAME = ("phases", "scalars", "metrics")


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
        files = read_directory(f"{model_dir.rstrip('/')}/{DIRECTORY}", ".jsonl")
        tasks, num_damaged = {}, 0
        for task, content in files.items():
            events = list(_events(content))
            num_damaged += content.count(b"\n") - len(events)
            tasks[task] = events
        if not any(tasks.values()):
            raise ValueError(
                f"there is no history in {model_dir}: either nothing has been trained there, or "
                f"it was with RunConfig(save_summary_steps=0)"
            )
        return cls(os.path.basename(model_dir.rstrip("/")) or model_dir, tasks, max(0, num_damaged))

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


def _events(content: bytes) -> Iterator[Event]:
    for line in content.splitlines():
        try:
            yield _checked(json.loads(line))
        except (ValueError, KeyError, TypeError, AttributeError):
            continue


def _checked(event: Any) -> Event:
    """An event whose fields are of the kinds that they should be.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: They are not.
    """
    numbers = [event["time"], event["step"], *[event.get(name) or 0 for name in _NUMBERS]]
    for name in _NUMBERS_BY_NAME:
        numbers += [value or 0 for value in event.get(name, {}).values()]
    if event["event"] not in EVENTS or not all(isinstance(n, int | float) for n in numbers):
        raise ValueError(f"not an event: {event}")
    event.get("config", {}).items()
    return {**event, "step": int(event["step"])}
