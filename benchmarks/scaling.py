"""Weak scaling of the tutorial CNN from one worker to two, each of one core, in one run.

    python benchmarks/scaling.py [--rounds 12] [--steps 40] [--options usual]

hand        the fused loop of handwritten.py; two of it average their weights by MPI.Allreduce after
            each step, which for plain SGD is the same as averaging gradients
estimator   Estimator.train under MultiWorkerMirroredStrategy over MPI, and over RING; also with
            each gradient travelling on its own (no fusion), and with packs that do or do not travel
            while backward goes on (overlap; by default only where each worker has two cores)

Efficiency is the time of a step of one worker alone, with the other core idle, by the time of a
step of two, with 64 examples for each worker. "apart" is the same loop twice without a word between
them: what the machine's memory leaves of two cores. Rounds alternate between the variants, so that
a noisy neighbour troubles all. Medians; "by hand" is a step by one of "hand, alone" or "hand, MPI".
"""

from __future__ import annotations

import argparse
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import handwritten
import numpy as np
import paceline_steps
from workloads import WORKLOADS, Data, Loop, loop_of, measure

import paceline as pl
from paceline.cluster import SimpleClusterResolver, free_ports, tune_malloc

MODEL = "cnn"
OPTIONS: dict[str, dict[str, Any]] = {
    "usual": {},
    "no fusion": {"bytes_per_pack": 1},
    "overlap": {"overlap": True},
    "no overlap": {"overlap": False},
}


def hand_alone(data: Data) -> Loop:
    return handwritten.make_loop(MODEL, data)


def hand_together(data: Data) -> Loop:
    from mpi4py import MPI

    train = handwritten.HandwrittenCnn(handwritten.cnn_params())

    def step(x: np.ndarray, y: np.ndarray) -> None:
        train(x, y)
        for weights in train.params.values():
            MPI.COMM_WORLD.Allreduce(MPI.IN_PLACE, weights, MPI.SUM)
            weights *= np.float32(0.5)

    return loop_of(step, data)


def estimator(data: Data, directory: Path, strategy: pl.Strategy) -> Loop:
    return paceline_steps.estimator(MODEL, data, directory, pl.RunConfig(train_distribute=strategy))


def strategies(rank: int, ports: list[int], wanted: list[str]) -> dict[str, pl.Strategy]:
    """One for a worker that is alone, and one for each way of talking."""
    itself = SimpleClusterResolver({"worker": ["127.0.0.1:1"]}, task_type="worker", task_id=0)
    made: dict[str, pl.Strategy] = {
        "alone": pl.MultiWorkerMirroredStrategy(cluster_resolver=itself)
    }
    for how in wanted:
        for name in ("MPI", "RING"):
            options = pl.CommunicationOptions(implementation=name, **OPTIONS[how])
            workers = [f"127.0.0.1:{ports.pop()}" for _ in range(2)]
            resolver = SimpleClusterResolver({"worker": workers}, task_type="worker", task_id=rank)
            made[name if how == "usual" else f"{name}, {how}"] = pl.MultiWorkerMirroredStrategy(
                cluster_resolver=resolver, communication_options=options
            )
    return made


def idle_until_all_are_here() -> None:
    """A barrier that leaves its core to others, unlike MPI's."""
    from mpi4py import MPI

    barrier = MPI.COMM_WORLD.Ibarrier()
    while not barrier.Test():
        time.sleep(0.002)


def take_turns(
    variants: Mapping[str, Loop], rank: int, rounds: int, num_steps: int
) -> dict[str, list[float]]:
    """The median milliseconds of a step of each variant; those named "alone" run on rank 0."""
    rows: dict[str, list[float]] = {name: [] for name in variants}
    for round_index in range(rounds + 1):
        for name, variant in variants.items():
            idle_until_all_are_here()
            if rank == 0 or "alone" not in name:
                times, _ = measure(variant, num_steps)
                if round_index > 0:  # the first round warms up
                    rows[name] += times
            idle_until_all_are_here()
    return {name: 1e3 * float(np.median(times or [np.nan])) for name, times in rows.items()}


def report(ms: Mapping[str, float]) -> str:
    lines = [f"{'':28} {'ms a step':>10} {'efficiency':>11} {'by hand':>8}"]
    for name, duration in ms.items():
        efficiency = ms[f"{name.split(',')[0]}, alone"] / duration
        same = ms["hand, alone" if "alone" in name else "hand, MPI"]
        lines.append(f"{name:28} {duration:10.2f} {efficiency:11.2f} {duration / same:8.2f}")
    return "\n".join(lines)


def run_rank(args: argparse.Namespace) -> None:
    from mpi4py import MPI

    rank = MPI.COMM_WORLD.rank
    logging.getLogger("paceline").setLevel(logging.ERROR)  # it warns of calls that end early
    tuned = tune_malloc()
    data = Data(WORKLOADS[MODEL])
    directory = Path(args.directory)
    hand: dict[str, Callable[[Data], Loop]] = {
        "hand, alone": hand_alone,
        "hand, apart": hand_alone,
        "hand, MPI": hand_together,
    }
    variants = {name: make(data) for name, make in hand.items()}
    for name, strategy in strategies(rank, args.ports, args.options).items():
        variants[f"estimator, {name}"] = estimator(data, directory / name, strategy)
    if rank == 0:
        print(environment.describe(tuned), flush=True)
    ms = take_turns(variants, rank, args.rounds, args.steps)
    if rank == 0:
        print(f"\n{report(ms)}")


def start_ranks() -> int:
    """Start this script as the two ranks of the mpiexec beside the interpreter."""
    mpiexec = Path(sys.executable).parent / "mpiexec"
    if not mpiexec.exists():
        raise SystemExit(f"no {mpiexec}; pip install 'paceline[mpich]'")
    ports = [str(port) for port in free_ports(4 * len(OPTIONS))]
    with tempfile.TemporaryDirectory() as directory:
        shared = ["--directory", directory, "--ports", *ports]
        script = [__file__, *sys.argv[1:], *shared]
        return subprocess.call([mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", *script])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--steps", type=int, default=40, help="steps per round and variant")
    parser.add_argument("--options", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    parser.add_argument("--ports", type=int, nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.ports:
        run_rank(args)
    else:
        sys.exit(start_ranks())


if __name__ == "__main__":
    main()
