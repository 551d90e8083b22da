"""Saving and restoring 400 MB in 100 arrays, side by side in one run.

    python benchmarks/checkpoint.py [--rounds 7] [--megabytes 400] [--arrays 100] [--segments 5]

raw          write of the bytes + fsync; read into new arrays
safetensors  its save_file + fsync, its load_file
save, load   ours, blocking: committed, and verified
Saver        the time for which a step is blocked: the variables' values are collected and
             `Saver.start` begins to copy them; the time of a step that changes all of them right
             after that, with a save and without; and the time until the checkpoint is visible
quarter      the bytes read for a quarter of the tensors, as part of all
segments     pieces of training of --segment-secs, with a save at the beginning and without

Rounds alternate between the variants, so that a noisy neighbour troubles all. Medians. The files
are read from the page cache, as they are after a save, into memory that is new, as it is in a
process that restores.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np
from safetensors.numpy import load_file, save_file

from paceline import get_variable
from paceline.checkpoint import Saver, keep_all, keep_last, load, save
from paceline.strategies import Download, VariableStore

ORDER = (
    "raw write",
    "safetensors write",
    "save",
    "Saver blocks",
    "update",
    "update after a save",
    "Saver visible",
    "raw read",
    "safetensors read",
    "load",
    "segment without",
    "segment with a save",
)
Arrays = dict[str, np.ndarray]
Seconds = dict[str, list[float]]


def make_arrays(megabytes: float, count: int) -> Arrays:
    rng = np.random.default_rng(0)
    length = int(megabytes * 1e6 / 4 / count)
    return {f"layer_{i}/kernel": rng.random(length, np.float32) for i in range(count)}


def flush(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def raw_write(path: Path, arrays: Arrays) -> None:
    with path.open("wb", buffering=0) as file:
        for array in arrays.values():
            file.write(array.data)
        os.fsync(file.fileno())


def raw_read(path: Path, arrays: Arrays) -> list[np.ndarray]:
    with path.open("rb", buffering=0) as file:
        found = [np.empty_like(array) for array in arrays.values()]
        for array in found:
            file.readinto(array.data)
    return found


def safetensors_write(path: Path, arrays: Arrays) -> None:
    save_file(arrays, path)
    flush(path)


def timed(seconds: Seconds, name: str, work: Callable[..., object], *arguments: Any) -> None:
    start = time.perf_counter()
    work(*arguments)
    seconds.setdefault(name, []).append(time.perf_counter() - start)


def store_of(arrays: Arrays) -> VariableStore:
    """Variables with the values of the arrays, as a model has them."""
    store = VariableStore()
    with store.building():
        for name, array in arrays.items():
            get_variable(name, initializer=array)
    return store


def start_save(saver: Saver, step: int, store: VariableStore) -> None:
    """As training does it: what is to be changed before it was copied is copied then."""
    store.lend(saver.start(step, store.saved_arrays(), download=Download))


def save_and_wait(saver: Saver, step: int, store: VariableStore, seconds: Seconds) -> None:
    timed(seconds, "update", update, store)
    timed(seconds, "Saver blocks", start_save, saver, step, store)
    timed(seconds, "update after a save", update, store)
    saver.wait()


def update(store: VariableStore) -> None:
    """What a step does to the variables, in the order in which gradients come."""
    for variable in reversed(store.trainable_variables()):
        array = variable.leaf(0).writable()
        array *= np.float32(0.999)


def measure_writes(directory: Path, arrays: Arrays, rounds: int, seconds: Seconds) -> None:
    raw, file = directory / "raw", directory / "safetensors"
    store = store_of(arrays)
    with Saver(directory / "saver", keep_all) as saver:
        for step in range(rounds + 1):
            for old in (*directory.glob("sa*/model.ckpt-*/*"), raw, file):
                old.unlink(missing_ok=True)
            times = seconds if step else {}  # the first round warms up
            variants: list[tuple[Any, ...]] = [
                ("raw write", raw_write, raw, arrays),
                ("safetensors write", safetensors_write, file, arrays),
                ("save", partial(save, keep_max=None), directory / "save", step, arrays),
                ("Saver visible", save_and_wait, saver, step, store, times),
            ]
            turn = step % len(variants)  # no one always comes when the disk is busiest
            for variant in variants[turn:] + variants[:turn]:
                timed(times, *variant)


def measure_reads(directory: Path, arrays: Arrays, rounds: int, seconds: Seconds) -> None:
    path = directory / "saver" / f"model.ckpt-{rounds}"
    for index in range(rounds + 1):
        times = seconds if index else {}
        timed(times, "raw read", raw_read, directory / "raw", arrays)
        timed(times, "safetensors read", load_file, directory / "safetensors")
        timed(times, "load", lambda: load(path).arrays())


def bytes_read() -> int:
    """What this process has read from files so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def measure_quarter(directory: Path, rounds: int) -> float:
    path = directory / "saver" / f"model.ckpt-{rounds}"
    names = load(path).names
    before = bytes_read()
    load(path).arrays(names[: len(names) // 4])
    return (bytes_read() - before) / load(path).size_bytes


def train(store: VariableStore, secs: float, num_steps: int | None = None) -> int:
    """Steps of arithmetic that change the variables, for a time or a number of them."""
    rng = np.random.default_rng(0)
    a = rng.random((256, 256), np.float32)
    start, step, variables = time.perf_counter(), 0, store.trainable_variables()
    while step < num_steps if num_steps else time.perf_counter() - start < secs:
        for _ in range(8):
            a = a @ a
            a /= a.max()
        array = variables[step % len(variables)].leaf(0).writable()
        array *= np.float32(0.999)
        step += 1
    return step


def measure_segments(
    directory: Path, arrays: Arrays, count: int, secs: float, seconds: Seconds
) -> None:
    store = store_of(arrays)
    num_steps = train(store, secs)
    with Saver(directory / "segments", keep_last(1)) as saver:

        def save_and_train(step: int) -> None:
            start_save(saver, step, store)
            train(store, secs, num_steps)

        for index in range(count + 1):
            times = seconds if index else {}
            timed(times, "segment without", train, store, secs, num_steps)
            timed(times, "segment with a save", save_and_train, index)
            saver.wait()


def report(seconds: Seconds, quarter: float, num_bytes: int) -> str:
    median = {name: float(np.median(times)) for name, times in seconds.items()}
    lines = []
    for name in sorted(median, key=ORDER.index):
        secs = median[name]
        spread = f"{min(seconds[name]):.3f} to {max(seconds[name]):.3f}"
        speed = "" if "segment" in name else f"{num_bytes / 1e9 / secs:8.2f} GB/s"
        lines.append(f"{name:20}{secs:8.3f} s  ({spread}){speed}")
    blocked = median["Saver blocks"] + median["update after a save"] - median["update"]
    lines += [
        "",
        f"blocked / blocking save   {median['Saver blocks'] / median['save']:.3f}  (wanted ≤ 0.15)",
        f"blocked                   {1e3 * median['Saver blocks']:.1f} ms  (wanted ≤ 10)",
        f"blocked, update included  {1e3 * blocked:.1f} ms",
        f"raw write / save          {median['raw write'] / median['save']:.2f}  (wanted ≥ 0.8)",
        f"raw read / load           {median['raw read'] / median['load']:.2f}  (wanted ≥ 0.7)",
        f"bytes for a quarter       {quarter:.3f}  (wanted ≤ 0.30)",
    ]
    if "segment without" in median:
        overhead = median["segment with a save"] / median["segment without"] - 1
        lines.append(f"overhead of a save        {100 * overhead:.1f} %  (wanted ≤ 2.5 %)")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=float, default=400)
    parser.add_argument("--arrays", type=int, default=100)
    parser.add_argument("--segments", type=int, default=5, help="0 leaves them out")
    parser.add_argument("--segment-secs", type=float, default=10.0)
    parser.add_argument("--directory", help="where to write; a temporary one by default")
    args = parser.parse_args()
    print(environment.describe(malloc_tuned=False))
    print("load average", *os.getloadavg(), flush=True)
    arrays = make_arrays(args.megabytes, args.arrays)
    seconds: Seconds = {}
    with tempfile.TemporaryDirectory(dir=args.directory) as name:
        directory = Path(name)
        measure_writes(directory, arrays, args.rounds, seconds)
        measure_reads(directory, arrays, args.rounds, seconds)
        quarter = measure_quarter(directory, args.rounds)
        if args.segments:
            measure_segments(directory, arrays, args.segments, args.segment_secs, seconds)
    print("\n" + report(seconds, quarter, sum(array.nbytes for array in arrays.values())))
    print("load average", *os.getloadavg())


if __name__ == "__main__":
    main()
