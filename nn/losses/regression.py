"""Losses of predicted numbers, counts and directions.

The mean is over the last axis: see the package about shapes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...autodiff import Tensor
from ..shapes import matched, over_outputs
from .base import ClassOfFunction

EPSILON = 1e-7
"""How near to zero a divisor or the argument of a logarithm may come, as in Keras."""


def mean_squared_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `(y_pred - y_true)²`."""
    y_true, y_pred = matched("mean_squared_error", y_true, y_pred)
    return over_outputs(np.square(y_pred - y_true))


def mean_absolute_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `|y_pred - y_true|`."""
    y_true, y_pred = matched("mean_absolute_error", y_true, y_pred)
    return over_outputs(np.abs(y_pred - y_true))


def mean_absolute_percentage_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `100 · |y_pred - y_true| / |y_true|`, in percent."""
    y_true, y_pred = matched("mean_absolute_percentage_error", y_true, y_pred)
    return 100 * over_outputs(np.abs((y_pred - y_true) / np.maximum(np.abs(y_true), EPSILON)))


def mean_squared_logarithmic_error(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `(log(1 + y_pred) - log(1 + y_true))²`; below zero both count as zero."""
    y_true, y_pred = matched("mean_squared_logarithmic_error", y_true, y_pred)
    logarithms = [np.log1p(np.maximum(y, EPSILON)) for y in (y_pred, y_true)]
    return over_outputs(np.square(logarithms[0] - logarithms[1]))


def huber(y_true: Any, y_pred: Any, delta: float = 1.0) -> Tensor:
    """Half the squared error up to an error of `delta`, and linear beyond it: Huber (1964)."""
    y_true, y_pred = matched("huber", y_true, y_pred)
    error = y_pred - y_true
    magnitude = np.abs(error)
    quadratic = 0.5 * np.square(error)
    linear = delta * magnitude - 0.5 * delta * delta
    # The two meet at delta with one slope: it does not matter whose gradient is taken there.
    return over_outputs(np.where(magnitude <= delta, quadratic, linear))


def log_cosh(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `log(cosh(y_pred - y_true))`: about half the square where it is small."""
    y_true, y_pred = matched("log_cosh", y_true, y_pred)
    error = y_pred - y_true
    # cosh(x) = (exp(x) + exp(-x)) / 2 without the exponentials, which overflow
    return over_outputs(np.logaddexp(error, -error) - math.log(2))


def poisson(y_true: Any, y_pred: Any) -> Tensor:
    """The mean of `y_pred - y_true · log(y_pred)`: of counts, whose expectation is predicted."""
    y_true, y_pred = matched("poisson", y_true, y_pred)
    return over_outputs(y_pred - y_true * np.log(y_pred + EPSILON))


def cosine_similarity(y_true: Any, y_pred: Any, axis: int = -1) -> Tensor:
    """Minus the cosine of the angle between labels and predictions: -1 where they agree.

    Args:
        y_true, y_pred: Vectors along `axis`; one of zeros is at right angles to all.
        axis: Along which they lie.
    """
    y_true, y_pred = matched("cosine_similarity", y_true, y_pred)
    return -np.sum(_unit(y_true, axis) * _unit(y_pred, axis), axis=axis)


def _unit(vectors: Any, axis: int) -> Any:
    squares = np.sum(np.square(vectors), axis=axis, keepdims=True)
    return vectors / np.sqrt(np.maximum(squares, 1e-12))


class MeanSquaredError(ClassOfFunction, of=mean_squared_error):
    """See `mean_squared_error`."""


class MeanAbsoluteError(ClassOfFunction, of=mean_absolute_error):
    """See `mean_absolute_error`."""


class MeanAbsolutePercentageError(ClassOfFunction, of=mean_absolute_percentage_error):
    """See `mean_absolute_percentage_error`."""


class MeanSquaredLogarithmicError(ClassOfFunction, of=mean_squared_logarithmic_error):
    """See `mean_squared_logarithmic_error`."""


class Huber(ClassOfFunction, of=huber):
    """See `huber`."""


class LogCosh(ClassOfFunction, of=log_cosh):
    """See `log_cosh`."""


class Poisson(ClassOfFunction, of=poisson):
    """See `poisson`."""


class CosineSimilarity(ClassOfFunction, of=cosine_similarity):
    """See `cosine_similarity`."""
