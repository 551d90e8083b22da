"""Precision, recall, and the counts behind them, at thresholds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autodiff import Array
from ..arguments import count
from .base import Metric, batch_of
from .confusion import Confusion, confusion, histogram, precision, sensitivity


class Counts:
    """Histograms over thresholds as part of a metric's state: "negatives" and "positives".

    Args:
        metric: Whose state it is.
        thresholds: (k,) float64, rising.
        num_labels: How many are counted, each for itself; None counts all predictions together.
    """

    def __init__(
        self, metric: Metric, thresholds: np.ndarray, num_labels: int | None = None
    ) -> None:
        self._thresholds = thresholds
        self.num_labels = num_labels
        bins = (len(thresholds) + 1,)
        shape = bins if num_labels is None else (num_labels, *bins)
        self._metric = metric
        self._parts = [metric.add_weight(name, shape) for name in ("negatives", "positives")]

    def add(self, y_true: Array, y_pred: Array, weight: Array | None) -> None:
        name, by_label = self._metric.name, self.num_labels is not None
        found = histogram(name, y_true, y_pred, self._thresholds, weight, by_label)
        for part, delta in zip(self._parts, found, strict=True):
            part.assign_add(delta)

    def confusions(self) -> list[Confusion]:
        """Of all predictions, or of each label."""
        parts = np.stack([self._metric.total(part) for part in self._parts])
        labels = parts.reshape(2, -1, parts.shape[-1])
        return [confusion(labels[:, i]) for i in range(labels.shape[1])]


class AtThresholds(Metric):
    """A figure from the counts at each threshold. A subclass says which."""

    def __init__(
        self,
        thresholds: float | Sequence[float] | None,
        name: str | None,
        dtype: Any,
        top_k: int | None = None,
        class_id: int | None = None,
    ) -> None:
        super().__init__(name, dtype)
        self._top_k = None if top_k is None else count("top_k", top_k)
        self._class_id = class_id
        self._takes_best = top_k is not None and thresholds is None
        self._counts = Counts(self, np.array(checked_thresholds(thresholds)))
        self._is_scalar = thresholds is None or np.isscalar(thresholds)

    @abstractmethod
    def figure(self, counts: Confusion) -> np.ndarray:
        """The figure at each threshold."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add labels 0 or 1 and predictions in [0, 1], with a weight for each example if given."""
        y_true, y_pred, weight = batch_of(self.name, y_true, y_pred, sample_weight)
        if self._top_k is not None:
            best = among_best(y_pred, self._top_k)
            y_pred = best.astype(np.float64) if self._takes_best else np.where(best, y_pred, 0)
        self._counts.add(*of_class(self.name, y_true, y_pred, self._class_id), weight)

    def result(self) -> Any:
        (counts,) = self._counts.confusions()
        figures = self.figure(counts)
        if np.isnan(counts.true_positives).any():  # with which a figure may compare
            figures = np.full(figures.shape, np.nan)
        return float(figures[0]) if self._is_scalar else figures


class TruePositives(AtThresholds):
    """The (weighted) number of positive examples that were predicted positive.

    Args:
        thresholds: A prediction above it is positive; in [0, 1], 0.5 by default. For several,
            rising ones the result is an array.
    """

    def __init__(
        self,
        thresholds: float | Sequence[float] | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(thresholds, name, dtype)

    def figure(self, counts: Confusion) -> np.ndarray:
        return counts.true_positives


class TrueNegatives(TruePositives):
    """The (weighted) number of negative examples that were not predicted positive."""

    def figure(self, counts: Confusion) -> np.ndarray:
        return counts.true_negatives


class FalsePositives(TruePositives):
    """The (weighted) number of negative examples that were predicted positive."""

    def figure(self, counts: Confusion) -> np.ndarray:
        return counts.false_positives


class FalseNegatives(TruePositives):
    """The (weighted) number of positive examples that were not predicted positive."""

    def figure(self, counts: Confusion) -> np.ndarray:
        return counts.false_negatives


class Precision(AtThresholds):
    """The share of true ones among the examples that were predicted positive.

    Args:
        thresholds: See `TruePositives`.
        top_k: Positive are at most the `top_k` largest predictions along the last axis: all of
            them, or with `thresholds` those that are above.
        class_id: Count only this place of the last axis.
    """

    def __init__(
        self,
        thresholds: float | Sequence[float] | None = None,
        top_k: int | None = None,
        class_id: int | None = None,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(thresholds, name, dtype, top_k, class_id)

    def figure(self, counts: Confusion) -> np.ndarray:
        return precision(counts)


class Recall(Precision):
    """The share of those predicted positive among the true ones; arguments as of `Precision`."""

    def figure(self, counts: Confusion) -> np.ndarray:
        return sensitivity(counts)


def among_best(y_pred: Array, k: int) -> Array:
    """Which predictions are among the `k` largest along the last axis; of equal ones the first."""
    order = np.argsort(-y_pred, axis=-1, kind="stable")
    places = np.argsort(order, axis=-1, kind="stable")
    return places < k


def of_class(name: str, y_true: Array, y_pred: Array, class_id: int | None) -> tuple[Array, Array]:
    """Labels and predictions, or of them what stands at one place of the last axis."""
    if class_id is None:
        return y_true, y_pred
    if y_true.shape != y_pred.shape or not y_pred.ndim or not 0 <= class_id < y_pred.shape[-1]:
        raise ValueError(
            f"{name}: class_id={class_id} calls for labels and predictions of one shape, with that "
            f"place in their last axis; they have shapes {y_true.shape} and {y_pred.shape}"
        )
    return y_true[..., class_id], y_pred[..., class_id]


def checked_thresholds(thresholds: float | Sequence[float] | None) -> list[float]:
    """Thresholds as a list: rising, in [0, 1]."""
    if thresholds is None:
        return [0.5]
    given = np.atleast_1d(np.asarray(thresholds)).tolist()
    numbers = all(isinstance(t, (int, float)) for t in given)
    if (
        not given
        or not numbers
        or not all(0 <= t <= 1 for t in given)
        or given != sorted(set(given))
    ):
        raise ValueError(f"thresholds must rise and lie in [0, 1], they are {thresholds!r}")
    return [float(t) for t in given]
