"""Shares of examples that were predicted right.

What is measured is functions from arrays to one value for each example: 1.0 for a hit and 0.0 for a
miss. Shapes are checked as for the losses. Arrays on a GPU stay there; a label that is no class,
which is an error on the host, is neither: its value is "not a number".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autodiff import Array
from ..arguments import count
from ..shapes import check_range, class_indices, like_predictions
from .base import anywhere, together
from .means import MeanMetricWrapper, MeanOfFunction


@anywhere
def accuracy(y_true: Any, y_pred: Any) -> Array:
    """Whether each prediction equals its label."""
    y_true, y_pred = together(y_true, y_pred)
    return _hits(like_predictions("accuracy", y_true, y_pred) == y_pred)


@anywhere
def binary_accuracy(y_true: Any, y_pred: Any, threshold: float = 0.5) -> Array:
    """Whether each prediction is above `threshold` where the label is 1, and not where it is 0."""
    y_true, y_pred = together(y_true, y_pred)
    y_true = like_predictions("binary_accuracy", y_true, y_pred)
    hits = _hits((y_pred > threshold) == y_true)
    return hits if hits.ndim < 2 else np.mean(hits, axis=-1)


@anywhere
def categorical_accuracy(y_true: Any, y_pred: Any) -> Array:
    """Whether the largest prediction is that of the label's class; labels are one-hot."""
    y_true, y_pred = together(y_true, y_pred)
    y_true = like_predictions("categorical_accuracy", y_true, y_pred)
    return _hits(np.argmax(y_true, axis=-1) == np.argmax(y_pred, axis=-1))


@anywhere
def sparse_categorical_accuracy(y_true: Any, y_pred: Any) -> Array:
    """Whether the largest prediction is that of the label; labels are class numbers."""
    y_true, y_pred = together(y_true, y_pred)
    labels = _class_indices("sparse_categorical_accuracy", y_true, y_pred)
    return _of_classes(labels, _hits(labels == np.argmax(y_pred, axis=-1)), y_pred)


@anywhere
def top_k_categorical_accuracy(y_true: Any, y_pred: Any, k: int = 5) -> Array:
    """Whether the label's class is among the `k` largest predictions; labels are one-hot."""
    y_true, y_pred = together(y_true, y_pred)
    y_true = like_predictions("top_k_categorical_accuracy", y_true, y_pred)
    return _in_top_k(np.argmax(y_true, axis=-1), y_pred, k)


@anywhere
def sparse_top_k_categorical_accuracy(
    y_true: Any, y_pred: Any, k: int = 5, from_sorted_ids: bool = False
) -> Array:
    """Whether the label is among the `k` largest predictions; labels are class numbers.

    Args:
        y_true: (...) or (..., 1).
        y_pred: (..., classes).
        k: At least 1.
        from_sorted_ids: Whether `y_pred` are class numbers, the best first, and not scores.
    """
    y_true, y_pred = together(y_true, y_pred)
    name = "sparse_top_k_categorical_accuracy"
    if from_sorted_ids:
        labels = class_indices(name, y_true, y_pred)
        return _hits(np.any(y_pred[..., :k] == labels[..., np.newaxis], axis=-1))
    return _in_top_k(_class_indices(name, y_true, y_pred), y_pred, k)


class Accuracy(MeanOfFunction, of=accuracy):
    """How often predictions equal labels."""


class BinaryAccuracy(MeanOfFunction, of=binary_accuracy):
    """How often predictions are above `threshold` where labels are 1, and not where they are 0."""


class CategoricalAccuracy(MeanOfFunction, of=categorical_accuracy):
    """How often the largest prediction is that of the label's class; labels are one-hot."""


class SparseCategoricalAccuracy(MeanOfFunction, of=sparse_categorical_accuracy):
    """How often the largest prediction is that of the label; labels are class numbers."""


class TopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the label's class is among the `k` largest predictions; labels are one-hot."""

    def __init__(
        self, k: int = 5, name: str = "top_k_categorical_accuracy", dtype: Any = None
    ) -> None:
        super().__init__(top_k_categorical_accuracy, name, dtype, k=count("k", k))


class SparseTopKCategoricalAccuracy(MeanMetricWrapper):
    """How often the label is among the `k` largest predictions; labels are class numbers.

    Args:
        from_sorted_ids: Whether predictions are class numbers, the best first, and not scores.
    """

    def __init__(
        self,
        k: int = 5,
        name: str = "sparse_top_k_categorical_accuracy",
        dtype: Any = None,
        from_sorted_ids: bool = False,
    ) -> None:
        options = {"k": count("k", k), "from_sorted_ids": from_sorted_ids}
        super().__init__(sparse_top_k_categorical_accuracy, name, dtype, **options)


def _class_indices(name: str, y_true: Array, y_pred: Array) -> Array:
    labels: Array = class_indices(name, y_true, y_pred)
    if isinstance(labels, np.ndarray):
        check_range(f"{name}: labels", labels, y_pred.shape[-1])
    return labels


def _of_classes(labels: Array, hits: Array, y_pred: Array) -> Array:
    """What was measured of each label; on a GPU, which nobody waits for, NaN for no class."""
    if isinstance(labels, np.ndarray):
        return hits
    return np.where((labels >= 0) & (labels < y_pred.shape[-1]), hits, np.nan)


def _hits(matches: Array) -> Array:
    return matches.astype(np.float64)


def _in_top_k(labels: Array, y_pred: Array, k: int) -> Array:
    scores = np.take_along_axis(y_pred, labels[..., np.newaxis], axis=-1)
    # A score that is not a number is larger than nothing and would look like the best.
    hits = _hits((np.sum(y_pred > scores, axis=-1) < k) & np.isfinite(scores[..., 0]))
    return _of_classes(labels, hits, y_pred)
