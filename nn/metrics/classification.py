"""Precision, recall and the area under a curve, from counts at thresholds.

What is collected is a histogram: between which two thresholds a prediction lies, for the positive
examples and for the negative ones. It is additive, and one pass over a batch whatever the number of
thresholds; true and false positives and negatives at every threshold are sums over it.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..arguments import check_choice
from ..shapes import like_predictions, like_values
from .base import Metric, to_host


class Confusion(NamedTuple):
    """Weighted counts, each an array with one entry for each threshold."""

    true_positives: np.ndarray
    false_positives: np.ndarray
    false_negatives: np.ndarray
    true_negatives: np.ndarray


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
    """The share of those predicted positive among the true ones; `thresholds` as in `Precision`."""

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
        curve = check_choice("curve", curve.upper(), ("ROC", "PR"))
        self._area = area_under_roc if curve == "ROC" else area_under_pr
        methods = ("interpolation", "minoring", "majoring")
        self._summation = check_choice("summation_method", summation_method, methods)
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


def histogram(
    name: str,
    y_true: np.ndarray,
    y_pred: np.ndarray,
    thresholds: Sequence[float],
    sample_weight: np.ndarray | None = None,
) -> np.ndarray:
    """Weighted counts of examples by label and by the number of thresholds below the prediction.

    Args:
        name: Of the metric, for messages.
        y_true: Labels 0 or 1.
        y_pred: Predictions in [0, 1], of the labels' shape.
        thresholds: Rising, k of them.
        sample_weight: One for each example or each prediction.

    Returns:
        (2, k + 1) float64: negatives, positives. Bin i: predictions above exactly i thresholds.
    """
    labels = like_predictions(name, y_true, y_pred)
    if not ((labels == 0) | (labels == 1)).all():
        raise ValueError(f"{name}: labels must be 0 or 1, y_true holds others")
    if not ((y_pred >= 0) & (y_pred <= 1)).all():
        raise ValueError(
            f"{name}: predictions must be in [0, 1], y_pred holds others; "
            f"pass probabilities, such as sigmoid(logits)"
        )
    weight = None
    if sample_weight is not None:
        weight = np.broadcast_to(like_values(name, sample_weight, y_pred), y_pred.shape).ravel()
    num_bins = len(thresholds) + 1
    # In the predictions' own dtype: a float32 prediction of 0.3 is not above the threshold 0.3.
    dtype = y_pred.dtype if y_pred.dtype.kind == "f" else np.float64
    bins = np.searchsorted(np.asarray(thresholds, dtype), y_pred.ravel(), side="left")
    # One histogram for both labels: the bins of the positive examples follow the others.
    bins += num_bins * (labels.ravel() == 1)
    counts = np.bincount(bins, weights=weight, minlength=2 * num_bins)
    return counts.astype(np.float64).reshape(2, num_bins)


def confusion(counts: np.ndarray) -> Confusion:
    """The four counts at each threshold, where a prediction above the threshold is a positive."""
    # Bin i is above thresholds 0 … i - 1: sums from the right count what is above a threshold, sums
    # from the left what is not.
    above = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    below = np.cumsum(counts, axis=1)[:, :-1]
    return Confusion(above[1], above[0], below[1], below[0])


def ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """`part / whole`, and 0 where the whole is 0."""
    return np.divide(part, whole, out=np.zeros(part.shape), where=whole != 0)


def evenly_spaced(num_thresholds: int) -> list[float]:
    """Thresholds from just below 0 to just above 1, as Keras spaces them."""
    inner = [i / (num_thresholds - 1) for i in range(1, num_thresholds - 1)]
    return [-1e-7, *inner, 1 + 1e-7]


def area_under_roc(c: Confusion, summation: str = "interpolation") -> float:
    """The area under the curve of recall over the share of false positives, at rising thresholds.

    "interpolation" joins the points by lines, "minoring" and "majoring" take the lower and the
    higher end of each interval.
    """
    recall = ratio(c.true_positives, c.true_positives + c.false_negatives)
    fallout = ratio(c.false_positives, c.false_positives + c.true_negatives)
    return _area(fallout, recall, summation)


def area_under_pr(c: Confusion, summation: str = "interpolation") -> float:
    """The area under the curve of precision over recall.

    Between two thresholds precision is no line in recall; "interpolation" goes along the curve that
    Davis and Goadrich (2006) derive, where true positives are linear in all positives.
    """
    positives = c.true_positives + c.false_positives
    labelled = c.true_positives + c.false_negatives
    if summation != "interpolation":
        return _area(
            ratio(c.true_positives, labelled), ratio(c.true_positives, positives), summation
        )
    gained_hits = c.true_positives[:-1] - c.true_positives[1:]
    # Counts of negative weights are cut to 0, as Keras does.
    slope = ratio(gained_hits, np.maximum(positives[:-1] - positives[1:], 0))
    offset = c.true_positives[1:] - slope * positives[1:]
    both = (positives[:-1] > 0) & (positives[1:] > 0)
    growth = np.where(both, ratio(positives[:-1], positives[1:]), 1.0)
    pieces = slope * (gained_hits + offset * np.log(growth))
    return float(np.sum(ratio(pieces, np.maximum(labelled[1:], 0))))


def _area(x: np.ndarray, y: np.ndarray, summation: str) -> float:
    """The area under points whose x falls with the threshold."""
    if summation == "minoring":
        heights = np.minimum(y[:-1], y[1:])
    elif summation == "majoring":
        heights = np.maximum(y[:-1], y[1:])
    else:
        heights = (y[:-1] + y[1:]) / 2
    return float(np.sum((x[:-1] - x[1:]) * heights))
