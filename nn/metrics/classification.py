"""Precision, recall and the area under a curve, from counts at thresholds."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from .base import Metric, to_host
from .confusion import (
    Confusion,
    area_under_pr,
    area_under_roc,
    confusion,
    evenly_spaced,
    histogram,
    ratio,
)


class _Counts:
    """A histogram over thresholds as part of a metric's state: "negatives" and "positives"."""

    def __init__(self, metric: Metric, thresholds: Sequence[float]) -> None:
        self.thresholds = thresholds
        self._metric = metric
        self._parts = [
            metric.add_weight(name, (len(thresholds) + 1,)) for name in ("negatives", "positives")
        ]

    def add(self, y_true: np.ndarray, y_pred: np.ndarray, sample_weight: Any) -> None:
        weight = None if sample_weight is None else to_host(sample_weight)
        counts = histogram(self._metric.name, y_true, y_pred, self.thresholds, weight)
        for part, delta in zip(self._parts, counts, strict=True):
            part.assign_add(delta)

    def confusion(self) -> Confusion:
        return confusion(np.stack([self._metric.total(part) for part in self._parts]))


class _ShareAtThresholds(Metric):
    """A share that is computed from the counts at each threshold. A subclass says which."""

    def __init__(self, thresholds: float | Sequence[float] | None, name: str) -> None:
        super().__init__(name)
        self._counts = _Counts(self, _checked(thresholds))
        self._is_scalar = thresholds is None or np.isscalar(thresholds)

    @abstractmethod
    def share(self, counts: Confusion) -> np.ndarray:
        """The share at each threshold."""

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add labels 0 or 1 and predictions in [0, 1], with a weight for each example if given."""
        self._counts.add(to_host(y_true), to_host(y_pred), sample_weight)

    def result(self) -> Any:
        shares = self.share(self._counts.confusion())
        return float(shares[0]) if self._is_scalar else shares


class Precision(_ShareAtThresholds):
    """The share of true ones among the examples that were predicted positive.

    Args:
        thresholds: A prediction above it is positive; in [0, 1], 0.5 by default. For several,
            rising ones the result is an array.
    """

    def __init__(
        self, thresholds: float | Sequence[float] | None = None, *, name: str = "precision"
    ) -> None:
        super().__init__(thresholds, name)

    def share(self, counts: Confusion) -> np.ndarray:
        return ratio(counts.true_positives, counts.true_positives + counts.false_positives)


class Recall(_ShareAtThresholds):
    """The share of examples that were predicted positive among the true ones.

    Args:
        thresholds: A prediction above it is positive; in [0, 1], 0.5 by default. For several,
            rising ones the result is an array.
    """

    def __init__(
        self, thresholds: float | Sequence[float] | None = None, *, name: str = "recall"
    ) -> None:
        super().__init__(thresholds, name)

    def share(self, counts: Confusion) -> np.ndarray:
        return ratio(counts.true_positives, counts.true_positives + counts.false_negatives)


class AUC(Metric):
    """The area under the ROC or the precision-recall curve, from counts at many thresholds.

    Args:
        num_thresholds: Evenly spaced over [0, 1]; more are more exact.
        curve: "ROC" or "PR".
        summation_method: "interpolation", or "minoring" or "majoring" for bounds of the area.
        thresholds: Rising, in (0, 1), in the place of evenly spaced ones; the ends are added.
        from_logits: Whether predictions are logits, to be put through a sigmoid.
    """

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        *,
        name: str = "auc",
        thresholds: Sequence[float] | None = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name)
        if thresholds is not None:
            ends = evenly_spaced(2)
            thresholds = [ends[0], *_checked(thresholds), ends[1]]
        elif num_thresholds < 2:
            raise ValueError(f"num_thresholds must be at least 2, it is {num_thresholds}")
        if curve.upper() not in ("ROC", "PR"):
            raise ValueError(f"curve must be 'ROC' or 'PR', it is {curve!r}")
        if summation_method not in ("interpolation", "minoring", "majoring"):
            raise ValueError(
                f"summation_method must be 'interpolation', 'minoring' or 'majoring', "
                f"it is {summation_method!r}"
            )
        self._area = area_under_roc if curve.upper() == "ROC" else area_under_pr
        self._summation = summation_method
        self._from_logits = from_logits
        self._counts = _Counts(self, thresholds or evenly_spaced(num_thresholds))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add labels 0 or 1 and predictions, with a weight for each example if given."""
        predictions = to_host(y_pred)
        if self._from_logits:
            predictions = 0.5 * (1 + np.tanh(0.5 * predictions.astype(np.float64)))
        self._counts.add(to_host(y_true), predictions, sample_weight)

    def result(self) -> float:
        return self._area(self._counts.confusion(), self._summation)


def _checked(thresholds: float | Sequence[float] | None) -> list[float]:
    """Thresholds as a list.

    Raises:
        ValueError: One is outside [0, 1], or they do not rise.
    """
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
