"""Examples a second from a dataset in memory, side by side in one run on the same work.

    python benchmarks/input.py [--rounds 7] [--examples 20000] [--only gather batches …]

gather        plain NumPy: `x[order[i : i + 64]]` over a permutation, which is the limit
take          the same by `np.take` into one buffer that is used again
batches       our Dataset: shuffle, repeat, batch
loader        PyTorch's DataLoader over a TensorDataset, where it is installed
tf.data       TensorFlow's shuffle and batch, where it is installed
grain         Grain's MapDataset without threads, where it is installed
scaled        ours on uint8 images, with a function of batches that casts and scales
per element   ours with a Python function of each element
loader map    the DataLoader with the same function of each element
tf.data map   TensorFlow with that function of each element, as a graph
threads       ours with that function in two threads

Float32 (or uint8) images of 28×28×1 and int64 labels, in shuffled batches of 64. Below the table:
what a large shuffled dataset costs to save and resume, how well prefetching hides a producer that
takes 0.8 of the step, and how the automatic depth compares with fixed ones where the producer is
uneven. `--memory-map` reads a file by mapping it; of its memory the anonymous part is what the
process needs, the rest is the system's cache of the file, which it takes back as it likes.

Rounds alternate between the variants, so that a noisy neighbour troubles all. Medians. One BLAS
thread.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np

import paceline as pl
from paceline.cluster import tune_malloc

BATCH = 64
SHAPE = (28, 28, 1)

PER_ELEMENT = ("per element", "threads", "loader map", "tf.data map")

Variant = Callable[[], Iterable[Any]]
"""`variant()` starts a pass over all examples, as batches."""


class Data:
    """Images as float32 and as bytes, with their labels."""

    def __init__(self, num_examples: int) -> None:
        rng = np.random.default_rng(0)
        self.bytes = rng.integers(0, 256, (num_examples, *SHAPE), np.uint8)
        self.floats = self.bytes.astype(np.float32)
        self.labels = rng.integers(0, 10, num_examples)
        self.rng = rng


def scale(images: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What the tutorial does to its images, one or many."""
    return images.astype(np.float32) / np.float32(255), labels


def numpy_variants(data: Data) -> dict[str, Variant]:
    x, y = data.floats, data.labels
    images, labels = np.empty((BATCH, *SHAPE), np.float32), np.empty(BATCH, np.int64)

    def gather() -> Iterable[Any]:
        order = data.rng.permutation(len(x))
        for i in range(0, len(x), BATCH):
            rows = order[i : i + BATCH]
            yield x[rows], y[rows]

    def take() -> Iterable[Any]:
        order = data.rng.permutation(len(x))
        for i in range(0, len(x), BATCH):
            rows = order[i : i + BATCH]
            yield (
                x.take(rows, 0, images[: len(rows)], "clip"),
                y.take(rows, 0, labels[: len(rows)], "clip"),
            )

    return {"gather": gather, "take": take}


def our_variants(data: Data) -> dict[str, Variant]:
    n = len(data.labels)
    floats = pl.Dataset.from_tensor_slices((data.floats, data.labels)).shuffle(n)
    of_bytes = pl.Dataset.from_tensor_slices((data.bytes, data.labels)).shuffle(n)
    return {
        "batches": floats.repeat(1).batch(BATCH).__iter__,
        "scaled": of_bytes.batch(BATCH).map(scale).__iter__,
        "per element": of_bytes.map(scale).batch(BATCH).__iter__,
        "threads": of_bytes.map(scale, num_parallel_calls=2).batch(BATCH).__iter__,
    }


def torch_variants(data: Data) -> dict[str, Variant]:
    try:
        import torch
        from torch.utils.data import DataLoader, Dataset, TensorDataset
    except ImportError:
        return {}
    torch.set_num_threads(1)

    class Scaled(Dataset):
        def __init__(self) -> None:
            self.x, self.y = torch.from_numpy(data.bytes), torch.from_numpy(data.labels)

        def __len__(self) -> int:
            return len(self.y)

        def __getitem__(self, index: int) -> Any:
            return self.x[index].to(torch.float32) / 255, self.y[index]

    plain = TensorDataset(torch.from_numpy(data.floats), torch.from_numpy(data.labels))
    return {
        "loader": DataLoader(plain, BATCH, shuffle=True).__iter__,
        "loader map": DataLoader(Scaled(), BATCH, shuffle=True).__iter__,
    }


