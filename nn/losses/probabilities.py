"""Losses of predicted probabilities, or of the logits behind them: cross-entropies and kin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autodiff import (
    Tensor,
    log_softmax,
    sigmoid,
    sigmoid_cross_entropy,
    softmax_cross_entropy,
)
from ..masks import with_mask
from ..shapes import as_tensor, class_indices, floats, matched, over_outputs
from .base import ClassOfFunction

SMALLEST_PROBABILITY = 1e-7
"""Probabilities are kept this far from 0 and 1 before their logarithm is taken, as in Keras."""


def binary_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """The mean of `-y·log p - (1 - y)·log(1 - p)`.

    Args:
        y_true: Labels in [0, 1].
        y_pred: Probabilities, or logits.
        from_logits: Whether `y_pred` are logits z, with p = sigmoid(z): the exact way.
        label_smoothing: Move labels this share of the way to one half.
        axis: Over which the mean is taken.
    """
    y_true, y_pred = matched("binary_crossentropy", y_true, y_pred)
    y_true = _smoothed(y_true, label_smoothing, 2)
    return over_outputs(_binary(y_true, y_pred, from_logits), axis)


def binary_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    apply_class_balancing: bool = False,
    alpha: float = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """The binary cross-entropy times `(1 - q)^gamma`, where q is the label's probability.

    What is predicted well counts for little: Lin et al. (2017).

    Args:
        y_true, y_pred, from_logits, label_smoothing, axis: See `binary_crossentropy`.
        apply_class_balancing: Whether positive examples count `alpha` times, and negative ones
            1 - `alpha` times.
        alpha: In [0, 1].
        gamma: At least 0, where it is the cross-entropy itself.
    """
    y_true, y_pred = matched("binary_focal_crossentropy", y_true, y_pred)
    y_true = _smoothed(y_true, label_smoothing, 2)
    # 1 - sigmoid(z) is sigmoid(-z), which has the digits that the difference loses
    p, not_p = (sigmoid(y_pred), sigmoid(-y_pred)) if from_logits else (y_pred, 1 - y_pred)
    missed = y_true * not_p + (1 - y_true) * p
    losses = missed**gamma * _binary(y_true, y_pred, from_logits)
    if apply_class_balancing:
        losses = losses * (y_true * alpha + (1 - y_true) * (1 - alpha))
    return over_outputs(losses, axis)


def categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """`-Σ y·log p` over the classes: (...), one loss for each example.

    Args:
        y_true: A distribution over the classes (one-hot, or soft) for each example, (..., classes).
        y_pred: Probabilities, scaled to add up to 1 if they do not, or logits, (..., classes).
        from_logits: Whether `y_pred` are logits z, with p = softmax(z): the exact way.
        label_smoothing: Move labels this share of the way to the uniform distribution.
        axis: Which one the classes are.
    """
    y_true, y_pred = matched("categorical_crossentropy", y_true, y_pred)
    y_true, y_pred = _classes_last(y_true, axis), _classes_last(y_pred, axis)
    y_true = _smoothed(y_true, label_smoothing, y_pred.shape[-1])
    if from_logits:
        return softmax_cross_entropy(y_pred, y_true)
    return -np.sum(y_true * np.log(_distribution(y_pred)), axis=-1)


def categorical_focal_crossentropy(
    y_true: Any,
    y_pred: Any,
    alpha: float | Sequence[float] = 0.25,
    gamma: float = 2.0,
    from_logits: bool = False,
    label_smoothing: float = 0.0,
    axis: int = -1,
) -> Tensor:
    """`-Σ alpha · (1 - p)^gamma · y·log p` over the classes: Lin et al. (2017).

    Args:
        y_true, y_pred, from_logits, label_smoothing, axis: See `categorical_crossentropy`.
        alpha: What each class counts, or all.
        gamma: At least 0; the larger, the less counts what is predicted well.
    """
    y_true, y_pred = matched("categorical_focal_crossentropy", y_true, y_pred)
    y_true, y_pred = _classes_last(y_true, axis), _classes_last(y_pred, axis)
    y_true = _smoothed(y_true, label_smoothing, y_pred.shape[-1])
    log_p = log_softmax(y_pred) if from_logits else np.log(_distribution(y_pred))
    missed = -np.expm1(log_p)  # 1 - p, with the digits that the difference loses
    each = np.asarray(alpha, y_pred.dtype, like=y_pred.like())
    return -np.sum(each * missed**gamma * (y_true * log_p), axis=-1)


def sparse_categorical_crossentropy(
    y_true: Any,
    y_pred: Any,
    from_logits: bool = False,
    ignore_class: int | None = None,
    axis: int = -1,
) -> Tensor:
    """`-log p[y]`: the categorical cross-entropy of labels that are class numbers.

    Args:
        y_true: Class numbers in [0, classes), (...) or (..., 1).
        y_pred, from_logits, axis: See `categorical_crossentropy`.
        ignore_class: Examples with this label, which need be no class, cost nothing; what is
            returned carries a mask that has a loss object leave them out of its mean.

    Raises:
        ValueError: A label is out of range.
    """
    y_pred = _classes_last(floats(y_pred), axis)
    labels = class_indices("sparse_categorical_crossentropy", as_tensor(y_true), y_pred)
    if not from_logits:  # logarithms of shares are logits: softmax(log(p)) scales p to a sum of 1
        y_pred = np.log(np.maximum(y_pred, SMALLEST_PROBABILITY))
    if ignore_class is None:
        return softmax_cross_entropy(y_pred, labels)
    counts = labels != ignore_class
    losses = softmax_cross_entropy(y_pred, np.where(counts, labels, 0))
    return with_mask(np.where(counts, losses, 0), counts)


def kl_divergence(y_true: Any, y_pred: Any) -> Tensor:
    """`Σ y·log(y / p)` over the last axis: Kullback and Leibler (1951)."""
    y_true, y_pred = matched("kl_divergence", y_true, y_pred)
    y, p = (np.clip(values, SMALLEST_PROBABILITY, 1) for values in (y_true, y_pred))
    return np.sum(y * np.log(y / p), axis=-1)


def _binary(y_true: Tensor, y_pred: Tensor, from_logits: bool) -> Tensor:
    if from_logits:
        return sigmoid_cross_entropy(y_pred, y_true)
    # Clipped, a hopeless prediction costs 16 and not infinity; it has no gradient out of there.
    p = np.clip(y_pred, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)
    return -(y_true * np.log(p) + (1 - y_true) * np.log(1 - p))


def _distribution(y_pred: Tensor) -> Tensor:
    """Probabilities that add up to 1, none of them hopeless."""
    p = y_pred / np.sum(y_pred, axis=-1, keepdims=True)
    return np.clip(p, SMALLEST_PROBABILITY, 1 - SMALLEST_PROBABILITY)


def _classes_last(values: Any, axis: int) -> Any:
    return values if axis == -1 or axis == values.ndim - 1 else np.moveaxis(values, axis, -1)


def _smoothed(y_true: Tensor, label_smoothing: float, num_classes: int) -> Tensor:
    """Labels moved a share of the way to the uniform distribution."""
    if not label_smoothing:
        return y_true
    return y_true * (1 - label_smoothing) + label_smoothing / num_classes


class BinaryCrossentropy(ClassOfFunction, of=binary_crossentropy):
    """See `binary_crossentropy`."""


class BinaryFocalCrossentropy(ClassOfFunction, of=binary_focal_crossentropy):
    """See `binary_focal_crossentropy`."""


class CategoricalCrossentropy(ClassOfFunction, of=categorical_crossentropy):
    """See `categorical_crossentropy`."""


class CategoricalFocalCrossentropy(ClassOfFunction, of=categorical_focal_crossentropy):
    """See `categorical_focal_crossentropy`."""


class SparseCategoricalCrossentropy(ClassOfFunction, of=sparse_categorical_crossentropy):
    """See `sparse_categorical_crossentropy`."""


class KLDivergence(ClassOfFunction, of=kl_divergence):
    """See `kl_divergence`."""
