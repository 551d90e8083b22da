"""Losses of margins: how far a score is from the right side of a boundary."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...autodiff import Tensor, operation, relu
from ..shapes import matched, over_outputs
from .base import ClassOfFunction


def hinge(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `max(1 - y·z, 0)`; labels y are -1 and 1, or 0 and 1."""
    return over_outputs(_short_of_margin("hinge", y_true, y_pred))


def squared_hinge(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `max(1 - y·z, 0)²`; labels y are -1 and 1, or 0 and 1."""
    return over_outputs(np.square(_short_of_margin("squared_hinge", y_true, y_pred)))


def categorical_hinge(y_true: Any, y_pred: Any) -> Tensor:
    """`max(1 + n - p, 0)`: p is the score of the label's class, n the best one of the others.

    Args:
        y_true: One-hot labels, (..., classes).
        y_pred: Scores, (..., classes).
    """
    y_true, y_pred = matched("categorical_hinge", y_true, y_pred)
    of_label = np.sum(y_true * y_pred, axis=-1)
    of_others = np.max((1 - y_true) * y_pred, axis=-1)
    return relu(of_others - of_label + 1)


@operation
def _short_of_margin(name: str, y_true: Any, y_pred: Any) -> Tensor:
    """What each score lacks of a margin of 1.

    On a GPU, which is not waited for to look at labels, it is "not a number" where these are wrong.

    Raises:
        ValueError: Labels are neither -1 and 1 nor 0 and 1. (Keras takes 0 for -1 where a batch has
            no other label, so that its meaning would depend on how the data is cut.)
    """
    y_true, y_pred = matched(name, y_true, y_pred)
    labels = y_true.data
    is_zero = labels == 0
    is_known = is_zero | (np.abs(labels) == 1)
    is_one_kind = ~(is_zero.any() & (labels == -1).any())
    if not isinstance(labels, np.ndarray):
        y_pred = np.where(is_known & is_one_kind, y_pred, np.nan)
    elif not (is_known.all() and is_one_kind):
        raise ValueError(f"{name}: labels must be -1 and 1, or 0 and 1, y_true holds others")
    return relu(1 - np.where(is_zero, -1, y_true) * y_pred)


class Hinge(ClassOfFunction, of=hinge):
    """See `hinge`."""


class SquaredHinge(ClassOfFunction, of=squared_hinge):
    """See `squared_hinge`."""


class CategoricalHinge(ClassOfFunction, of=categorical_hinge):
    """See `categorical_hinge`."""
