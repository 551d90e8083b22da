"""What metrics measure: pure functions from arrays to one value for each example.

All take and give NumPy arrays; a hit is 1.0 and a miss 0.0. Shapes are checked as for the losses.
"""

from __future__ import annotations

import numpy as np

from .._shapes import check_range, class_indices, like_predictions, like_values


def accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """Whether labels and predictions are equal, element by element."""
    return _hits(like_predictions("accuracy", y_true, y_pred) == y_pred)


def binary_accuracy(y_true: np.ndarray, y_pred: np.ndarray, threshold: float = 0.5) -> np.ndarray:
    """Whether predictions are above `threshold` where labels are 1, as a mean over outputs."""
    y_true = like_predictions("binary_accuracy", y_true, y_pred)
    return _over_outputs(_hits((y_pred > threshold) == y_true))


def categorical_accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """Whether the largest prediction is that of the (one-hot) label's class."""
    y_true = like_predictions("categorical_accuracy", y_true, y_pred)
    return _hits(np.argmax(y_true, axis=-1) == np.argmax(y_pred, axis=-1))


def sparse_categorical_accuracy(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """Whether the largest prediction is that of the label, a class number."""
    labels = _class_indices("sparse_categorical_accuracy", y_true, y_pred)
    return _hits(labels == np.argmax(y_pred, axis=-1))


def top_k_categorical_accuracy(y_true: np.ndarray, y_pred: np.ndarray, k: int = 5) -> np.ndarray:
    """Whether fewer than `k` predictions are larger than that of the (one-hot) label's class."""
    y_true = like_predictions("top_k_categorical_accuracy", y_true, y_pred)
    return _in_top_k(np.argmax(y_true, axis=-1), y_pred, k)


def sparse_top_k_categorical_accuracy(
    y_true: np.ndarray, y_pred: np.ndarray, k: int = 5
) -> np.ndarray:
    """Whether fewer than `k` predictions are larger than that of the label, a class number."""
    labels = _class_indices("sparse_top_k_categorical_accuracy", y_true, y_pred)
    return _in_top_k(labels, y_pred, k)


def squared_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """`(y_pred - y_true)²` in float64, as a mean over outputs."""
    return _over_outputs(np.square(_error("mean_squared_error", y_true, y_pred)))


def absolute_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """`|y_pred - y_true|` in float64, as a mean over outputs."""
    return _over_outputs(np.abs(_error("mean_absolute_error", y_true, y_pred)))


def weighted_total(
    name: str, values: np.ndarray, sample_weight: np.ndarray | None
) -> tuple[float, float]:
    """The sum of weighted values and the sum of the weights, in float64.

    Args:
        name: Of the metric, for messages.
        values: Of any shape.
        sample_weight: One for each value or each example (a first index of `values`); None counts
            each value once.
    """
    if sample_weight is None:
        return float(np.sum(values, dtype=np.float64)), float(values.size)
    weight = like_values(name, sample_weight, values).astype(np.float64)
    weight = np.broadcast_to(weight, values.shape)
    return float(np.sum(values * weight)), float(np.sum(weight))


def _class_indices(name: str, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    labels: np.ndarray = class_indices(name, y_true, y_pred)
    check_range(f"{name}: labels", labels, y_pred.shape[-1])
    return labels


def _hits(matches: np.ndarray) -> np.ndarray:
    return np.asarray(matches, np.float64)


def _over_outputs(values: np.ndarray) -> np.ndarray:
    return values if values.ndim < 2 else np.mean(values, axis=-1)


def _error(name: str, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    y_true = like_predictions(name, y_true, y_pred)
    return np.subtract(y_pred, y_true, dtype=np.float64)


def _in_top_k(labels: np.ndarray, y_pred: np.ndarray, k: int) -> np.ndarray:
    scores = np.take_along_axis(y_pred, labels[..., np.newaxis], axis=-1)
    # A score that is not a number is larger than nothing and would look like the best.
    return _hits((np.sum(y_pred > scores, axis=-1) < k) & np.isfinite(scores[..., 0]))
