"""Timelines of training steps in Chrome's trace format, which https://ui.perfetto.dev opens.

The format: "Trace Event Format", Google 2016. Workers are its processes, replicas its threads, and
collectives, which overlap with everything, its asynchronous events.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from .growing_file import replace_file
from .phases import Span

TraceEvent: TypeAlias = dict[str, Any]


def trace_events(
    worker: int,
    name: str,
    phases: Sequence[Sequence[Span]],
    collectives: Sequence[Span],
    offset_ns: int,
) -> list[TraceEvent]:
    """What one worker did, as events of a trace.

    Args:
        worker: The worker's number.
        name: What the process is called.
        phases: The spans of each replica.
        collectives: Those of all of them together.
        offset_ns: What to add to the spans' times, so that those of workers can be compared.
    """
    events = [_named("process_name", worker, 0, name)]
    for replica, spans in enumerate(phases):
        events.append(_named("thread_name", worker, replica, f"replica {replica}"))
        events += [_of_phase(span, worker, replica, offset_ns) for span in spans]
    for number, span in enumerate(collectives):
        about = {"cat": "collective", "name": span.name, "id": f"{worker}.{number}", "pid": worker}
        events.append({**about, "ph": "b", "tid": 0, "ts": _micros(span.begin + offset_ns)})
        events.append({**about, "ph": "e", "tid": 0, "ts": _micros(span.end + offset_ns)})
    return events


def write_timeline(path: str, events: Sequence[TraceEvent]) -> None:
    """Write a file for Perfetto.

    Raises:
        OSError: It cannot be written.
    """
    text = json.dumps({"displayTimeUnit": "ms", "traceEvents": list(events)})
    replace_file(path, text.encode())


def add_timeline_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line of `paceline timeline`."""
    parser.description = "Put the timelines of several workers into one file for ui.perfetto.dev."
    parser.add_argument("files", nargs="+", help="such as model_dir/timeline-100-worker-*.json")
    parser.add_argument("--output", "-o", required=True, metavar="FILE", help="where to")


def run_timeline(arguments: argparse.Namespace) -> int:
    """Carry out `paceline timeline`; its exit code."""
    try:
        found = [_events_of(path) for path in arguments.files]
        write_timeline(arguments.output, [event for events in found for event in events])
    except (OSError, ValueError) as error:
        print(f"paceline timeline: {error}", file=sys.stderr)
        return 2
    print(arguments.output)
    return 0


def _events_of(path: str) -> list[TraceEvent]:
    try:
        events = json.loads(Path(path).read_text())["traceEvents"]
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path} is no timeline: {error!r}") from error
    return [dict(event) for event in events]


def _of_phase(span: Span, worker: int, replica: int, offset_ns: int) -> TraceEvent:
    return {
        "ph": "X",
        "cat": "phase",
        "name": span.name,
        "pid": worker,
        "tid": replica,
        "ts": _micros(span.begin + offset_ns),
        "dur": _micros(span.end - span.begin),
    }


def _named(what: str, worker: int, replica: int, name: str) -> TraceEvent:
    return {"ph": "M", "name": what, "pid": worker, "tid": replica, "args": {"name": name}}


def _micros(nanos: int) -> float:
    return nanos / 1000
