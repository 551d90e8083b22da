"""`Estimator.predict`, `evaluate` and a `Predictor`: what a call costs that restores nothing.

    python benchmarks/predict.py [--rounds 9] [--megabytes 12]

first        a call of a new Estimator: it restores the checkpoint
second       the same call again: the model is kept
Predictor    one request

A model of one table, of which a batch of eight examples reads eight rows, so that restoring and
not the model's arithmetic is measured. Rounds alternate between the variants. Medians.
"""

from __future__ import annotations

import argparse
import logging
import os
import tempfile
import time
from collections.abc import Callable
from statistics import median

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import environment
import numpy as np

import paceline as pl

WIDTH = 64
KEYS, LABELS = np.arange(8), np.zeros(8, np.float32)


def make_model(megabytes: float) -> Callable[..., pl.EstimatorSpec]:
    rows = int(megabytes * 1e6 / 4 / WIDTH)

    def model_fn(features: np.ndarray, labels: np.ndarray, mode: str) -> pl.EstimatorSpec:
        table = pl.get_variable("table", (rows, WIDTH))
        outputs = np.sum(np.take(table, features, axis=0), axis=1)
        if mode == pl.ModeKeys.PREDICT:
            return pl.EstimatorSpec(mode, predictions=outputs)
        loss = np.mean(np.square(outputs - labels))
        if mode == pl.ModeKeys.EVAL:
            return pl.EstimatorSpec(mode, loss=loss)
        train_op = pl.nn.optimizers.SGD(0.1).minimize(loss)
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    return model_fn


def input_fn() -> pl.Dataset:
    return pl.Dataset.from_tensor_slices((KEYS, LABELS)).batch(8)


def seconds(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def measure(model_dir: str, megabytes: float, rounds: int) -> dict[str, list[float]]:
    model_fn = make_model(megabytes)
    pl.Estimator(model_fn, model_dir).train(input_fn, steps=1)
    found: dict[str, list[float]] = {}
    for _ in range(rounds):
        verbs: dict[str, Callable[[pl.Estimator], object]] = {
            "predict": lambda e: list(e.predict(input_fn)),
            "evaluate": lambda e: e.evaluate(input_fn),
        }
        for verb, call in verbs.items():
            estimator = pl.Estimator(model_fn, model_dir)
            for which in ("first", "second"):
                found.setdefault(f"{verb}, {which}", []).append(seconds(lambda: call(estimator)))  # noqa: B023
        with pl.Estimator(model_fn, model_dir).predictor() as predict:
            for which in ("first", "second"):
                found.setdefault(f"Predictor, {which}", []).append(seconds(lambda: predict(KEYS)))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--megabytes", type=float, default=12)
    options = parser.parse_args()
    logging.getLogger("paceline").setLevel(logging.ERROR)
    print(environment.describe(malloc_tuned=False))
    with tempfile.TemporaryDirectory() as model_dir:
        found = measure(model_dir, options.megabytes, options.rounds)
    for verb in ("predict", "evaluate", "Predictor"):
        first, second = (median(found[f"{verb}, {which}"]) for which in ("first", "second"))
        print(
            f"{verb:10} first {first * 1e3:7.2f} ms   second {second * 1e3:6.2f} ms   "
            f"{second / first:6.1%}"
        )


if __name__ == "__main__":
    main()
