"""F-scores, and the share of variance that is explained."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arguments import check_choice, check_positive
from ..masks import mask_of
from ..shapes import like_predictions, like_values
from .base import Metric, batch_of, batch_on_host
from .confusion import ratio


class FBetaScore(Metric):
    """`(1 + beta²) · precision · recall / (beta² · precision + recall)`, of each class.

    Args:
        average: None for an array with the score of each class; "macro" for their mean, "weighted"
            for that by how many examples they have; "micro" for the score of all classes' counts.
        beta: How many times as much recall counts as precision.
        threshold: A prediction above it is positive; by default the largest of each example is.
    """

    def __init__(
        self,
        average: str | None = None,
        beta: float = 1.0,
        threshold: float | None = None,
        name: str = "fbeta_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name, dtype)
        check_positive("beta", beta)
        known = ("none", "micro", "macro", "weighted")
        self._average = check_choice("average", average or "none", known)
        self._beta = beta
        self._threshold = threshold

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add labels 0 or 1 and predictions, (n, classes), with a weight for each example."""
        y_true, y_pred, weight = batch_of(self.name, y_true, y_pred, sample_weight)
        y_true = like_predictions(self.name, y_true, y_pred)
        are_labels = ((y_true == 0) | (y_true == 1)).all()
        on_host = isinstance(y_true, np.ndarray)
        if y_pred.ndim != 2 or (on_host and not are_labels):
            raise ValueError(
                f"{self.name}: labels must be 0 or 1 and predictions have the shape (n, classes); "
                f"y_pred has {y_pred.shape} and y_true values from {y_true.min(initial=0)} to "
                f"{y_true.max(initial=0)}"
            )
        chosen = self._chosen(y_pred)
        factor = 1.0 if weight is None else like_values(self.name, weight, y_pred)
        if not on_host:  # a GPU is not waited for to look at labels
            factor = factor * np.where(are_labels, 1.0, np.nan)
        counts = {
            "true_positives": chosen * y_true,
            "false_positives": chosen * (1 - y_true),
            "false_negatives": (1 - chosen) * y_true,
        }
        for name, each in counts.items():
            part = self.add_weight(name, y_pred.shape[1:])
            part.assign_add(np.sum(each * factor, axis=0))

    def result(self) -> Any:
        """The score, or an array with that of each class; 0.0 without data."""
        if not self._state:
            return 0.0
        tp, fp, fn = (self.total(part) for part in self.variables)
        if self._average == "micro":
            tp, fp, fn = (np.sum(each, keepdims=True) for each in (tp, fp, fn))
        square = self._beta**2
        scores = ratio((1 + square) * tp, (1 + square) * tp + square * fn + fp)
        if self._average == "none":
            return scores
        support = tp + fn if self._average == "weighted" else np.ones(scores.shape)
        return float(np.dot(scores, support) / support.sum()) if support.sum() else 0.0

    def _chosen(self, y_pred: np.ndarray) -> np.ndarray:
        if self._threshold is not None:
            return (y_pred > self._threshold).astype(np.float64)
        is_best = y_pred >= y_pred.max(axis=-1, keepdims=True)
        # Where nothing is predicted for any class, none is chosen, as in Keras.
        return (is_best & (np.abs(y_pred) > 1e-9)).astype(np.float64)


class F1Score(FBetaScore):
    """The harmonic mean of precision and recall; see `FBetaScore`."""

    def __init__(
        self,
        average: str | None = None,
        threshold: float | None = None,
        name: str = "f1_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(average, 1.0, threshold, name, dtype)


class R2Score(Metric):
    """The share of the labels' variance that predictions explain: 1 where they are right.

    Labels that are all equal have no variance: their score is 1 if all are predicted, else 0.
    Without examples, or where all have the weight 0, it is 0, like other metrics.

    Args:
        class_aggregation: Of several outputs the mean ("uniform_average"), that by their variances
            ("variance_weighted_average"), or None for an array with the score of each.
        num_regressors: Of a linear model; if it is positive the result is the adjusted score.
    """

    def __init__(
        self,
        class_aggregation: str | None = "uniform_average",
        num_regressors: int = 0,
        name: str = "r2_score",
        dtype: Any = None,
    ) -> None:
        super().__init__(name, dtype)
        known = ("none", "uniform_average", "variance_weighted_average")
        self._how = check_choice("class_aggregation", class_aggregation or "none", known)
        if num_regressors < 0:
            raise ValueError(f"num_regressors must not be negative, it is {num_regressors}")
        self._num_regressors = num_regressors

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add labels and predictions, (n,) or (n, outputs), with a weight for each example."""
        # Examples are counted, too, and how many a mask leaves only the host finds out.
        batch = batch_of if mask_of(y_pred) is None else batch_on_host
        y_true, y_pred, weight = batch(self.name, y_true, y_pred, sample_weight)
        y_true = like_predictions(self.name, y_true, y_pred).astype(np.float64)
        if y_pred.ndim not in (1, 2):
            raise ValueError(
                f"{self.name}: predictions must have the shape (n,) or (n, outputs), they have "
                f"{y_pred.shape}"
            )
        y_true, y_pred = (y if y.ndim == 2 else y[:, np.newaxis] for y in (y_true, y_pred))
        factor = np.ones_like(y_true[:, :1])
        if weight is not None:
            factor = np.reshape(weight, (len(y_true), 1)).astype(np.float64)
        sums = {
            "num_examples": np.ones_like(y_true),
            "count": np.broadcast_to(factor, y_true.shape),
            "sum": factor * y_true,
            "squared_sum": factor * np.square(y_true),
            "residual": factor * np.square(y_true - y_pred),
        }
        for name, each in sums.items():
            self.add_weight(name, y_true.shape[1:]).assign_add(np.sum(each, axis=0))

    def result(self) -> Any:
        """The score, or an array with that of each output; 0.0 without data."""
        parts = [self.total(part) for part in self.variables]
        if not parts or not parts[1].any():
            return 0.0
        num_examples, count, total, squares, residual = parts
        variance = np.maximum(squares - ratio(total * total, count), 0)
        unexplained = np.where(residual > 0, 1.0, 0.0)  # where there is no variance
        np.divide(residual, variance, out=unexplained, where=variance > 0)
        scores = self._adjusted(1 - unexplained, num_examples.max(initial=0))
        if self._how == "none":
            return scores
        by_variance = self._how == "variance_weighted_average" and variance.any()
        return float(np.average(scores, weights=variance if by_variance else None))

    def _adjusted(self, scores: np.ndarray, num_examples: float) -> np.ndarray:
        free = num_examples - self._num_regressors - 1
        if not self._num_regressors or free <= 0:
            return scores
        return 1 - (1 - scores) * (num_examples - 1) / free
