"""The most memory that a process of an example takes, here and with another paceline.

    python benchmarks/memory.py [--before PYTHON] [--rounds 3] [--jobs digits fit …]

Of a job of several processes it is the largest of them. Rounds alternate between the interpreters;
medians in MiB, and the time that the whole job took.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
LAUNCH = ("-m", "paceline", "launch", "--workers", "2")
# What stands before an example, and behind it.
JOBS: dict[str, tuple[tuple[str, ...], str, tuple[str, ...]]] = {
    "digits": ((), "digits.py", ("--steps", "200", "--replicas", "1")),
    "digits, 2 replicas": ((), "digits.py", ("--steps", "200", "--replicas", "2")),
    "digits, 2 workers": (LAUNCH, "digits.py", ("--steps", "200", "--replicas", "1")),
    "digits, 1 ps": ((*LAUNCH, "--ps", "1"), "digits.py", ("--steps", "200", "--replicas", "1")),
    "fit": ((), "fit.py", ("--epochs", "5")),
    "custom_loop": ((), "custom_loop.py", ("--epochs", "5")),
    "residual": ((), "residual.py", ("--steps", "40")),
    "gan": ((), "gan.py", ("--rounds", "200")),
    "recommender": ((), "recommender.py", ("--steps", "300")),
    "recommender, 2 ps": ((*LAUNCH, "--ps", "2"), "recommender.py", ("--steps", "300")),
}


def run(python: str, job: str) -> tuple[float, float]:
    """Peak MiB of the largest process, and seconds."""
    before, example, behind = JOBS[job]
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            [python, *before, str(EXAMPLES / example), *behind],
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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--before", help="interpreter with another paceline")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    args = parser.parse_args()
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
