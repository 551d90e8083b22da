"""What a training step costs when another thread, or another process, trains beside it.

    python benchmarks/threads.py [--rounds 5] [--steps 200] [--models cnn …] [--ways hand parts]

Each has a model and data of its own, and a core: nobody waits for anybody but at the start. So what
two processes cost is the machine's (memory, caches, clock), and what two threads cost beyond that
is Python's: the GIL where there is one, objects that threads share where there is none.
Ways as in step.py. Rounds take turns. "ms" is the mean step by the clock without what the system
let it wait for its core, so that neighbours count little and the GIL counts; "cpu ms" is the mean
of processor time. Where neighbours keep two threads from ever running at the same time the GIL
costs nothing: use a quiet machine to see it. Linux only.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, TypeAlias

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np
from step import make_loop
from workloads import WORKLOADS

from paceline.cluster import tune_malloc

Marks: TypeAlias = list[tuple[float, float]]
"""Behind each step: the time less what was waited for the core, and the processor time."""
WARM_UP = 20
BESIDE = ("alone", "two processes", "two threads")


def train(args: argparse.Namespace, way: str, model: str, index: int, start: Any) -> Marks:
    """Make steps on the core of this number, from the moment in which all are ready."""
    cores = sorted(os.sched_getaffinity(os.getpid()))
    os.sched_setaffinity(threading.get_native_id(), {cores[index]})
    loop, marks = make_loop(way, model), []
    loop(WARM_UP, lambda: None)
    start.wait()
    with open("/proc/thread-self/schedstat", "rb", buffering=0) as statistics:

        def after_step() -> None:
            statistics.seek(0)
            waited = int(statistics.read(64).split()[1]) / 1e9
            marks.append((time.perf_counter() - waited, time.thread_time()))

        loop(args.steps + 1, after_step)
    return marks


def in_process(queue: Any, *arguments: Any) -> None:
    tune_malloc()
    queue.put(train(*arguments))


def measure(beside: str, *arguments: Any) -> list[Marks]:
    """The marks of all who train, in processes or threads that end with it."""
    num = 1 if beside == "alone" else 2
    if beside == "two threads":
        found: list[Marks] = []
        start: Any = threading.Barrier(num)
        several: list[Any] = [
            threading.Thread(target=lambda i=i: found.append(train(*arguments, i, start)))
            for i in range(num)
        ]
    else:
        context = multiprocessing.get_context("fork")
        start, queue = context.Barrier(num), context.Queue()
        several = [
            context.Process(target=in_process, args=(queue, *arguments, i, start))
            for i in range(num)
        ]
    for one in several:
        one.start()
    if beside != "two threads":
        found = [queue.get() for _ in several]
    for one in several:
        one.join()
    return found


def mean_ms(rounds: Sequence[Marks]) -> np.ndarray:
    """Of a step: by the clock less what was waited for the core, and of processor time."""
    steps = np.concatenate([np.diff(marks, axis=0) for marks in rounds])
    return 1e3 * np.mean(steps, axis=0)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=WORKLOADS, default=["cnn", "mlp-tiny"])
    parser.add_argument("--ways", nargs="+", choices=("hand", "parts"), default=["hand", "parts"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=200, help="steps per round")
    args = parser.parse_args()
    sys.modules["numba"] = None  # type: ignore[assignment]  # as if it were not installed
    print(environment.describe(tune_malloc()))
    has_gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    print(f"the GIL is {'on' if has_gil else 'off'}")
    for model in args.models:
        for way in args.ways:
            found: dict[str, list[Marks]] = {beside: [] for beside in BESIDE}
            for _ in range(args.rounds):
                for beside in BESIDE:
                    found[beside] += measure(beside, args, way, model)
            alone = mean_ms(found["alone"])
            print(f"\n{model} {way:12}{'ms':>9}{'cpu ms':>9}{'by alone':>10}{'cpu by it':>11}")
            for beside, rounds in found.items():
                ms, cpu = mean_ms(rounds)
                by, cpu_by = ms / alone[0], cpu / alone[1]
                print(f"{beside:16}{ms:9.3f}{cpu:9.3f}{by:10.2f}{cpu_by:11.2f}", flush=True)


if __name__ == "__main__":
    main()
