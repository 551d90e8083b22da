"""Sums and means: of plain values, and of what is measured for each example."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ...autodiff import Array, effect
from ..function_classes import FunctionClass
from ..masks import mask_of
from ..shapes import like_predictions, like_values
from .base import Metric, batch_of, batch_on_host, to_host, together
from .confusion import ratio


class Sum(Metric):
    """The (weighted) sum of values."""

    def __init__(self, name: str = "sum", dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self._total = self.add_weight("total")

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        values, weight = _with_weights(self.name, values, sample_weight)
        self._total.assign_add(np.sum(values * weight))

    def result(self) -> float:
        return float(self.total(self._total))


class _WeightedMean(Metric):
    """A metric whose state is the two sums behind a weighted mean."""

    def __init__(self, name: str | None, dtype: Any = None) -> None:
        super().__init__(name, dtype)
        self._total = self.add_weight("total")
        self._count = self.add_weight("count")

    def add(self, values: Any, sample_weight: Any) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        values, weight, mask = together(values, sample_weight, mask_of(values))
        if weight is None and mask is None:
            self._total.assign_add(np.sum(values, dtype=np.float64))
            self._count.assign_add(float(values.size))
            return
        values, weight = _with_weights(self.name, values, weight)
        if mask is not None:
            mask = np.broadcast_to(like_values(self.name, mask, values, "mask"), values.shape)
            values, weight = _kept(values, mask), _kept(weight, mask)
        self._total.assign_add(np.sum(values * weight))
        self._count.assign_add(np.sum(weight))

    @effect
    def add_mean(self, mean: Any, num_values: int) -> None:
        """Add so many values of which the mean is known: a number, or a tensor without axes."""
        self.is_updated = True
        (array,) = together(mean)
        self._total.assign_add(array.astype(np.float64) * num_values)
        self._count.assign_add(float(num_values))

    def mean(self) -> float:
        """The mean over all replicas; 0.0 where nothing was counted."""
        count = float(self.total(self._count))
        total = float(self.total(self._total))
        return total / count if count else 0.0


class Mean(_WeightedMean):
    """The (weighted) mean of values."""

    def __init__(self, name: str = "mean", dtype: Any = None) -> None:
        super().__init__(name, dtype)

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add values of any shape; weights are one for each value or for each example."""
        self.add(values, sample_weight)

    def result(self) -> float:
        return self.mean()


class MeanTensor(Metric):
    """The (weighted) mean of arrays of one shape, element by element.

    Args:
        shape: Theirs; by default that of the first.
    """

    def __init__(
        self, name: str = "mean_tensor", dtype: Any = None, shape: tuple[int, ...] | None = None
    ) -> None:
        super().__init__(name, dtype)
        self._shape = shape

    def update_state(self, values: Any, sample_weight: Any = None) -> None:
        """Add an array; weights are of its shape, or one for each of its first axis."""
        values, weight = _with_weights(self.name, values, sample_weight)
        self._shape = values.shape if self._shape is None else tuple(self._shape)
        if values.shape != self._shape:
            raise ValueError(
                f"{self.name}: values must have the shape {self._shape}, of which it takes the "
                f"mean; they have {values.shape}"
            )
        self.add_weight("total", self._shape).assign_add(values * weight)
        self.add_weight("count", self._shape).assign_add(weight)

    def result(self) -> Any:
        """The mean as an array of the values' shape; 0.0 without data."""
        if not self._state:
            return 0.0
        return ratio(self.total(self._state["total"]), self.total(self._state["count"]))


class MeanMetricWrapper(_WeightedMean):
    """The mean of any `fn(y_true, y_pred, **kwargs)` that gives one value for each example.

    A loss function will do. `fn` is given NumPy arrays; those of this package compute where the
    predictions lie, and a GPU is waited for only when the result is asked for.
    """

    def __init__(
        self, fn: Callable[..., Any], name: str | None = None, dtype: Any = None, **kwargs: Any
    ) -> None:
        super().__init__(name or getattr(fn, "__name__", None), dtype)
        self._fn = fn
        self._kwargs = kwargs

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of labels and predictions, with one weight for each example if given."""
        batch = batch_of if getattr(self._fn, "is_anywhere", False) else batch_on_host
        y_true, y_pred, weight = batch(self.name, y_true, y_pred, sample_weight)
        self.add(self._fn(y_true, y_pred, **self._kwargs), weight)

    def result(self) -> float:
        return self.mean()


class MeanOfFunction(FunctionClass, MeanMetricWrapper):
    """A class of metrics, written as `class Poisson(MeanOfFunction, of=poisson)`.

    It takes `name`, `dtype` and the function's options.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        MeanMetricWrapper.__init__(self, type(self).function, **self._bound(args, kwargs))

    @classmethod
    def _all_arguments(cls, options: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"name": cls.function.__name__, "dtype": None, **options}


class MeanRelativeError(_WeightedMean):
    """The mean of `|y_pred - y_true| / normalizer`; where that is 0 an error counts as 0.

    Args:
        normalizer: For each example, as `y_true`; or what broadcasts to predictions of several
            columns, such as one for each column.
    """

    def __init__(
        self, normalizer: Any, name: str = "mean_relative_error", dtype: Any = None
    ) -> None:
        super().__init__(name, dtype)
        self._normalizer = np.asarray(to_host(normalizer), np.float64)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add a batch of labels and predictions, with one weight for each example if given."""
        y_true, y_pred, normalizer = together(y_true, y_pred, self._normalizer)
        y_true = like_predictions(self.name, y_true, y_pred)
        error = np.abs(y_pred.astype(np.float64) - y_true.astype(np.float64))
        has_columns = y_pred.ndim > 1 and y_pred.shape[-1] > 1
        if not has_columns:  # where (n,) would broadcast against (n, 1)
            normalizer = like_predictions(self.name, normalizer, y_pred)
        self.add(ratio(error, np.broadcast_to(normalizer, y_pred.shape)), sample_weight)

    def result(self) -> float:
        return self.mean()


def _with_weights(name: str, values: Any, sample_weight: Any) -> tuple[Array, Array]:
    """Values in float64, and the weight of each (given for each of them, or for each example)."""
    values, weight = together(values, sample_weight)
    values = values.astype(np.float64)
    if weight is None:
        return values, np.ones_like(values)
    weight = like_values(name, weight, values).astype(np.float64)
    return values, np.broadcast_to(weight, values.shape)


def _kept(values: Array, mask: Array) -> Array:
    """What a mask of the values' shape leaves; on a GPU, which alone knows how many, zeros else."""
    return values[mask] if isinstance(values, np.ndarray) else np.where(mask, values, 0.0)
