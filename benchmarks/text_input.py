"""Examples a second from CSV and TFRecord files, beside tf.data on the same files and one core.

    python benchmarks/text_input.py [--peers peers/bin/python] [--rounds 5] [--examples 20000]

Files of 5 and 40 columns, integers and floats in turn, in batches of 40:

csv       TextLineDataset, map with decode_csv into a dict and a label, batch
records   TFRecordDataset, map with parse_single_example, batch

Each side runs in a process of its own, in turns; medians. `--peers` is an interpreter with
TensorFlow. One processor each, and a first pass that is not measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BATCH = 40
COLUMNS = (5, 40)


def write_files(directory: Path, num_examples: int) -> None:
    import numpy as np

    import paceline as pl

    rng = np.random.default_rng(0)
    for count in COLUMNS:
        with (
            open(directory / f"{count}.csv", "w") as lines,
            pl.inputs.TFRecordWriter(directory / f"{count}.tfrecord") as records,
        ):
            for numbers in rng.normal(size=(num_examples, count)):
                row = [float(v) if i % 2 else int(100 * v) for i, v in enumerate(numbers)]
                lines.write(",".join(f"{value:.6g}" for value in row) + "\n")
                example = {f"c{i}": value for i, value in enumerate(row)}
                records.write(pl.inputs.encode_example(example))


def datasets(tf: Any, directory: Path, count: int) -> dict[str, Any]:
    """The pipelines, in the words that both sides have."""
    names = [f"c{i}" for i in range(count)]
    defaults = [[0.0] if i % 2 else [0] for i in range(count)]
    forms = {
        name: tf.io.FixedLenFeature([], tf.float32 if i % 2 else tf.int64)
        for i, name in enumerate(names)
    }

    def from_line(line: Any) -> Any:
        features = dict(zip(names, tf.io.decode_csv(line, defaults), strict=True))
        return features, features.pop("c0")

    def from_record(record: Any) -> Any:
        features = tf.io.parse_single_example(record, forms)
        return features, features.pop("c0")

    lines = tf.data.TextLineDataset(str(directory / f"{count}.csv"))
    records = tf.data.TFRecordDataset(str(directory / f"{count}.tfrecord"))
    return {
        f"csv, {count}": lines.map(from_line).batch(BATCH),
        f"records, {count}": records.map(from_record).batch(BATCH),
    }


def measure(side: str, directory: Path, num_examples: int) -> None:
    """Print the examples a second of one side."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if side == "tensorflow":
        import tensorflow as tf

        tf.config.threading.set_intra_op_parallelism_threads(1)
        tf.config.threading.set_inter_op_parallelism_threads(1)
    else:
        import paceline.compat.tf as tf
    speeds = {}
    for count in COLUMNS:
        for name, dataset in datasets(tf, directory, count).items():
            for _ in range(2):
                start = time.perf_counter()
                for _ in dataset.as_numpy_iterator():
                    pass
                seconds = time.perf_counter() - start
            speeds[name] = num_examples / seconds
    print(json.dumps(speeds))


def speeds_of(side: str, interpreter: str, directory: str, num_examples: int) -> dict[str, float]:
    command = [interpreter, __file__, "--side", side, "--directory", directory]
    done = subprocess.run(
        [*command, "--examples", str(num_examples)],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "OPENBLAS_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        check=True,
    )
    speeds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return speeds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--peers", help="interpreter with tensorflow")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--examples", type=int, default=20000)
    parser.add_argument("--side", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        measure(args.side, args.directory, args.examples)
        return
    sides = {"paceline": sys.executable} | ({"tensorflow": args.peers} if args.peers else {})
    with tempfile.TemporaryDirectory() as directory:
        write_files(Path(directory), args.examples)
        found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
        for _ in range(args.rounds):
            for side, interpreter in sides.items():
                found[side].append(speeds_of(side, interpreter, directory, args.examples))
    report({side: medians(rounds) for side, rounds in found.items()})


def medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: sorted(r[name] for r in rounds)[len(rounds) // 2] for name in rounds[0]}


def report(speeds: dict[str, dict[str, float]]) -> None:
    print(f"{'examples/s':20}", *(f"{side:>12}" for side in speeds), f"{'ratio':>8}")
    for name, ours in speeds["paceline"].items():
        values = [side[name] for side in speeds.values()]
        ratio = f"{ours / values[1]:8.2f}" if len(values) > 1 else ""
        print(f"{name:20}", *(f"{value:12,.0f}" for value in values), ratio)


if __name__ == "__main__":
    main()
