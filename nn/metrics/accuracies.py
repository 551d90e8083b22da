"""Shares of examples that were predicted right. The measures themselves are in `measures`."""

from __future__ import annotations

import numpy as np

from . import measures
from .means import ExampleMean


class Accuracy(ExampleMean):
    """How often predictions equal labels."""

    def __init__(self, name: str = "accuracy") -> None:
        super().__init__(name)

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return measures.accuracy(y_true, y_pred)


class BinaryAccuracy(ExampleMean):
    """How often predictions are above `threshold` where labels are 1, and not where they are 0."""

    def __init__(self, name: str = "binary_accuracy", *, threshold: float = 0.5) -> None:
        super().__init__(name)
        self.threshold = threshold

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return measures.binary_accuracy(y_true, y_pred, self.threshold)


class CategoricalAccuracy(ExampleMean):
    """How often the largest prediction is that of the label's class; labels are one-hot."""

    def __init__(self, name: str = "categorical_accuracy") -> None:
        super().__init__(name)

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return measures.categorical_accuracy(y_true, y_pred)


class SparseCategoricalAccuracy(ExampleMean):
    """How often the largest prediction is that of the label; labels are class numbers."""

    def __init__(self, name: str = "sparse_categorical_accuracy") -> None:
        super().__init__(name)

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return measures.sparse_categorical_accuracy(y_true, y_pred)


class TopKCategoricalAccuracy(ExampleMean):
    """How often the label's class is among the `k` largest predictions; labels are one-hot."""

    def __init__(self, k: int = 5, name: str = "top_k_categorical_accuracy") -> None:
        super().__init__(name)
        self.k = _checked_k(k)

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return measures.top_k_categorical_accuracy(y_true, y_pred, self.k)


class SparseTopKCategoricalAccuracy(ExampleMean):
    """How often the label is among the `k` largest predictions; labels are class numbers."""

    def __init__(self, k: int = 5, name: str = "sparse_top_k_categorical_accuracy") -> None:
        super().__init__(name)
        self.k = _checked_k(k)

    def measure(self, y_true: np.ndarray, y_pred: np.ndarray) -> np.ndarray:
        return measures.sparse_top_k_categorical_accuracy(y_true, y_pred, self.k)


def _checked_k(k: int) -> int:
    if k < 1:
        raise ValueError(f"k must be at least 1, it is {k}")
    return k
