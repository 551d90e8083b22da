"""How many Python calls a training step makes, and in which files.

    python benchmarks/profile_step.py [--models cnn mlp] [--ways estimator] [--functions 20]

Steps are watched by cProfile, in the thread that makes them, after some that warm up. "python"
counts calls of functions written in Python, "C" those of built-in functions and methods (ufuncs of
NumPy are none of them). Calls repeat exactly from run to run; the microseconds are those under the
profiler, which slows Python down: read them as shares.
"""

from __future__ import annotations

import argparse
import cProfile
import logging
import os
import pstats
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import paceline_steps
from workloads import WORKLOADS, Data, Loop

import paceline as pl

OUTSIDE = "(the loops around the steps)"
WAYS: dict[str, Callable[[str, Data], Loop]] = {
    "parts": paceline_steps.parts,
    "estimator": paceline_steps.estimator,
    "replayed": paceline_steps.replayed,
    "fit": paceline_steps.fit,
}


@dataclass
class Calls:
    """What one step calls, on average."""

    python: float = 0
    c: float = 0
    own_us: float = 0

    def add(self, name: str, calls: float, own_us: float) -> None:
        if name == "~":  # cProfile's name for what is built in
            self.c += calls
        else:
            self.python += calls
        self.own_us += own_us


def profile(loop: Loop, num_steps: int, num_before: int = 10) -> pstats.Stats:
    """The statistics of `num_steps` steps, behind `num_before` that are not watched."""
    profiler = cProfile.Profile()
    num_made = 0

    def after_step() -> None:
        nonlocal num_made
        num_made += 1
        if num_made == num_before:
            profiler.enable()
        elif num_made == num_before + num_steps:
            profiler.disable()

    loop(num_before + num_steps, after_step)
    return pstats.Stats(profiler)


def by_file(stats: pstats.Stats, num_steps: int) -> dict[str, Calls]:
    """Calls of a step by the file of the function; built-in ones by the file of the caller."""
    files: dict[str, Calls] = defaultdict(Calls)
    for (file, _, _), (_, calls, own_secs, _, callers) in stats.stats.items():
        if file != "~":
            files[short(file)].add(file, calls / num_steps, 1e6 * own_secs / num_steps)
            continue
        for (caller, _, _), (_, of_it, its_secs, _) in callers.items():
            files[short(caller)].add(file, of_it / num_steps, 1e6 * its_secs / num_steps)
            calls, own_secs = calls - of_it, own_secs - its_secs
        if calls:  # by functions that were running when the profile began
            files[OUTSIDE].add(file, calls / num_steps, 1e6 * own_secs / num_steps)
    return files


def short(file: str) -> str:
    """From the package's folder on, or with the last folder for what is none of ours."""
    path = Path(file)
    package = Path(pl.__file__).parent
    if path.is_relative_to(package):
        return str(path.relative_to(package))
    return "/".join(path.parts[-2:])


def print_files(way: str, model: str, files: dict[str, Calls], most: int) -> None:
    total = Calls()
    for calls in files.values():
        total.python += calls.python
        total.c += calls.c
        total.own_us += calls.own_us
    print(f"\n{model}, {way}: {total.python:.0f} Python calls a step, {total.c:.0f} of C")
    print(f"{'python':>8} {'C':>7} {'own µs':>8}  file")
    ordered = sorted(files.items(), key=lambda item: -(item[1].python + item[1].c))
    for file, calls in ordered[:most]:
        print(f"{calls.python:8.1f} {calls.c:7.1f} {calls.own_us:8.1f}  {file}")


def print_functions(stats: pstats.Stats, num_steps: int, most: int) -> None:
    """The functions called most."""
    print(f"{'calls':>8} {'own µs':>8}  function")
    ordered = sorted(stats.stats.items(), key=lambda item: -item[1][1])
    for (file, line, function), (_, calls, own_secs, _, _) in ordered[:most]:
        where = function if file == "~" else f"{short(file)}:{line}:{function}"
        print(f"{calls / num_steps:8.1f} {1e6 * own_secs / num_steps:8.1f}  {where}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--files", type=int, default=30, help="that are shown, of each")
    parser.add_argument("--functions", type=int, default=0, help="that are shown, of each")
    args = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.WARNING)
    for model in args.models:
        for way in args.ways:
            stats = profile(WAYS[way](model, Data(WORKLOADS[model])), args.steps)
            print_files(way, model, by_file(stats, args.steps), args.files)
            if args.functions:
                print_functions(stats, args.steps, args.functions)


if __name__ == "__main__":
    main()