def tensorflow_variants(data: Data) -> dict[str, Variant]:
    try:
        import tensorflow as tf
    except ImportError:
        return {}
    tf.config.threading.set_intra_op_parallelism_threads(1)
    n = len(data.labels)

    def tf_scale(image: Any, label: Any) -> Any:
        return tf.cast(image, tf.float32) / 255, label

    floats = tf.data.Dataset.from_tensor_slices((data.floats, data.labels))
    of_bytes = tf.data.Dataset.from_tensor_slices((data.bytes, data.labels))
    return {
        "tf.data": floats.shuffle(n).batch(BATCH).as_numpy_iterator,
        "tf.data map": of_bytes.shuffle(n).map(tf_scale).batch(BATCH).as_numpy_iterator,
    }


def grain_variants(data: Data) -> dict[str, Variant]:
    try:
        import grain.python as grain
    except ImportError:
        return {}

    class Pairs:
        def __len__(self) -> int:
            return len(data.labels)

        def __getitem__(self, index: int) -> Any:
            return data.floats[index], data.labels[index]

    options = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    shuffled = grain.MapDataset.source(Pairs()).shuffle(seed=0)
    return {"grain": shuffled.to_iter_dataset(options).batch(BATCH).__iter__}


def all_variants(data: Data) -> dict[str, Variant]:
    makers = (numpy_variants, our_variants, torch_variants, tensorflow_variants, grain_variants)
    return {name: variant for make in makers for name, variant in make(data).items()}


def measure(variants: dict[str, Variant], num_examples: int, rounds: int) -> dict[str, float]:
    """Median examples a second of each variant."""
    speeds: dict[str, list[float]] = {name: [] for name in variants}
    for round_index in range(rounds + 1):
        for name, variant in variants.items():
            start = time.perf_counter()
            num_seen = sum(len(labels) for _, labels in variant())
            seconds = time.perf_counter() - start
            assert num_seen == num_examples, name
            if round_index > 0:  # the first round warms up
                speeds[name].append(num_examples / seconds)
    return {name: float(np.median(values)) for name, values in speeds.items()}


def report_speeds(speeds: dict[str, float]) -> None:
    print(f"\n{'':12} {'examples/s':>12} {'of gather':>10} {'of loader':>10}")
    for name, speed in speeds.items():
        of_gather = f"{speed / speeds['gather']:10.2f}" if "gather" in speeds else ""
        peer = "loader map" if name in PER_ELEMENT else "loader"
        of_loader = f"{speed / speeds[peer]:10.2f}" if peer in speeds else ""
        print(f"{name:12} {speed:12,.0f} {of_gather} {of_loader}", flush=True)


def report_state(num_examples: int = 10**8) -> None:
    """Saving and resuming in the midst of a shuffled dataset of that many elements."""
    dataset = pl.Dataset.range(num_examples).shuffle(num_examples).repeat().batch(BATCH)
    iterator = iter(dataset)
    state = iterator.get_state()
    state["elements"]["position"] = num_examples // BATCH // 2
    before = resident_bytes("RssAnon")
    start = time.perf_counter()
    iterator.set_state(state)
    middle = time.perf_counter()
    next(iterator)
    end = time.perf_counter()
    print(
        f"\n{num_examples:,} shuffled elements: state {len(json.dumps(state))} bytes, set_state "
        f"{1e3 * (middle - start):.2f} ms, next batch {1e3 * (end - middle):.2f} ms, memory "
        f"{(resident_bytes('RssAnon') - before) / 1e6:.1f} MB"
    )


