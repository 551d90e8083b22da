"""Intersection over union: how far what is predicted of a class overlaps with what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...autodiff import Array
from ..arguments import count
from ..shapes import check_range, like_values, whole_numbers
from .base import Metric, batch_of
from .confusion import added_up, ratio

_NO_CLASS = np.int64(np.iinfo(np.int64).min)
"""What stands on a GPU for what is no whole number."""


class IoU(Metric):
    """The mean over some classes of `TP / (TP + FP + FN)`; one that never occurs is left out.

    Args:
        num_classes: How many there are.
        target_class_ids: Over which the mean is taken.
        ignore_class: What has this label is not counted; it need be no class.
        sparse_y_true: Whether labels are class numbers; else scores or one-hot along `axis`.
        sparse_y_pred: The same of predictions.
        axis: Which one the classes are, where labels or predictions are not sparse.
    """

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        super().__init__(name, dtype)
        self._num_classes = count("num_classes", num_classes)
        self._targets = np.asarray(target_class_ids, np.int64)
        check_range("target_class_ids", self._targets, num_classes)
        self._ignored = ignore_class
        self._axes = (None if sparse_y_true else axis, None if sparse_y_pred else axis)
        self._matrix = self.add_weight("confusion_matrix", (num_classes, num_classes))

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add labels and predictions of any, equal shape, with weights for examples or places."""
        y_true, y_pred, weight = batch_of(self.name, y_true, y_pred, sample_weight)
        labels = self._numbers(y_true, self._axes[0], "labels")
        found = self._numbers(y_pred, self._axes[1], "predictions")
        if labels.size != found.size:
            raise ValueError(
                f"{self.name}: there must be a label for each prediction, y_true has shape "
                f"{y_true.shape} and y_pred {y_pred.shape}"
            )
        if weight is not None:
            weight = np.broadcast_to(like_values(self.name, weight, labels), labels.shape)
        self._count(labels.reshape(-1), found.reshape(-1), weight)

    def _count(self, labels: Array, found: Array, weight: Array | None) -> None:
        size = self._num_classes
        weight = np.ones_like(labels, dtype=np.float64) if weight is None else weight.reshape(-1)
        kept = labels >= labels if self._ignored is None else labels != self._ignored
        is_class = (labels >= 0) & (labels < size) & (found >= 0) & (found < size)
        if isinstance(labels, np.ndarray):
            check_range(f"{self.name}: labels", labels[kept], size)
            check_range(f"{self.name}: predictions", found[kept], size)
        # What is ignored is a pair of weight 0: a GPU is not waited for to know how much is left.
        pairs = np.where(kept & is_class, size * labels + found, 0)
        counts = added_up(pairs, np.where(kept, weight, 0.0), size**2)
        if not isinstance(labels, np.ndarray):
            counts = np.where((is_class | ~kept).all(), counts, np.nan)
        self._matrix.assign_add(counts.reshape(self._matrix.shape))

    def result(self) -> float:
        matrix = self.total(self._matrix)
        overlap = np.diagonal(matrix)[self._targets]
        union = (matrix.sum(axis=0) + matrix.sum(axis=1))[self._targets] - overlap
        num_there = np.count_nonzero(union)
        return float(ratio(overlap, union).sum() / num_there) if num_there else 0.0

    def _numbers(self, values: Array, axis: int | None, what: str) -> Array:
        if axis is not None:
            return np.argmax(values, axis=axis)
        if not isinstance(values, np.ndarray):
            with np.errstate(invalid="ignore"):  # "not a number" becomes one that differs from it
                numbers = values.astype(np.int64)
            return np.where(numbers == values, numbers, _NO_CLASS)
        whole = whole_numbers(values)
        if whole is None:
            raise ValueError(f"{self.name}: {what} must be class numbers, there are others")
        return np.asarray(whole, np.int64)


class BinaryIoU(IoU):
    """`IoU` of labels 0 and 1 and of predictions, which are 1 from `threshold` upwards.

    Args:
        target_class_ids: (0, 1), or one of them.
        threshold: Of predictions.
    """

    def __init__(
        self,
        target_class_ids: Sequence[int] = (0, 1),
        threshold: float = 0.5,
        name: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(2, target_class_ids, name, dtype)
        self._threshold = threshold

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        y_true, y_pred, weight = batch_of(self.name, y_true, y_pred, sample_weight)
        super().update_state(y_true, (y_pred >= self._threshold).astype(np.int64), weight)


class MeanIoU(IoU):
    """`IoU` with the mean over all classes."""

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_true: bool = True,
        sparse_y_pred: bool = True,
        axis: int = -1,
    ) -> None:
        targets = range(count("num_classes", num_classes))
        options = (ignore_class, sparse_y_true, sparse_y_pred, axis)
        super().__init__(num_classes, targets, name, dtype, *options)


class OneHotIoU(IoU):
    """`IoU` of one-hot labels, and of scores for each class (or of class numbers)."""

    def __init__(
        self,
        num_classes: int,
        target_class_ids: Sequence[int],
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        options = (ignore_class, False, sparse_y_pred, axis)
        super().__init__(num_classes, target_class_ids, name, dtype, *options)


class OneHotMeanIoU(MeanIoU):
    """`MeanIoU` of one-hot labels, and of scores for each class (or of class numbers)."""

    def __init__(
        self,
        num_classes: int,
        name: str | None = None,
        dtype: Any = None,
        ignore_class: int | None = None,
        sparse_y_pred: bool = False,
        axis: int = -1,
    ) -> None:
        super().__init__(num_classes, name, dtype, ignore_class, False, sparse_y_pred, axis)
