"""Write `keras_metrics.json`: what Keras answers for metrics of two batches.

    python tests/peers/make_keras_metrics.py

needs Keras (on TensorFlow) and NumPy, not paceline. A case is a class, its arguments, the name of
its data, and the results: after both batches, and where it takes weights, with these.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = "tensorflow"

import keras
import numpy as np

keras.config.set_floatx("float64")
RNG = np.random.default_rng(12)
HALF = {"average": "micro", "threshold": 0.5}
N = 12


def rounded(values: np.ndarray) -> np.ndarray:
    return np.round(values, 3)


def data() -> dict[str, dict[str, np.ndarray]]:
    either = RNG.integers(0, 2, N)
    shares = rounded(np.clip(RNG.normal(0.3 + 0.4 * either, 0.25), 0.01, 0.99))
    classes = RNG.integers(0, 3, N)
    z = rounded(RNG.normal(size=(N, 3)) + np.eye(3)[classes])
    p = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
    labels = RNG.integers(0, 2, (N, 3))
    y, x = rounded(RNG.normal(size=(N, 2)) + 2.5), rounded(RNG.normal(size=(N, 2)) + 2.5)
    guesses = RNG.integers(0, 3, N)
    found: dict[str, tuple[Any, Any]] = {
        "binary": (either, shares),
        "labels": (labels, rounded(np.clip(RNG.normal(0.3 + 0.4 * labels, 0.3), 0.01, 0.99))),
        "one-hot": (np.eye(3)[classes], p),
        "classes": (classes, p),
        "guesses": (classes, guesses),
        "logits": (np.eye(3)[classes], z),
        "margins": (2 * labels - 1, rounded(2 * RNG.normal(size=(N, 3)))),
        "numbers": (y, np.abs(x)),
        "ranks": (classes, np.argsort(-p, axis=-1)),
    }
    w = rounded(RNG.uniform(0.1, 2, N))
    return {name: {"y": y, "p": p, "w": w} for name, (y, p) in found.items()}


CASES: list[tuple[str, dict[str, Any], str]] = [
    *[
        (f"{side}{kind}s", {}, "binary")
        for side in ("True", "False")
        for kind in ("Positive", "Negative")
    ],
    ("TruePositives", {"thresholds": [0.2, 0.5, 0.8]}, "binary"),
    ("Precision", {"top_k": 2}, "labels"),
    ("Precision", {"top_k": 2, "thresholds": 0.5}, "labels"),
    ("Precision", {"class_id": 1}, "labels"),
    ("Recall", {"top_k": 1, "class_id": 2}, "labels"),
    ("Recall", {"class_id": 0, "thresholds": [0.3, 0.6]}, "labels"),
    ("SensitivityAtSpecificity", {"specificity": 0.6, "num_thresholds": 20}, "binary"),
    ("SpecificityAtSensitivity", {"sensitivity": 0.6, "num_thresholds": 20}, "binary"),
    ("PrecisionAtRecall", {"recall": 0.6}, "binary"),
    ("RecallAtPrecision", {"precision": 0.7}, "binary"),
    ("RecallAtPrecision", {"precision": 0.6, "num_thresholds": 1}, "binary"),
    ("SensitivityAtSpecificity", {"specificity": 0.5, "class_id": 1}, "labels"),
    *[("AUC", {"curve": curve, "multi_label": True}, "labels") for curve in ("ROC", "PR")],
    ("AUC", {"multi_label": True, "num_labels": 3, "label_weights": [1.0, 0.5, 2.0]}, "labels"),
    ("AUC", {"label_weights": [1.0, 0.5, 2.0], "curve": "PR"}, "labels"),
    ("F1Score", {}, "one-hot"),
    *[
        ("FBetaScore", {"average": a, "beta": 2.0}, "one-hot")
        for a in ("micro", "macro", "weighted")
    ],
    ("F1Score", HALF, "labels"),
    ("R2Score", {}, "numbers"),
    ("R2Score", {"class_aggregation": None}, "numbers"),
    ("R2Score", {"class_aggregation": "variance_weighted_average"}, "numbers"),
    ("IoU", {"num_classes": 3, "target_class_ids": [0, 2]}, "guesses"),
    ("MeanIoU", {"num_classes": 3}, "guesses"),
    ("MeanIoU", {"num_classes": 4, "ignore_class": 1}, "guesses"),
    ("BinaryIoU", {"target_class_ids": [1], "threshold": 0.4}, "binary"),
    ("OneHotIoU", {"num_classes": 3, "target_class_ids": [1]}, "one-hot"),
    ("OneHotMeanIoU", {"num_classes": 3}, "one-hot"),
    ("BinaryCrossentropy", {"label_smoothing": 0.1}, "labels"),
    ("BinaryCrossentropy", {"from_logits": True}, "logits"),
    ("CategoricalCrossentropy", {"from_logits": True}, "logits"),
    ("CategoricalCrossentropy", {"label_smoothing": 0.1}, "one-hot"),
    ("SparseCategoricalCrossentropy", {}, "classes"),
    ("KLDivergence", {}, "one-hot"),
    *[(name, {}, "margins") for name in ("Hinge", "SquaredHinge")],
    ("CategoricalHinge", {}, "logits"),
    *[
        (name, {}, "numbers")
        for name in (
            "CosineSimilarity",
            "LogCoshError",
            "MeanAbsoluteError",
            "MeanAbsolutePercentageError",
            "MeanSquaredError",
            "MeanSquaredLogarithmicError",
            "Poisson",
            "RootMeanSquaredError",
        )
    ],
    ("SparseTopKCategoricalAccuracy", {"k": 2, "from_sorted_ids": True}, "ranks"),
]


def plain(value: Any) -> Any:
    return np.asarray(value, np.float64).tolist()


def main() -> None:
    batches = data()
    found = []
    for name, arguments, of in CASES:
        results = []
        for weighted in (False, True):
            metric = getattr(keras.metrics, name)(**arguments, dtype="float64")
            for part in (slice(0, 5), slice(5, N)):
                y, p, w = (batches[of][key][part] for key in "ypw")
                metric.update_state(y, p, w if weighted else None)
            results.append(plain(metric.result()))
        found.append({"name": name, "arguments": arguments, "of": of, "results": results})
    negative = keras.metrics.AUC(num_thresholds=20, curve="PR", dtype="float64")
    w = np.where(np.arange(N) % 4 == 1, -0.5, 1.0)
    negative.update_state(batches["binary"]["y"], batches["binary"]["p"], w)
    stored = {
        "version": keras.__version__,
        "data": {n: {k: v.tolist() for k, v in each.items()} for n, each in batches.items()},
        "cases": found,
        "negative weights": {"w": w.tolist(), "result": plain(negative.result())},
    }
    (Path(__file__).parent / "keras_metrics.json").write_text(json.dumps(stored) + "\n")


main()
