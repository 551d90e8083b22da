"""Sums and means: of plain values, and of what is measured for each example."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..shapes import like_predictions, like_values
from .base import Metric, to_host


class Sum(Metric):
    """The (weighted) sum of values."""

    def __init__(self, name: str = "sum") -> None:
        super().__init__(name)
        self._total = self.add_weight("total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        self._total.assign_add(_weighted_total(self.name, values, sample_weight)[0])

    def result(self) -> float:
        return float(self.total(self._total))


class _WeightedMean(Metric):
    """A metric whose state is the two sums behind a weighted mean."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._total = self.add_weight("total")
        self._count = self.add_weight("count")

    def add(self, values: Any, sample_weight: Any) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        total, count = _weighted_total(self.name, values, sample_weight)
        self._total.assign_add(total)
        self._count.assign_add(count)

    def mean(self) -> float:
        """The mean over all replicas; 0.0 where nothing was counted."""
        count = float(self.total(self._count))
        total = float(self.total(self._total))
        return total / count if count else 0.0


class Mean(_WeightedMean):
    """The (weighted) mean of values."""

    def __init__(self, name: str = "mean") -> None:
        super().__init__(name)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        self.add(values, sample_weight)

    def result(self) -> float:
        return self.mean()


class MeanMetricWrapper(_WeightedMean):
    """The mean of any `fn(y_true, y_pred, **kwargs)` that gives one value for each example.

    A loss function will do. `fn` is given NumPy arrays.
    """

    def __init__(self, fn: Callable[..., Any], name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name or fn.__name__)
        self._fn = fn
        self._kwargs = kwargs

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of labels and predictions, with one weight for each example if given."""
        self.add(self._fn(to_host(y_true), to_host(y_pred), **self._kwargs), sample_weight)

    def result(self) -> float:
        return self.mean()


class MeanSquaredError(MeanMetricWrapper):
    """The mean of `(y_pred - y_true)²`."""

    def __init__(self, name: str = "mean_squared_error") -> None:
        super().__init__(squared_error, name)


class MeanAbsoluteError(MeanMetricWrapper):
    """The mean of `|y_pred - y_true|`."""

    def __init__(self, name: str = "mean_absolute_error") -> None:
        super().__init__(absolute_error, name)


class RootMeanSquaredError(MeanMetricWrapper):
    """The root of the mean of `(y_pred - y_true)²`."""

    def __init__(self, name: str = "root_mean_squared_error") -> None:
        super().__init__(squared_error, name)

    def result(self) -> float:
        return math.sqrt(self.mean())


def squared_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """`(y_pred - y_true)²` in float64, as a mean over outputs."""
    return _over_outputs(np.square(_error("mean_squared_error", y_true, y_pred)))


def absolute_error(y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    """`|y_pred - y_true|` in float64, as a mean over outputs."""
    return _over_outputs(np.abs(_error("mean_absolute_error", y_true, y_pred)))


def _over_outputs(values: np.ndarray) -> np.ndarray:
    return values if values.ndim < 2 else np.mean(values, axis=-1)


def _error(name: str, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
    y_true = like_predictions(name, y_true, y_pred)
    return np.subtract(y_pred, y_true, dtype=np.float64)


def _weighted_total(name: str, values: Any, sample_weight: Any) -> tuple[float, float]:
    """The sum of weighted values and that of weights (of values or examples), in float64."""
    values = to_host(values)
    if sample_weight is None:
        return float(np.sum(values, dtype=np.float64)), float(values.size)
    weight = like_values(name, to_host(sample_weight), values).astype(np.float64)
    weight = np.broadcast_to(weight, values.shape)
    return float(np.sum(values * weight)), float(np.sum(weight))
