"""Hunt for scenarios that fail: `python tests/combinations/hunt.py --minutes 60 --seed 1`.

Prints each failure as a line that `--replay` takes, made as simple as it can be, and at the end a
table of what was run and what failed.

With `--races` threads take turns every two microseconds, which shows what replicas and workers,
who are threads here, can do to each other. The seed says what is run, but who is interrupted where
is not in our hands: `--tries` is how often a scenario is run before it counts as one that passes,
as in `--races --tries 50 --replay "Scenario(…)"`.

With `--interrupted` each scenario has runs that go on with each other's input, in one layout, which
must end with the bits of a single run. With `--array-library` replicas compute on cards, as in
pytest. With `--replay-steps` each scenario has so many steps that `model_fn` is not called in some.
"""

from __future__ import annotations

import argparse
import logging
import re
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path

sys.path.append(str(Path(__file__).parent.parent.parent))  # where `tests` is

import scenarios as s
from execution import check, check_interrupted
from scenarios import Run, Scenario, Topology  # noqa: F401 (what --replay evaluates)

from tests.devices.strict_mode import MODES

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
SWITCH_SECS_OF_RACES = 2e-6  # Python's own interval is 5e-3


@dataclass(frozen=True)
class Way:
    """How scenarios are tried.

    Args:
        tries: How often each.
        mode: What they are run within.
        shrink_secs: How long a failure is made simpler.
        check: Carries one out.
    """

    tries: int
    mode: Callable[[], AbstractContextManager[None]]
    shrink_secs: float
    check: Callable[[Scenario, str], None] = check


def failure_of(scenario: Scenario, way: Way, tells: bool = False) -> str:
    """What goes wrong in one of the tries, in a line; empty if nothing does.

    Args:
        tells: Whether the traceback is printed.
    """
    for _ in range(way.tries):
        with tempfile.TemporaryDirectory(dir=MEMORY) as directory:
            try:
                with way.mode():
                    way.check(scenario, directory)
            except Exception as error:
                if tells:
                    traceback.print_exc()
                return _described(error)
    return ""


def _described(error: Exception) -> str:
    text = re.sub(r"Not equal to tolerance \S+ \S+", "", " ".join(str(error).split()))
    return f"{type(error).__name__}: {text[:300]}"


def simplest(scenario: Scenario, failure: str, way: Way) -> Scenario:
    """The scenario without all that its failure does not need."""
    until, kind = time.monotonic() + way.shrink_secs, failure[:40]

    def without_more(scenario: Scenario) -> Scenario:
        for simpler in s.simpler_scenarios(scenario):
            if time.monotonic() > until:
                break
            if failure_of(simpler, way)[:40] == kind:
                return without_more(simpler)
        return scenario

    return without_more(scenario)


def dimensions(scenario: Scenario):
    """The cells of the table in which a scenario counts."""
    for run in scenario.runs:
        top = run.topology
        yield f"{top.kind}, {top.workers} worker(s) of {top.replicas}"
        yield f"{top.kind}, begins {run.begins}"
        if top.is_cut:
            yield f"{top.kind}, is cut"
        if top.partitioner:
            yield f"{top.kind}, begins {run.begins}, divided in {top.partitioner}"
        if scenario.schedule:
            yield f"{top.kind}, begins {run.begins}, schedule {scenario.schedule}"
        yield f"{top.kind}, begins {run.begins}, ends with {run.ends}"
        if run.has_empty_replica:
            yield f"{top.kind}, replica without data"
        if 0 in run.steps[0]:
            yield f"{top.kind}, replica without data in the first step"
        yield f"ends with {run.ends}"
        yield from (f"{top.kind}, {name}" for name in _flags(run))
    if scenario.evaluation:
        yield f"evaluated by {scenario.evaluation.topology.kind}"
    for name in ("loop", "optimizer", "clipping", "embedding", "norm"):
        yield f"{name} {getattr(scenario, name)}"
    yield from _flags(scenario)


def _flags(value):
    """The names of those fields of a dataclass that are True."""
    return [field.name for field in fields(value) if getattr(value, field.name) is True]


def hunt(draw: Callable[[int], Scenario], number: int, minutes: float, way: Way) -> int:
    """Run scenarios from a number on until the time is over; how many have failed."""
    ran, failed, known = Counter(), Counter(), Counter()
    until = time.monotonic() + 60 * minutes

    while time.monotonic() < until:
        scenario = draw(number)
        number += 1
        failure = failure_of(scenario, way)
        cells = {"all", *dimensions(scenario)}
        ran.update(cells)
        if failure:
            failed.update(cells)
            known[failure[:60]] += 1
            if known[failure[:60]] <= 2:
                simple = simplest(scenario, failure, way)
                print(f"FAILED {number - 1}: {failure}\n  {simple!r}", flush=True)
        if number % 1000 == 0:
            print(f"{ran['all']} scenarios, {failed['all']} failed, at {number}", flush=True)
    for name, count in sorted(ran.items()):
        print(f"{count:7} {failed[name]:5}  {name}")
    for failure, count in known.most_common():
        print(f"{count:5} x {failure}")
    return failed["all"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shrink-secs", type=float, default=60)
    parser.add_argument("--replay", help="a scenario, as it was printed")
    parser.add_argument("--races", action="store_true", help="let threads take turns very often")
    parser.add_argument("--tries", type=int, default=1, help="runs of each scenario")
    parser.add_argument("--array-library", choices=["numpy", *MODES], default="numpy")
    parser.add_argument("--replay-steps", action="store_true", help="leave out model_fn in some")
    parser.add_argument("--interrupted", action="store_true", help="compare with a single run")
    options = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.CRITICAL)
    warnings.simplefilter("error")
    if options.races:
        sys.setswitchinterval(SWITCH_SECS_OF_RACES)
    mode = MODES.get(options.array_library, nullcontext)
    how = check_interrupted if options.interrupted else check
    way = Way(options.tries, mode, options.shrink_secs, how)
    if options.replay is not None:
        return replay(eval(options.replay), way)

    def draw(number: int) -> Scenario:
        scenario = s.scenario_of(number)
        if options.replay_steps:
            scenario = s.replayed(scenario)
        if options.interrupted:
            scenario = s.interrupted(scenario)
        # Masks of dropout that cards draw are their own.
        return scenario if mode is nullcontext else replace(scenario, dropout=False)

    return min(1, hunt(draw, options.seed, options.minutes, way))


def replay(scenario: Scenario, way: Way) -> int:
    """Run one scenario; say what goes wrong, and what the failure does not need."""
    failure = failure_of(scenario, way, tells=True)
    if failure:
        print(simplest(scenario, failure, way))
        return 1
    print("passes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
