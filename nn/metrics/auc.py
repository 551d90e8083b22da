"""The area under a curve, of all predictions together or of each label."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import check_choice
from ..shapes import like_predictions, like_values
from .base import Metric, batch_of, together
from .classification import Counts, checked_thresholds
from .confusion import area_under_pr, area_under_roc, evenly_spaced


class AUC(Metric):
    """The area under the ROC or the precision-recall curve, from counts at many thresholds.

    Args:
        num_thresholds: Evenly spaced over [0, 1]; more are more exact.
        curve: "ROC" or "PR".
        summation_method: "interpolation", or "minoring" or "majoring" for bounds of the area.
        thresholds: Rising, in (0, 1), in the place of evenly spaced ones; the ends are added.
        multi_label: Whether the result is the mean of the areas of the labels, the columns of
            (n, labels) predictions, rather than the area of all predictions together.
        num_labels: How many; by default as many as the first batch has.
        label_weights: How much each label counts: its area in the mean, or its predictions.
        from_logits: Whether predictions are logits, to be put through a sigmoid.
    """

    def __init__(
        self,
        num_thresholds: int = 200,
        curve: str = "ROC",
        summation_method: str = "interpolation",
        name: str = "auc",
        dtype: Any = None,
        thresholds: Sequence[float] | None = None,
        multi_label: bool = False,
        num_labels: int | None = None,
        label_weights: Sequence[float] | None = None,
        from_logits: bool = False,
    ) -> None:
        super().__init__(name, dtype)
        if thresholds is not None:
            first, last = evenly_spaced(2)
            self._thresholds = np.array([first, *checked_thresholds(thresholds), last])
        elif num_thresholds < 2:
            raise ValueError(f"num_thresholds must be at least 2, it is {num_thresholds}")
        else:
            self._thresholds = evenly_spaced(num_thresholds)
        curve = check_choice("curve", curve.upper(), ("ROC", "PR"))
        self._area = area_under_roc if curve == "ROC" else area_under_pr
        methods = ("interpolation", "minoring", "majoring")
        self._summation = check_choice("summation_method", summation_method, methods)
        self._from_logits = from_logits
        self._label_weights = None if label_weights is None else np.asarray(label_weights, float)
        self._multi_label = multi_label
        self._counts: Counts | None = None
        if not multi_label or num_labels is not None:
            self._counts = Counts(self, self._thresholds, num_labels if multi_label else None)

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add labels 0 or 1 and predictions, with weights of examples or of each of these."""
        y_true, y_pred, weight = batch_of(self.name, y_true, y_pred, sample_weight)
        if self._from_logits:
            y_pred = 0.5 * (1 + np.tanh(0.5 * y_pred.astype(np.float64)))
        y_true = like_predictions(self.name, y_true, y_pred)
        if self._multi_label or self._label_weights is not None:
            self._check_labels(y_pred)
        if self._label_weights is not None and not self._multi_label:
            of_labels, y_pred = together(self._label_weights, y_pred)
            ones = np.ones_like(y_pred, dtype=np.float64)
            weight = of_labels * (
                ones if weight is None else like_values(self.name, weight, y_pred)
            )
        self._counts_of(y_pred.shape[-1] if y_pred.ndim else 1).add(y_true, y_pred, weight)

    def result(self) -> float:
        if not self._state:
            return 0.0
        counts = self._counts_of(self.variables[0].shape[0])
        areas = [self._area(each, self._summation) for each in counts.confusions()]
        if not self._multi_label or self._label_weights is None:
            return float(np.mean(areas))
        total = self._label_weights.sum()
        return float(np.dot(areas, self._label_weights) / total) if total else 0.0

    def _counts_of(self, num_labels: int) -> Counts:
        if self._counts is None:
            self._counts = Counts(self, self._thresholds, num_labels)
        return self._counts

    def _check_labels(self, y_pred: np.ndarray) -> None:
        known = None if self._counts is None else self._counts.num_labels
        weighted = None if self._label_weights is None else len(self._label_weights)
        expected = weighted if known is None else known
        if y_pred.ndim != 2 or expected not in (None, y_pred.shape[1]):
            raise ValueError(
                f"{self.name}: predictions must have the shape (n, labels), with "
                f"{expected or 'any number of'} labels; they have {y_pred.shape}"
            )
