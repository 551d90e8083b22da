"""Milliseconds of a training step by `Model.fit` beside the Estimator's, in one run.

    python benchmarks/fit.py [--rounds 20] [--steps 50] [--models mlp cnn]

The models and data of benchmarks/step.py (MNIST's shapes, batches of 64). Rounds alternate between
(a) the Estimator, (b) fit without callbacks, (c) fit with a callback that reads the logs of each
batch. Printed are medians, and the ratios to (a).
"""

from __future__ import annotations

import argparse
import logging
import os
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np
from step import BATCH, LEARNING_RATE, SHAPES, Data, Variant, build, estimator

import paceline as pl
from paceline.cluster import tune_malloc
from paceline.nn import callbacks, losses, optimizers


class StepTimes(callbacks.Callback):
    """The moment after each step."""

    def __init__(self, reads_logs: bool) -> None:
        super().__init__()
        self.marks: list[float] = []
        self._reads_logs = reads_logs

    def may_want_batch_logs(self) -> bool:
        return self._reads_logs

    def on_train_batch_end(self, batch, logs=None):
        self.marks.append(time.perf_counter())


def fit(model: str, data: Data, reads_logs: bool = False) -> Variant:
    network = build(model)
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(optimizers.SGD(LEARNING_RATE), loss)
    dataset = pl.Dataset.from_tensor_slices((data.x, data.y))
    dataset = dataset.shuffle(len(data.x)).repeat().batch(BATCH)

    def run(num_steps: int) -> list[float]:
        times = StepTimes(reads_logs)
        network.fit(dataset, steps_per_epoch=num_steps + 1, callbacks=[times], verbose=0)
        return list(np.diff(times.marks))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=["mlp", "cnn"])
    arguments = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.WARNING)
    print(environment.describe(tune_malloc()))
    for model in arguments.models:
        data = Data(SHAPES[model])
        variants = {
            "estimator": estimator(model, data),
            "fit": fit(model, data),
            "fit, logs of each batch": fit(model, data, reads_logs=True),
        }
        found: dict[str, list[float]] = {name: [] for name in variants}
        for round_index in range(arguments.rounds + 1):
            for name, variant in variants.items():
                times = variant(arguments.steps)
                if round_index:  # the first one warms up
                    found[name].append(float(np.median(times)))
        medians = {name: 1e3 * float(np.median(times)) for name, times in found.items()}
        ratios = {
            name: float(np.median(np.divide(times, found["estimator"])))
            for name, times in found.items()
        }
        for name, ms in medians.items():
            print(f"{model:10} {name:26} {ms:8.3f} ms  {ratios[name]:6.3f}")


if __name__ == "__main__":
    main()
