"""Milliseconds of one training step, side by side in one run on the same work.

    python benchmarks/step.py [--rounds 20] [--steps 25] [--models cnn mlp mlp-large]

(a) hand: plain NumPy written by hand for the one model, see handwritten.py
(b) parts: the same model from autodiff + nn + optimizer, in a loop of one's own
(c) estimator: the same through Estimator.train, its Dataset included
(d) torch: PyTorch, where it is installed

All take batches of 64 by shuffled index from the same arrays, in float32, with one BLAS thread.
Rounds alternate between the variants, so that a noisy neighbour troubles all. Medians.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import handwritten
import numpy as np

import paceline as pl
from paceline.cluster import tune_malloc
from paceline.nn import Sequential, layers, losses, optimizers

BATCH = 64
LEARNING_RATE = 0.01
SHAPES = {"cnn": (28, 28, 1), "mlp": (784,), "mlp-large": (784,)}
SIZES = {"mlp": (784, 256, 10), "mlp-large": (784, 1024, 1024, 10)}


def build(model: str) -> Sequential:
    """The model as a user would write it."""
    if model == "cnn":
        return Sequential(
            [
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
    hidden = [layers.Dense(n, activation="relu") for n in SIZES[model][1:-1]]
    return Sequential([*hidden, layers.Dense(10)])


def mean_loss(labels: np.ndarray, logits: pl.Tensor) -> pl.Tensor:
    return losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)


class Data:
    """Images and labels, and shuffled batches of them by plain indexing."""

    def __init__(self, shape: tuple[int, ...], num_examples: int = 4096) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.random((num_examples, *shape), dtype=np.float32)
        self.y = rng.integers(0, 10, num_examples)
        self._batches = self._forever(rng)

    def _forever(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        while True:
            yield from rng.permutation(len(self.x)).reshape(-1, BATCH)

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        index = next(self._batches)
        return self.x[index], self.y[index]


Variant = Callable[[int], list[float]]
"""`variant(n)` makes n steps and returns the seconds that each took."""


def timed(step: Callable[[], object]) -> Variant:
    def run(num_steps: int) -> list[float]:
        marks = [time.perf_counter()]
        for _ in range(num_steps):
            step()
            marks.append(time.perf_counter())
        return list(np.diff(marks))

    return run


def hand(model: str, data: Data) -> Variant:
    if model == "cnn":
        step = handwritten.make_cnn_step()
    else:
        step = handwritten.make_mlp_step(SIZES[model])
    return timed(lambda: step(*data.batch()))


def parts(model: str, data: Data) -> Variant:
    network = build(model)
    optimizer = optimizers.SGD(LEARNING_RATE)

    def step() -> float:
        x, y = data.batch()
        loss = mean_loss(y, network(x, training=True))
        optimizer.minimize(loss, global_step=optimizer.iterations)()
        return loss.item()

    return timed(step)


class StepTimes(pl.estimator.SessionRunHook):
    """The moment after each step."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def after_run(self, run_context, run_values):
        self.marks.append(time.perf_counter())


def estimator(
    model: str, data: Data, model_dir: Path | None = None, config: pl.RunConfig | None = None
) -> Variant:
    def model_fn(features, labels, mode):
        loss = mean_loss(labels, build(model)(features, training=True))
        optimizer = optimizers.SGD(LEARNING_RATE)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))

    def input_fn(input_context):  # of several workers each has data of its own
        dataset = pl.Dataset.from_tensor_slices((data.x, data.y))
        return dataset.shuffle(len(data.x)).repeat().batch(BATCH)

    directory = tempfile.TemporaryDirectory()
    subject = pl.Estimator(model_fn, model_dir or directory.name, config)

    def run(num_steps: int) -> list[float]:
        assert directory  # lives as long as the variant
        times = StepTimes()
        subject.train(input_fn, hooks=[times], steps=num_steps + 1)
        return list(np.diff(times.marks))

    return run


def torch(model: str, data: Data) -> Variant | None:
    try:
        import torch_steps
    except ImportError:
        return None
    if model == "cnn":
        step = torch_steps.make_cnn_step(handwritten.cnn_params())
    else:
        step = torch_steps.make_mlp_step(SIZES[model], handwritten.mlp_params(SIZES[model]))
    return timed(lambda: step(*data.batch()))


def measure(model: str, rounds: int, num_steps: int) -> dict[str, float]:
    """Median milliseconds of a step of each variant."""
    data = Data(SHAPES[model])
    made = {v.__name__: v(model, data) for v in (hand, parts, estimator, torch)}
    variants = {name: variant for name, variant in made.items() if variant is not None}
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    for round_index in range(rounds + 1):
        for name, variant in variants.items():
            times = variant(num_steps)
            if round_index > 0:  # the first round warms up
                seconds[name] += times
    return {name: 1e3 * float(np.median(times)) for name, times in seconds.items()}


def report(model: str, ms: dict[str, float]) -> str:
    peer = (
        f"{ms['torch']:8.3f} {ms['estimator'] / ms['torch']:6.2f}"
        if "torch" in ms
        else "       –      –"
    )
    return (
        f"{model:10} {ms['hand']:8.3f} {ms['parts']:8.3f} {ms['estimator']:10.3f} "
        f"{ms['parts'] / ms['hand']:6.2f} {1e3 * (ms['estimator'] - ms['parts']):9.0f} {peer}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=25, help="steps per round and variant")
    parser.add_argument("--models", nargs="+", choices=SHAPES, default=list(SHAPES))
    args = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.WARNING)
    print(environment.describe(tune_malloc()))
    print("\nms a step   (a) hand (b) parts (c) estim.    b/a  c-b (µs)  (d) torch  c/d")
    for model in args.models:
        print(report(model, measure(model, args.rounds, args.steps)), flush=True)


if __name__ == "__main__":
    main()
