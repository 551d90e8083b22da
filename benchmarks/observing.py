"""What summaries, the history and the report cost: processor time of a training step, in pairs.

    python benchmarks/observing.py [--pairs 7]

Two runs of the same small network take turns in one process: one with RunConfig's defaults
(summaries and history every 100 steps), a histogram and two scalars in model_fn, the gradient norm
and the report; the other with save_summary_steps=0. Each hundred steps, which have one of each, are
a sample; medians and the fastest of all samples are compared, since neighbours of a shared machine
slow some down. The report is timed by itself.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from itertools import pairwise
from typing import Any

import numpy as np

import paceline as pl
from paceline.estimator import SessionRunHook
from paceline.nn import Sequential, layers, losses, optimizers
from paceline.observe import phase, write_report

EVERY, LAST = 100, 1100


def model_fn(features: Any, labels: Any, mode: Any) -> pl.EstimatorSpec:
    model = Sequential([layers.Dense(512, activation="relu"), layers.Dense(10)])
    logits = model(features)
    loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    pl.summary.scalar("mean", np.mean(logits))
    pl.summary.scalar("largest", np.max(logits))
    pl.summary.histogram("logits", logits)
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(0.001).minimize(loss))


class Clock(SessionRunHook):
    """Processor seconds of a step, for each hundred steps but the first."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.global_step % EVERY == 0:
            self.marks.append(time.process_time())

    @property
    def samples(self) -> list[float]:
        return [(end - begin) / EVERY for begin, end in pairwise(self.marks)]


def samples(directory: str, **settings: Any) -> list[float]:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(256, 512)).astype(np.float32), rng.integers(0, 10, 256)
    clock = Clock()
    config = pl.RunConfig(save_checkpoints_secs=None, save_checkpoints_steps=None, **settings)
    estimator = pl.Estimator(model_fn, directory, config)
    estimator.train(lambda: pl.Dataset.from_tensor_slices(data).repeat().batch(256), [clock], LAST)
    return clock.samples


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=7)
    off: list[float] = []
    on: list[float] = []
    for _ in range(parser.parse_args().pairs):
        off += samples(tempfile.mkdtemp(), save_summary_steps=0)
        directory = tempfile.mkdtemp()
        on += samples(directory, log_gradient_norm=True)
    print(f"a step: {1e3 * statistics.median(off):.2f} ms of processor time, {len(off)} samples")
    for name, of in (("median", statistics.median), ("fastest", min)):
        print(f"with summaries and history, {name}: {100 * (of(on) / of(off) - 1):+.2f} %")
    began = time.process_time()
    write_report(directory)
    print(f"the report of {LAST} steps: {1e3 * (time.process_time() - began):.1f} ms, once")
    began = time.perf_counter()
    for _ in range(100_000):
        with phase("forward"):
            pass
    print(f"a phase where nothing is measured: {1e4 * (time.perf_counter() - began):.0f} ns")


if __name__ == "__main__":
    main()
