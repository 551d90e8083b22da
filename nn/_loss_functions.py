"""The losses as functions: one value for each example, under Keras's names.

`y_true` is an array (or tensor) of labels, `y_pred` a tensor or array of predictions; the result is
a tensor with the dtype of the predictions. Losses of several outputs are means over the last axis,
so that (n, d) gives (n,). Predictions of shape (n,) are one number for each example and give (n,).
(Keras would take the mean over them, which a later division by the batch would not notice.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..autodiff import Tensor, sigmoid_cross_entropy, softmax_cross_entropy
from ._shapes import as_tensor, class_indices, like_predictions

_SMALLEST_PROBABILITY = 1e-7
"""Probabilities are kept this far from 0 and 1 before their logarithm is taken, as in Keras."""


def mean_squared_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `(y_pred - y_true)²`."""
    y_true, y_pred = _matched("mean_squared_error", y_true, y_pred)
    return _over_outputs(np.square(y_pred - y_true))


def mean_absolute_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `|y_pred - y_true|`."""
    y_true, y_pred = _matched("mean_absolute_error", y_true, y_pred)
    return _over_outputs(np.abs(y_pred - y_true))


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Tensor:
    """Half the squared error up to an error of `delta`, and linear beyond it: Huber (1964)."""
    y_true, y_pred = _matched("huber", y_true, y_pred)
    error = y_pred - y_true
    magnitude = np.abs(error)
    quadratic = 0.5 * np.square(error)
    linear = delta * magnitude - 0.5 * delta * delta
    return _over_outputs(np.where(magnitude.data <= delta, quadratic, linear))


def binary_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0
) -> Tensor:
    """The mean of `-y·log p - (1 - y)·log(1 - p)`.

    Args:
        y_true: Labels in [0, 1].
        y_pred: Probabilities, or logits.
        from_logits: Whether `y_pred` are logits z, with p = sigmoid(z): the exact way.
        label_smoothing: Move labels this share of the way to one half.
    """
    y_true, y_pred = _matched("binary_crossentropy", y_true, y_pred)
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + 0.5 * label_smoothing
    if from_logits:
        return _over_outputs(sigmoid_cross_entropy(y_pred, y_true))
    p = np.clip(y_pred, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
    return _over_outputs(-(y_true * np.log(p) + (1 - y_true) * np.log(1 - p)))


def categorical_crossentropy(
    y_true: Any, y_pred: Any, from_logits: bool = False, label_smoothing: float = 0.0
) -> Tensor:
    """`-Σ y·log p` over the last axis, the classes.

    Args:
        y_true: A distribution over the classes (one-hot, or soft) for each example, (..., classes).
        y_pred: Probabilities, scaled to add up to 1 if they do not, or logits, (..., classes).
        from_logits: Whether `y_pred` are logits z, with p = softmax(z): the exact way.
        label_smoothing: Move labels this share of the way to the uniform distribution.

    Returns:
        (...): one loss for each example.
    """
    y_true, y_pred = _matched("categorical_crossentropy", y_true, y_pred)
    if label_smoothing:
        y_true = y_true * (1.0 - label_smoothing) + label_smoothing / y_pred.shape[-1]
    if not from_logits:
        y_pred = y_pred / np.sum(y_pred, axis=-1, keepdims=True)
        p = np.clip(y_pred, _SMALLEST_PROBABILITY, 1 - _SMALLEST_PROBABILITY)
        return -np.sum(y_true * np.log(p), axis=-1)
    return softmax_cross_entropy(y_pred, y_true)


def sparse_categorical_crossentropy(y_true: Any, y_pred: Any, from_logits: bool = False) -> Tensor:
    """`-log p[y]`: the categorical cross-entropy of labels that are class numbers.

    Args:
        y_true: Class numbers in [0, classes), (...) or (..., 1).
        y_pred: Probabilities, scaled to add up to 1 if they do not, or logits, (..., classes).
        from_logits: Whether `y_pred` are logits z, with p = softmax(z): the exact way.

    Returns:
        (...): one loss for each example.

    Raises:
        ValueError: A label is out of range.
    """
    y_pred = _floats(y_pred)
    labels = class_indices("sparse_categorical_crossentropy", as_tensor(y_true).data, y_pred)
    if not from_logits:
        y_pred = np.log(np.maximum(y_pred, _SMALLEST_PROBABILITY))
    return softmax_cross_entropy(y_pred, labels)


def _matched(name: str, y_true: Any, y_pred: Any) -> tuple[Any, Any]:
    """Predictions as floats, and labels in their shape and dtype."""
    y_pred = _floats(y_pred)
    y_true = like_predictions(name, as_tensor(y_true), y_pred)
    return y_true.astype(y_pred.dtype), y_pred


def _floats(y_pred: Any) -> Tensor:
    y_pred = as_tensor(y_pred)
    return y_pred if y_pred.dtype.kind == "f" else y_pred.astype(np.float32)


def _over_outputs(values: Any) -> Tensor:
    return values if values.ndim < 2 else values.mean(axis=-1)
