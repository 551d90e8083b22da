"""Sums and means: of plain values, and of errors."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np

from .base import Metric, WeightedMean, to_host
from .measures import absolute_error, squared_error, weighted_total


class Mean(Metric):
    """The (weighted) mean of values."""

    def __init__(self, name: str = "mean") -> None:
        super().__init__(name)
        self._mean = WeightedMean(self)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        weight = None if sample_weight is None else to_host(sample_weight)
        self._mean.add(*weighted_total(self.name, to_host(values), weight))

    def result(self) -> float:
        return self._mean.result()


class Sum(Metric):
    """The (weighted) sum of values."""

    def __init__(self, name: str = "sum") -> None:
        super().__init__(name)
        self._total = self.add_weight("total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        weight = None if sample_weight is None else to_host(sample_weight)
        self._total.assign_add(weighted_total(self.name, to_host(values), weight)[0])

    def result(self) -> float:
        return float(self.total(self._total))


class ExampleMean(Metric):
    """The mean over examples of something that is measured for each. A subclass measures."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._mean = WeightedMean(self)

    @abstractmethod
    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> Any:
        """One value for each example."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of labels and predictions, with one weight for each example if given."""
        values = to_host(self.measure(to_host(y_true), to_host(y_pred)))
        weight = None if sample_weight is None else to_host(sample_weight)
        self._mean.add(*weighted_total(self.name, values, weight))

    def result(self) -> float:
        return self._mean.result()


class MeanMetricWrapper(ExampleMean):
    """The mean of any `fn(y_true, y_pred, **kwargs)` that gives one value for each example.

    A loss function will do. `fn` is given NumPy arrays.
    """

    def __init__(self, fn: Callable[..., Any], name: str | None = None, **kwargs: Any) -> None:
        super().__init__(name or fn.__name__)
        self._fn = fn
        self._kwargs = kwargs

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> Any:
        return self._fn(y_true, y_pred, **self._kwargs)


class MeanSquaredError(ExampleMean):
    """The mean of `(y_pred - y_true)²`."""

    def __init__(self, name: str = "mean_squared_error") -> None:
        super().__init__(name)

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return squared_error(y_true, y_pred)


class MeanAbsoluteError(ExampleMean):
    """The mean of `|y_pred - y_true|`."""

    def __init__(self, name: str = "mean_absolute_error") -> None:
        super().__init__(name)

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return absolute_error(y_true, y_pred)


class RootMeanSquaredError(Metric):
    """The root of the mean of `(y_pred - y_true)²`."""

    def __init__(self, name: str = "root_mean_squared_error") -> None:
        super().__init__(name)
        self._mean = WeightedMean(self)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of labels and predictions, with one weight for each example if given."""
        values = squared_error(to_host(y_true), to_host(y_pred))
        weight = None if sample_weight is None else to_host(sample_weight)
        self._mean.add(*weighted_total(self.name, values, weight))

    def result(self) -> float:
        return math.sqrt(self._mean.result())