def report_memory_map(directory: Path, num_bytes: int) -> None:
    """A shuffled epoch over a file."""
    path = directory / "paceline-benchmark.npy"
    num_rows = num_bytes // (int(np.prod(SHAPE)) * 4)
    shape = (num_rows, *SHAPE)
    rows = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    rows[:] = 1
    rows.flush()
    del rows
    try:
        before = resident_bytes("RssAnon"), resident_bytes("RssFile")
        peaks = before
        start = time.perf_counter()
        dataset = pl.inputs.npy_rows(path).shuffle(num_rows).batch(BATCH)
        for step, _ in enumerate(dataset):
            if step % 1000 == 0:
                now = resident_bytes("RssAnon"), resident_bytes("RssFile")
                peaks = max(peaks[0], now[0]), max(peaks[1], now[1])
        seconds = time.perf_counter() - start
        own, cached = ((peak - base) / 1e6 for peak, base in zip(peaks, before, strict=True))
        print(
            f"\n{num_bytes / 1e9:g} GB memory map, shuffled: {num_rows / seconds:,.0f} examples/s, "
            f"{own:.1f} MB of its own, {cached:.0f} MB of the file in the system's cache"
        )
    finally:
        path.unlink()


def resident_bytes(kind: str) -> int:
    """Memory of this process: `RssAnon`, which no file stands behind, or `RssFile`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) << 10
    return 0


def report_prefetch(step_secs: float = 0.01, num_steps: int = 60) -> None:
    """How long the consumer waits for a producer that takes 0.8 of its step."""

    def produce(index: Any) -> Any:
        time.sleep(0.8 * step_secs)
        return index

    waits = []
    batches = iter(pl.Dataset.range(num_steps).map(produce).prefetch())
    next(batches)
    while True:
        start = time.perf_counter()
        if next(batches, None) is None:
            break
        waits.append(time.perf_counter() - start)
        time.sleep(step_secs)
    print(f"\nprefetch of a producer of 0.8 steps: stall {100 * np.mean(waits) / step_secs:.1f} %")


UNEVEN = {
    "one in 8 takes 5 steps": [0.2] * 7 + [5],
    "one in 32 takes 16 steps": [0.3] * 31 + [16],
    "0.1 and 1.5 steps in turn": [0.1, 1.5],
}


def report_depths(step_secs: float = 0.002, num_steps: int = 256) -> None:
    """Steps at full speed, of all, behind `prefetch` of several depths (None: automatic)."""
    depths = (1, 2, 4, 8, 16, None)
    print(
        f"\n{'prefetch of an uneven producer':30}",
        *(f"{d or 'auto':>5}" for d in depths),
        "of best",
    )
    for name, pattern in UNEVEN.items():
        speeds = [speed_behind(depth, pattern, step_secs, num_steps) for depth in depths]
        ratio = speeds[-1] / max(speeds[:-1])
        print(f"{name:30}", *(f"{speed:5.2f}" for speed in speeds), f"{ratio:7.2f}", flush=True)


def speed_behind(
    depth: int | None, pattern: list[float], step_secs: float, num_steps: int
) -> float:
    """The share of the time in which the consumer does not wait for its producer."""

    def produce(index: Any) -> Any:
        time.sleep(step_secs * pattern[int(index) % len(pattern)])
        return index

    batches = iter(pl.Dataset.range(num_steps).map(produce).prefetch(depth))
    next(batches)
    start = time.perf_counter()
    for _ in batches:
        time.sleep(step_secs)
    return (num_steps - 1) * step_secs / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--examples", type=int, default=20000)
    parser.add_argument("--only", nargs="+", help="variants of the first table")
    parser.add_argument("--memory-map", type=float, help="also read a file of so many GB")
    parser.add_argument("--directory", type=Path, default=Path("/tmp"), help="for that file")
    args = parser.parse_args()
    print(environment.describe(tune_malloc()))
    print(f"load {os.getloadavg()[0]:.1f}")
    data = Data(args.examples)
    variants = all_variants(data)
    chosen = {name: v for name, v in variants.items() if not args.only or name in args.only}
    report_speeds(measure(chosen, args.examples, args.rounds))
    report_state()
    report_prefetch()
    report_depths()
    if args.memory_map:
        report_memory_map(args.directory, int(args.memory_map * 1e9))


if __name__ == "__main__":
    main()
