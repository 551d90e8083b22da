"""Means of losses, measured in float64."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from .. import losses
from .base import anywhere, together
from .means import MeanMetricWrapper, MeanOfFunction


def _in_double(loss: Callable[..., Any]) -> Callable[..., Any]:
    @anywhere
    @wraps(loss)
    def measured(y_true: Any, y_pred: Any, **options: Any) -> Any:
        y_true, y_pred = together(y_true, y_pred)
        return loss(y_true, y_pred.astype(np.float64), **options)

    return measured


@_in_double
def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Any:
    """The cosine of the angle between labels and predictions: 1 where they agree."""
    return -losses.cosine_similarity(y_true, y_pred, axis)


class MeanSquaredError(MeanOfFunction, of=_in_double(losses.mean_squared_error)):
    """The mean of `(y_pred - y_true)²`."""


class RootMeanSquaredError(MeanMetricWrapper):
    """The root of the mean of `(y_pred - y_true)²`."""

    def __init__(self, name: str = "root_mean_squared_error", dtype: Any = None) -> None:
        super().__init__(_in_double(losses.mean_squared_error), name, dtype)

    def result(self) -> float:
        return math.sqrt(self.mean())


class MeanAbsoluteError(MeanOfFunction, of=_in_double(losses.mean_absolute_error)):
    """The mean of `|y_pred - y_true|`."""


class MeanAbsolutePercentageError(
    MeanOfFunction, of=_in_double(losses.mean_absolute_percentage_error)
):
    """The mean of `100 · |y_pred - y_true| / |y_true|`."""


class MeanSquaredLogarithmicError(
    MeanOfFunction, of=_in_double(losses.mean_squared_logarithmic_error)
):
    """The mean of `(log(1 + y_pred) - log(1 + y_true))²`."""


class LogCoshError(MeanOfFunction, of=_in_double(losses.log_cosh)):
    """The mean of `log(cosh(y_pred - y_true))`."""


class Poisson(MeanOfFunction, of=_in_double(losses.poisson)):
    """The mean of `y_pred - y_true · log(y_pred)`."""


class CosineSimilarity(MeanOfFunction, of=cosine_similarity):
    """The mean cosine of the angle between labels and predictions: 1 where they agree."""


class BinaryCrossentropy(MeanOfFunction, of=_in_double(losses.binary_crossentropy)):
    """The mean of `-y·log p - (1 - y)·log(1 - p)`; see `losses.binary_crossentropy`."""


class CategoricalCrossentropy(MeanOfFunction, of=_in_double(losses.categorical_crossentropy)):
    """The mean of `-Σ y·log p` over the classes; see `losses.categorical_crossentropy`."""


class SparseCategoricalCrossentropy(
    MeanOfFunction, of=_in_double(losses.sparse_categorical_crossentropy)
):
    """The mean of `-log p[y]`; see `losses.sparse_categorical_crossentropy`."""


class KLDivergence(MeanOfFunction, of=_in_double(losses.kl_divergence)):
    """The mean of `Σ y·log(y / p)` over the last axis."""


class Hinge(MeanOfFunction, of=_in_double(losses.hinge)):
    """The mean of `max(1 - y·z, 0)`; labels y are -1 and 1, or 0 and 1."""


class SquaredHinge(MeanOfFunction, of=_in_double(losses.squared_hinge)):
    """The mean of `max(1 - y·z, 0)²`; labels y are -1 and 1, or 0 and 1."""


class CategoricalHinge(MeanOfFunction, of=_in_double(losses.categorical_hinge)):
    """The mean of `max(1 + n - p, 0)`: the label's score p, and n the best of the others."""
