"""Intersection over union: how far what is predicted of a class overlaps with what is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import count
from ..shapes import check_range, like_values, whole_numbers
from .base import Metric, batch_on_host
from .confusion import ratio


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
        y_true, y_pred, weight = batch_on_host(self.name, y_true, y_pred, sample_weight)
        labels = self._numbers(y_true, self._axes[0], "labels")
        found = self._numbers(y_pred, self._axes[1], "predictions")
        if labels.size != found.size:
            raise ValueError(
                f"{self.name}: there must be a label for each prediction, y_true has shape "
                f"{y_true.shape} and y_pred {y_pred.shape}"
            )
        kept = np.full(labels.shape, True) if self._ignored is None else labels != self._ignored
        if weight is not None:
            weight = np.broadcast_to(like_values(self.name, weight, labels), labels.shape)[kept]
        labels, found = labels[kept], found.reshape(labels.shape)[kept]
        check_range(f"{self.name}: labels", labels, self._num_classes)
        check_range(f"{self.name}: predictions", found, self._num_classes)
        pairs = self._num_classes * labels + found
        counts = np.bincount(pairs, weight, minlength=self._num_classes**2)
        self._matrix.assign_add(counts.reshape(self._matrix.shape).astype(np.float64))

    def result(self) -> float:
        matrix = self.total(self._matrix)
        overlap = np.diagonal(matrix)[self._targets]
        union = (matrix.sum(axis=0) + matrix.sum(axis=1))[self._targets] - overlap
        num_there = np.count_nonzero(union)
        return float(ratio(overlap, union).sum() / num_there) if num_there else 0.0

    def _numbers(self, values: np.ndarray, axis: int | None, what: str) -> np.ndarray:
        if axis is not None:
            return np.argmax(values, axis=axis)
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
        y_true, y_pred, weight = batch_on_host(self.name, y_true, y_pred, sample_weight)
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
