"""`tf.losses` of TensorFlow 1: functions of labels and predictions that give one number.

TensorFlow 2 has Keras's classes here, and so has this module. Its functions, which give one value
for each example, are in `tf.keras.losses`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ... import nn
from ..names import NameTable, serve
from . import nn as tf_nn
from .advice import advice
from .conversion import convert, plain

__getattr__, __dir__ = serve(NameTable(__name__, ("nn.losses",), advice=advice))


class Reduction:
    """How the losses of examples become one: TensorFlow 2's values, as heads and Keras take them.

    The last three names are those of TensorFlow 1 alone, for the functions of this module.
    """

    AUTO = nn.losses.Reduction.AUTO
    NONE = nn.losses.Reduction.NONE
    SUM = nn.losses.Reduction.SUM
    SUM_OVER_BATCH_SIZE = nn.losses.Reduction.SUM_OVER_BATCH_SIZE
    MEAN = "weighted_mean"
    SUM_BY_NONZERO_WEIGHTS = SUM_OVER_NONZERO_WEIGHTS = "weighted_sum_by_nonzero_weights"


class ReductionV1:
    """`tf.compat.v1.losses.Reduction`: the same with TensorFlow 1's values."""

    NONE = "none"
    SUM = "weighted_sum"
    SUM_OVER_BATCH_SIZE = "weighted_sum_over_batch_size"
    MEAN = Reduction.MEAN
    SUM_BY_NONZERO_WEIGHTS = SUM_OVER_NONZERO_WEIGHTS = Reduction.SUM_BY_NONZERO_WEIGHTS


_DIVISORS: Mapping[str, Callable[[np.ndarray], float]] = {
    "weighted_sum": lambda weights: 1.0,
    "weighted_mean": np.sum,
    "weighted_sum_over_batch_size": np.size,
    "weighted_sum_by_nonzero_weights": np.count_nonzero,
}
"""By the reduction, what the sum of weighted losses is divided by."""


def compute_weighted_loss(
    losses: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = None,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:
    """Losses times weights as one number: by default divided by the number of weights but zeros.

    Raises:
        ValueError: There is no such reduction.
    """
    losses = convert(losses)
    weighted = losses * convert(weights)
    if reduction == Reduction.NONE:
        return weighted
    name = reduction if reduction in _DIVISORS else f"weighted_{reduction}"
    if name not in _DIVISORS or reduction == nn.losses.Reduction.MEAN:
        known = ", ".join(map(repr, ("none", *_DIVISORS)))
        raise ValueError(f"reduction must be one of {known}, it is {reduction!r}")
    counted = np.broadcast_to(plain(weights), losses.shape)
    return np.sum(weighted) / max(float(_DIVISORS[name](counted)), 1e-12)


def _of_predictions(element: Callable[..., Any]) -> Callable[..., Any]:
    def loss(
        labels: Any = None,
        predictions: Any = None,
        weights: Any = 1.0,
        scope: str | None = None,
        loss_collection: Any = None,
        reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
        **numbers: float,
    ) -> Any:
        labels, predictions = convert(labels), convert(predictions)
        if labels.shape != predictions.shape:
            raise ValueError(
                f"labels have shape {labels.shape} and predictions {predictions.shape}; reshape "
                f"one, as with tf.squeeze: they would be broadcast against each other"
            )
        losses = element(labels.astype(predictions.dtype), predictions, **numbers)
        return compute_weighted_loss(losses, weights, reduction=reduction)

    return loss


def _huber(y: Any, p: Any, delta: float = 1.0) -> Any:
    error = np.abs(p - y)
    inside = np.minimum(error, delta)
    return inside * inside / 2 + delta * (error - inside)


def _log(y: Any, p: Any, epsilon: float = 1e-7) -> Any:
    return -y * np.log(p + epsilon) - (1 - y) * np.log(1 - p + epsilon)


mean_squared_error = _of_predictions(lambda y, p: np.square(p - y))
absolute_difference = _of_predictions(lambda y, p: np.abs(p - y))
huber_loss = _of_predictions(_huber)
log_loss = _of_predictions(_log)


def cosine_distance(
    labels: Any,
    predictions: Any,
    axis: int | None = None,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = None,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
    dim: int | None = None,
) -> Any:
    """One minus the scalar product along `axis` of vectors that have length one already.

    Args:
        labels, predictions: Of one shape.
        axis, dim: The axis of the vectors, by its new or its old name.
        weights, scope, loss_collection, reduction: See `compute_weighted_loss`.

    Raises:
        ValueError: There is no axis, or there are two, or the shapes are not one.
    """
    if (axis is None) == (dim is None):
        raise ValueError(f"cosine_distance: axis must be given, got {axis} and dim={dim}")
    labels, predictions = convert(labels), convert(predictions)
    if labels.shape != predictions.shape:
        raise ValueError(
            f"labels have shape {labels.shape} and predictions {predictions.shape}; reshape one"
        )
    along = dim if axis is None else axis
    losses = 1 - np.sum(labels * predictions, axis=along, keepdims=True)
    return compute_weighted_loss(losses, weights, reduction=reduction)


def hinge_loss(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = None,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:
    """The hinge loss of labels 0 and 1."""
    signs = 2 * convert(labels) - 1
    losses = nn.relu(1 - signs * convert(logits))
    return compute_weighted_loss(losses, weights, reduction=reduction)


def sparse_softmax_cross_entropy(
    labels: Any,
    logits: Any,
    weights: Any = 1.0,
    scope: str | None = None,
    loss_collection: Any = None,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:
    """The cross entropy of class numbers and logits."""
    classes = plain(labels)
    scores = convert(logits)
    if classes.ndim == scores.ndim:
        classes = classes[..., 0]
    losses = tf_nn.sparse_softmax_cross_entropy_with_logits(classes, scores)
    return compute_weighted_loss(losses, weights, reduction=reduction)


def softmax_cross_entropy(
    onehot_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: Any = None,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:
    """The cross entropy of rows of probabilities and logits."""
    labels = convert(onehot_labels).astype(np.float32)
    labels = labels * (1 - label_smoothing) + label_smoothing / labels.shape[-1]
    losses = tf_nn.softmax_cross_entropy_with_logits(labels, logits)
    return compute_weighted_loss(losses, weights, reduction=reduction)


def sigmoid_cross_entropy(
    multi_class_labels: Any,
    logits: Any,
    weights: Any = 1.0,
    label_smoothing: float = 0,
    scope: str | None = None,
    loss_collection: Any = None,
    reduction: str = Reduction.SUM_BY_NONZERO_WEIGHTS,
) -> Any:
    """The cross entropy of labels 0 and 1 and logits."""
    labels = convert(multi_class_labels).astype(np.float32)
    labels = labels * (1 - label_smoothing) + label_smoothing / 2
    losses = tf_nn.sigmoid_cross_entropy_with_logits(labels, logits)
    return compute_weighted_loss(losses, weights, reduction=reduction)
