"""Shares of examples that were predicted right.

What is measured is functions from NumPy arrays to one value for each example: 1.0 for a hit and 0.0
for a miss. Shapes are checked as for the losses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..shapes import check_range, class_indices, like_predictions
from .means import MeanMetricWrapper


class Accuracy(MeanMetricWrapper):
    """How often predictions equal labels."""

    def __init__(self, name: str = "accuracy") -> None:
        super().__init__(accuracy, name)


class BinaryAccuracy(MeanMetricWrapper):
    """How often predictions are above `threshold` where labels are 1, and not where they are 0."""

    def __init__(self, name: str = "binary_accuracy", *, threshold: float = 0.5) -> None:
        super().__init__(binary_accuracy, name, threshold=threshold)


class CategoricalAccuracy(MeanMetricWrapper):
    """How often the largest prediction is that of the label's class; labels are one-hot."""

    def __init__(self, name: str = "categorical_accuracy") -> None:
        super().__init__(categorical_accuracy, name)


class SparseCategoricalAccuracy(MeanMetricWrapper):
    """How often the largest prediction is that of the label; labels are class numbers."""

    def __init__(self, name: str = "sparse_categorical_accuracy") -> None:
        super().__init__(sparse_categorical_accuracy, name)


class TopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the label's class is among the `k` largest predictions; labels are one-hot."""

    def __init__(self, k: int = 5, name: str = "top_k_categorical_accuracy") -> None:
        super().__init__(top_k_categorical_accuracy, name, k=_checked_k(k))


class SparseTopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the label is among the `k` largest predictions; labels are class numbers."""

    def __init__(self, k: int = 5, name: str = "sparse_top_k_categorical_accuracy") -> None:
        super().__init__(sparse_top_k_categorical_accuracy, name, k=_checked_k(k))


def accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    return _hits(like_predictions("accuracy", y_true, y_pred) == y_pred)


def binary_accuracy(y_true: np.ndarray, y_pred: np.ndarray, threshold: float) -> np.ndarray:
    y_true = like_predictions("binary_accuracy", y_true, y_pred)
    hits = _hits((y_pred > threshold) == y_true)
    return hits if hits.ndim < 2 else np.mean(hits, axis=-1)


def categorical_accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    y_true = like_predictions("categorical_accuracy", y_true, y_pred)
    return _hits(np.argmax(y_true, axis=-1) == np.argmax(y_pred, axis=-1))


def sparse_categorical_accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    labels = _class_indices("sparse_categorical_accuracy", y_true, y_pred)
    return _hits(labels == np.argmax(y_pred, axis=-1))


def top_k_categorical_accuracy(y_true: np.ndarray, y_pred: np.ndarray, k: int) -> np.ndarray:
    y_true = like_predictions("top_k_categorical_accuracy", y_true, y_pred)
    return _in_top_k(np.argmax(y_true, axis=-1), y_pred, k)


def sparse_top_k_categorical_accuracy(y_true: np.ndarray, y_pred: np.ndarray, k: int) -> Any:
    return _in_top_k(_class_indices("sparse_top_k_categorical_accuracy", y_true, y_pred), y_pred, k)


def _checked_k(k: int) -> int:
    if k < 1:
        raise ValueError(f"k must be at least 1, it is {k}")
    return k


def _class_indices(name: str, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    labels: np.ndarray = class_indices(name, y_true, y_pred)
    check_range(f"{name}: labels", labels, y_pred.shape[-1])
    return labels


def _hits(matches: np.ndarray) -> np.ndarray:
    return np.asarray(matches, np.float64)


def _in_top_k(labels: np.ndarray, y_pred: np.ndarray, k: int) -> np.ndarray:
    scores = np.take_along_axis(y_pred, labels[..., np.newaxis], axis=-1)
    # A score that is not a number is larger than nothing and would look like the best.
    return _hits((np.sum(y_pred > scores, axis=-1) < k) & np.isfinite(scores[..., 0]))
