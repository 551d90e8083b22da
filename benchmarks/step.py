"""Milliseconds of one training step, side by side in one run on the same work.

    python benchmarks/step.py [--rounds 20] [--steps 25] [--models cnn mlp mlp-large mlp-tiny]
        [--peers PYTHON] [--before PYTHON] [--ways hand estimator …]

hand        plain NumPy written by hand for the one model, see handwritten.py
parts       the same model from autodiff + nn + optimizer, in a loop of one's own
estimator   the same through Estimator.train, its Dataset included
fit         the same through Model.fit, its Dataset included; fit-logs: with logs of each batch read
torch, jax  the same in PyTorch (eager) and JAX (jitted, buffers donated), by the interpreter that
            --peers names: `python -m venv peers && peers/bin/pip install torch jax`
fast …      parts, estimator and fit with the compiled loops of paceline[fast], where numba is
            installed; all others do without them
before …    all ways of another paceline, by the interpreter that --before names
replayed    "estimator" with RunConfig(replay_steps=True): model_fn is called no more
replicas    MirroredStrategy(["CPU:0", "CPU:1"]) on two cores, a batch of the usual size for each:
            compare with "estimator". replayed-replicas: the same replayed
hand-replicas   the same by hand, two threads

All take batches by shuffled index from the same arrays, in float32, on one core, with one thread;
each is a process of its own, and they take turns. Medians and minima over all steps; "cpu" is the
processor time of a step, of all threads. Ratios are medians over the rounds; where neighbours are
busy, those of processor time tell more.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np
from turns import Times, serve, take_turns
from workloads import WORKLOADS, Data, Loop

SCRIPT = Path(__file__)
WAYS = {
    "hand": "handwritten:make_loop",
    "parts": "paceline_steps:parts",
    "estimator": "paceline_steps:estimator",
    "replayed": "paceline_steps:replayed",
    "fit": "paceline_steps:fit",
    "fit-logs": "paceline_steps:fit_with_logs",
    "hand-replicas": "handwritten:make_loop_of_replicas",
    "replicas": "paceline_steps:replicas",
    "replayed-replicas": "paceline_steps:replayed_replicas",
    "torch": "torch_steps:make_loop",
    "jax": "jax_steps:make_loop",
}
ON_ALL_CORES = ("hand-replicas", "replicas", "replayed-replicas")
PEERS = ("torch", "jax")
USUAL = ("hand", "parts", "estimator", "replayed", "fit", *PEERS)
FAST, BEFORE = "fast ", "before "


def make_loop(way: str, model: str) -> Loop:
    """The loop of a way to train; raises ImportError where its library is missing."""
    module, _, function = WAYS[way].partition(":")
    return getattr(import_module(module), function)(model, Data(WORKLOADS[model]))


def serve_way(way: str, model: str, core: int | None, fast: bool) -> None:
    """Be the process of one variant."""
    if WAYS[way].startswith("paceline") and not fast:
        sys.modules["numba"] = None  # type: ignore[assignment]  # as if it were not installed
    logging.getLogger("paceline").setLevel(logging.ERROR)  # it warns of calls that end early
    serve(lambda: make_loop(way, model), core)


def commands(args: argparse.Namespace, model: str) -> dict[str, list[str | Path]]:
    """What starts each variant."""
    lines: dict[str, list[str | Path]] = {}
    for way in args.ways:
        python = args.peers if way in PEERS else sys.executable
        core = [] if way in ON_ALL_CORES else ["--core", str(args.core)]
        lines[way] = [python, SCRIPT, "--serve", way, "--models", model, *core]
        if WAYS[way].startswith("paceline"):
            if find_spec("numba"):
                lines[FAST + way] = [*lines[way], "--fast"]
            if args.before:
                lines[BEFORE + way] = [args.before, *lines[way][1:]]
    return lines


def report(model: str, found: Mapping[str, Times]) -> str:
    """A line for each variant; ratios to the first one, and of the Estimator to it."""
    base = next(iter(found))
    heads = f"{'median ms':>13}{'min':>13}{'cpu':>13}{'by ' + base:>13}{'cpu by it':>13}"
    lines = [f"{model:18}{heads}{'estimator by it':>17}{'peak MiB':>11}"]
    for name, times in found.items():
        ratio = found["estimator"].ratio_to(times) if "estimator" in found else np.nan
        ms = "".join(f"{each:13.4f}" for each in (times.median_ms, times.min_ms, times.cpu_ms))
        by = f"{times.ratio_to(found[base]):13.3f}{times.cpu_ratio_to(found[base]):13.3f}"
        lines.append(f"{name:18}{ms}{by}{ratio:17.3f}{times.peak_mib:11.1f}")
    return "\n".join([*lines, *costs(found)])


def costs(found: Mapping[str, Times]) -> list[str]:
    """What the Estimator adds to the bare parts, in one line, now and before."""
    said = []
    for prefix in ("", FAST, BEFORE):
        if {prefix + "parts", prefix + "estimator"} <= found.keys():
            parts, whole = found[prefix + "parts"], found[prefix + "estimator"]
            added = 1e3 * (whole.median_ms - parts.median_ms)
            said.append(
                f"{prefix}{added:.0f} µs (minima: {1e3 * (whole.min_ms - parts.min_ms):.0f})"
            )
    return [f"framework over bare parts: {', '.join(said)}"] if said else []


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=25, help="steps per round and variant")
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=USUAL)
    parser.add_argument("--peers", default=sys.executable, help="interpreter with torch and jax")
    parser.add_argument("--before", help="interpreter with another paceline")
    parser.add_argument("--core", type=int, help="on which all run but the replicas")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--fast", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> None:
    args = parse(arguments)
    if args.serve:
        serve_way(args.serve, *args.models, args.core, args.fast)
        return
    if args.core is None:
        args.core = max(os.sched_getaffinity(0))
    print(environment.describe(malloc_tuned=True))
    for model in args.models:
        found = take_turns(commands(args, model), args.rounds, args.steps)
        print(f"\n{report(model, found)}", flush=True)


if __name__ == "__main__":
    main()
