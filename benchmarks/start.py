"""What it costs a task to come together with the others under RING, and what it holds afterwards.

    python benchmarks/start.py [--sizes 2 4 8 16 32 64] [--sum-bytes 65536] [--idle-secs 5]

All tasks run on this machine: they import paceline, start together, add up a short and a long
array, stay idle for a while and end. Printed are medians and the largest value over the tasks:

    come in   processor milliseconds of a task from its call until all were there
    wall      seconds from the first call until the last was in
    sums      processor milliseconds for the first sums, with the links that they need
    idle      processor milliseconds a second while nothing is to be done (heartbeats)
    end       processor milliseconds to close
    threads, descriptors, MiB   what the task holds beyond what it held before it came in
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FIGURES = ("come in", "sums", "idle", "end", "threads", "descriptors", "MiB")


def measure(size: int, sum_bytes: int, idle_secs: float) -> list[dict[str, float]]:
    """The figures of each task of a job of so many."""
    from paceline.cluster import free_ports

    addresses = [f"127.0.0.1:{port}" for port in free_ports(size)]
    told = json.dumps({"addresses": addresses, "bytes": sum_bytes, "idle_secs": idle_secs})
    tasks = [
        subprocess.Popen(
            [sys.executable, __file__, "--task", str(rank)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    for task in tasks:  # they have imported everything when they say so
        assert task.stdout is not None
        task.stdout.readline()
    for task in tasks:
        assert task.stdin is not None
        task.stdin.write(told + "\n")
        task.stdin.flush()
    figures = []
    for task in tasks:
        out, _ = task.communicate(timeout=600)
        if task.returncode:
            raise RuntimeError(f"a task of {size} has failed")
        figures.append(json.loads(out))
    return figures


def held() -> tuple[int, int, float]:
    """Threads, file descriptors and resident MiB of this process."""
    status = Path("/proc/self/status").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in status)
    num_descriptors = len(list(Path("/proc/self/fd").iterdir()))
    return int(facts["Threads"]), num_descriptors, int(facts["VmRSS"].split()[0]) / 1024


class Stopwatch:
    """Milliseconds of processor time since it was last asked."""

    def __init__(self) -> None:
        self._since = time.process_time()

    def lap(self) -> float:
        since, self._since = self._since, time.process_time()
        return 1000 * (self._since - since)


def run_task(rank: int) -> None:
    """One task: waits for its orders, does what is to be measured and prints the figures."""
    import grpc  # noqa: F401  (not what is to be measured)
    import numpy as np

    from paceline.collectives import Member
    from paceline.collectives.session import connect_ring

    print("ready", flush=True)
    told = json.loads(sys.stdin.readline())
    members = [Member(i, f"worker {i}", a) for i, a in enumerate(told["addresses"])]
    before, watch, began = held(), Stopwatch(), time.time()
    ring = connect_ring(members, rank, job_id="start", token="of a benchmark")
    figures = {"come in": watch.lap(), "began": began, "in": time.time()}
    for num_bytes in (4096, told["bytes"]):
        array = np.ones(num_bytes // 4, np.float32)
        ring.all_reduce(array, f"{num_bytes} bytes")
        assert (array == len(members)).all()
    figures["sums"] = watch.lap()
    time.sleep(told["idle_secs"])
    figures["idle"] = watch.lap() / told["idle_secs"]
    holds = (now - was for now, was in zip(held(), before, strict=True))
    figures |= zip(("threads", "descriptors", "MiB"), holds, strict=True)
    ring.barrier("all have looked")
    watch.lap()
    ring.close()
    print(json.dumps(figures | {"end": watch.lap()}))


def report(sizes: Sequence[int], sum_bytes: int, idle_secs: float) -> None:
    """Measure jobs of these sizes, and print a line for each."""
    print(f"{'tasks':>5} {'wall':>6}", *(f"{name:>16}" for name in FIGURES))
    for size in sizes:
        tasks = measure(size, sum_bytes, idle_secs)
        wall = max(task["in"] for task in tasks) - min(task["began"] for task in tasks)
        cells = []
        for name in FIGURES:
            values = [task[name] for task in tasks]
            cells.append(f"{statistics.median(values):8.1f} {max(values):7.1f}")
        print(f"{size:5} {wall:6.2f}", *cells, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[2, 4, 8, 16, 32, 64])
    parser.add_argument("--sum-bytes", type=int, default=64 << 10)
    parser.add_argument("--idle-secs", type=float, default=5.0)
    parser.add_argument("--task", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.task is not None:
        run_task(arguments.task)
    else:
        report(arguments.sizes, arguments.sum_bytes, arguments.idle_secs)


if __name__ == "__main__":
    main()
