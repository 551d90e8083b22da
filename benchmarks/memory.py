"""The most memory that a process takes which trains, here and with another paceline.

    python benchmarks/memory.py [--before PYTHON] [--rounds 3] [--jobs digits fit …]

Jobs are examples, and four steps by the Estimator of a model of 122 MiB of weights, which shows how
many copies of them there are. Of a job of several processes it is the largest of them. Rounds
alternate between the interpreters; medians in MiB, and the time that the whole job took.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

SCRIPT = Path(__file__).resolve()
EXAMPLES = SCRIPT.parents[1] / "examples"
LAUNCH = ("-m", "paceline", "launch", "--workers", "2")
# What stands before a script, and behind it.
JOBS: dict[str, tuple[tuple[str, ...], Path, tuple[str, ...]]] = {
    "122 MiB, SGD": ((), SCRIPT, ("--train", "SGD")),
    "122 MiB, Adam": ((), SCRIPT, ("--train", "Adam")),
    "122 MiB, 2 replicas": ((), SCRIPT, ("--train", "Adam", "CPU:0", "CPU:1")),
    "digits": ((), EXAMPLES / "digits.py", ("--steps", "200", "--replicas", "1")),
    "digits, 2 replicas": ((), EXAMPLES / "digits.py", ("--steps", "200", "--replicas", "2")),
    "digits, 2 workers": (LAUNCH, EXAMPLES / "digits.py", ("--steps", "200", "--replicas", "1")),
    "digits, 1 ps": ((*LAUNCH, "--ps", "1"), EXAMPLES / "digits.py", ("--steps", "200")),
    "fit": ((), EXAMPLES / "fit.py", ("--epochs", "5")),
    "custom_loop": ((), EXAMPLES / "custom_loop.py", ("--epochs", "5")),
    "residual": ((), EXAMPLES / "residual.py", ("--steps", "40")),
    "gan": ((), EXAMPLES / "gan.py", ("--rounds", "200")),
    "recommender": ((), EXAMPLES / "recommender.py", ("--steps", "300")),
    "recommender, 2 ps": ((*LAUNCH, "--ps", "2"), EXAMPLES / "recommender.py", ("--steps", "300")),
}


def run(python: str, job: str) -> tuple[float, float]:
    """Peak MiB of the largest process, and seconds."""
    before, script, behind = JOBS[job]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [python, *before, str(script), *behind],
            cwd=directory,
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            stdout=output,
            stderr=output,
        )
        # Of the process and of those that it has waited for. (It begins with what this one has,
        # which therefore imports no NumPy.)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            raise SystemExit(f"{job} failed with {python}:\n{output.read().decode()}")
    return usage.ru_maxrss / 1024, time.perf_counter() - start


def train(optimizer: str, devices: Sequence[str]) -> None:
    """Four steps of a large model, in this process."""
    sys.modules["numba"] = None  # type: ignore[assignment]  # 100 MiB, whatever the model is
    import numpy as np

    import paceline as pl
    from paceline.nn import Sequential, layers, losses, optimizers

    x, y = np.ones((64, 1000), np.float32), np.zeros(64, np.int64)

    def model_fn(features, labels, mode):
        hidden = [layers.Dense(n, activation="relu") for n in (8000, 3000)]
        logits = Sequential([*hidden, layers.Dense(10)])(features, training=True)
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)
        rule = getattr(optimizers, optimizer)(0.01)
        return pl.EstimatorSpec(mode, loss=loss, train_op=rule.minimize(loss))

    config = pl.RunConfig(train_distribute=pl.MirroredStrategy(devices or ["CPU:0"]))
    pl.Estimator(model_fn, "model", config).train(
        lambda: pl.Dataset.from_tensor_slices((x, y)).repeat().batch(8), steps=4
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--before", help="interpreter with another paceline")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--train", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.train[0], args.train[1:])
        return
    pythons = {"now": sys.executable} | ({"before": args.before} if args.before else {})
    print(f"{'':20}" + "".join(f"{name + ' MiB':>12}{'s':>7}" for name in pythons), end="")
    print("  now by before" if args.before else "")
    for job in args.jobs:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in pythons}
        for _ in range(args.rounds):
            for name, python in pythons.items():
                found[name].append(run(python, job))
        mib = {name: statistics.median(m for m, _ in each) for name, each in found.items()}
        line = f"{job:20}"
        for name, each in found.items():
            line += f"{mib[name]:12.1f}{statistics.median(secs for _, secs in each):7.1f}"
        print(line + (f"{mib['now'] / mib['before']:15.3f}" if args.before else ""), flush=True)


if __name__ == "__main__":
    main()
