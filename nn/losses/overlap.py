"""Losses of regions: how little what is predicted overlaps with what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autodiff import Tensor
from ..shapes import matched
from .base import ClassOfFunction
from .reduction import is_one_of_several

_EPSILON = 1e-7


def dice(y_true: Any, y_pred: Any, axis: int | Sequence[int] | None = None) -> Tensor:
    """`1 - 2·Σ(y·p) / (Σy + Σp)`: Dice (1945); 0 where the regions are equal, 1 where apart.

    Args:
        y_true: 1 within the region and 0 elsewhere.
        y_pred: Probabilities, of the same shape.
        axis: Over which the sums are taken; those of an example, such as (1, 2, 3), give one loss
            for each. None takes the whole batch as one region.

    Raises:
        ValueError: `axis` is None in one of several replicas: a ratio of sums over parts of a batch
            is not that over the batch.
    """
    y_true, y_pred, axis = _regions("dice", y_true, y_pred, axis)
    overlap = np.sum(y_true * y_pred, axis=axis)
    return 1 - 2 * overlap / (np.sum(y_true + y_pred, axis=axis) + _EPSILON)


def tversky(
    y_true: Any,
    y_pred: Any,
    alpha: float = 0.5,
    beta: float = 0.5,
    axis: int | Sequence[int] | None = None,
) -> Tensor:
    """`1 - TP / (TP + alpha·FP + beta·FN)`: Salehi et al. (2017). With halves it is `dice`.

    (Keras 3 has `alpha` and `beta` the other way round, against its own documentation.)

    Args:
        y_true, y_pred, axis: See `dice`.
        alpha: What predicting the region where it is not counts.
        beta: What not predicting it where it is counts.
    """
    y_true, y_pred, axis = _regions("tversky", y_true, y_pred, axis)
    overlap = np.sum(y_true * y_pred, axis=axis)
    too_much = np.sum((1 - y_true) * y_pred, axis=axis)
    too_little = np.sum(y_true * (1 - y_pred), axis=axis)
    return 1 - overlap / (overlap + alpha * too_much + beta * too_little + _EPSILON)


def _regions(name: str, y_true: Any, y_pred: Any, axis: Any) -> tuple[Tensor, Tensor, Any]:
    if axis is None and is_one_of_several():
        raise ValueError(
            f"{name} with axis=None takes a batch as one region, and here each replica has a part "
            f"of it; name the axes of an example, as in axis=(1, 2, 3)"
        )
    y_true, y_pred = matched(name, y_true, y_pred)
    return y_true, y_pred, tuple(axis) if isinstance(axis, Sequence) else axis


class Dice(ClassOfFunction, of=dice):
    """See `dice`."""


class Tversky(ClassOfFunction, of=tversky):
    """See `tversky`."""
