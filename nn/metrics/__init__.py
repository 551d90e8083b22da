"""Metrics under Keras's names: figures over any number of batches and replicas, exact for both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arguments import by_name, meaning_of
from .accuracies import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
)
from .base import Metric, to_host
from .classification import AUC, Precision, Recall
from .means import (
    Mean,
    MeanAbsoluteError,
    MeanMetricWrapper,
    MeanSquaredError,
    RootMeanSquaredError,
    Sum,
)

__all__ = [
    "AUC",
    "Accuracy",
    "BinaryAccuracy",
    "CategoricalAccuracy",
    "Mean",
    "MeanAbsoluteError",
    "MeanMetricWrapper",
    "MeanSquaredError",
    "Metric",
    "Precision",
    "Recall",
    "RootMeanSquaredError",
    "SparseCategoricalAccuracy",
    "SparseTopKCategoricalAccuracy",
    "Sum",
    "TopKCategoricalAccuracy",
    "get",
    "to_host",
]

_BY_NAME: dict[str, Callable[[], Metric]] = {
    "accuracy": Accuracy,
    "acc": Accuracy,
    "auc": AUC,
    "binary_accuracy": BinaryAccuracy,
    "categorical_accuracy": CategoricalAccuracy,
    "mae": MeanAbsoluteError,
    "mean": Mean,
    "mean_absolute_error": MeanAbsoluteError,
    "mean_squared_error": MeanSquaredError,
    "mse": MeanSquaredError,
    "precision": Precision,
    "recall": Recall,
    "rmse": RootMeanSquaredError,
    "root_mean_squared_error": RootMeanSquaredError,
    "sparse_categorical_accuracy": SparseCategoricalAccuracy,
    "sparse_top_k_categorical_accuracy": SparseTopKCategoricalAccuracy,
    "sum": Sum,
    "top_k_categorical_accuracy": TopKCategoricalAccuracy,
}


def get(metric: str | Metric | Callable[[Any, Any], Any]) -> Metric:
    """The metric that an argument means.

    Args:
        metric: A name ("accuracy", "mse", or Keras's class name "MeanSquaredError"), a metric, or a
            function `(y_true, y_pred) -> one value for each example`, of which the mean is taken.

    Raises:
        ValueError: No metric has this name.
        TypeError: It is none of these.
    """
    if isinstance(metric, Metric):
        return metric
    allowed = "a name, a metric or a function (y_true, y_pred)"
    meant = meaning_of("metric", metric, _BY_NAME, allowed)
    return meant() if isinstance(metric, str) else MeanMetricWrapper(meant)


def check_name(name: str) -> None:
    """Refuse a name that no metric has.

    Raises:
        ValueError: No metric has this name.
    """
    by_name("metric", name, _BY_NAME)
