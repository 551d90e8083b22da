"""Metrics under Keras's names: figures over any number of batches and replicas, exact for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arguments import by_name, meaning_of, snake_case
from .accuracies import (
    Accuracy,
    BinaryAccuracy,
    CategoricalAccuracy,
    SparseCategoricalAccuracy,
    SparseTopKCategoricalAccuracy,
    TopKCategoricalAccuracy,
    binary_accuracy,
    categorical_accuracy,
    sparse_categorical_accuracy,
    sparse_top_k_categorical_accuracy,
    top_k_categorical_accuracy,
)
from .auc import AUC
from .base import Metric, to_host
from .classification import (
    FalseNegatives,
    FalsePositives,
    Precision,
    Recall,
    TrueNegatives,
    TruePositives,
)
from .means import Mean, MeanMetricWrapper, MeanRelativeError, MeanTensor, Sum
from .of_losses import (
    BinaryCrossentropy,
    CategoricalCrossentropy,
    CategoricalHinge,
    CosineSimilarity,
    Hinge,
    KLDivergence,
    LogCoshError,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
    RootMeanSquaredError,
    SparseCategoricalCrossentropy,
    SquaredHinge,
)
from .operating_points import (
    PrecisionAtRecall,
    RecallAtPrecision,
    SensitivityAtSpecificity,
    SpecificityAtSensitivity,
)
from .overlap import BinaryIoU, IoU, MeanIoU, OneHotIoU, OneHotMeanIoU
from .scores import F1Score, FBetaScore, R2Score

__all__ = [
    "AUC",
    "Accuracy",
    "BinaryAccuracy",
    "BinaryCrossentropy",
    "BinaryIoU",
    "CategoricalAccuracy",
    "CategoricalCrossentropy",
    "CategoricalHinge",
    "CosineSimilarity",
    "F1Score",
    "FBetaScore",
    "FalseNegatives",
    "FalsePositives",
    "Hinge",
    "IoU",
    "KLDivergence",
    "LogCoshError",
    "Mean",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanIoU",
    "MeanMetricWrapper",
    "MeanRelativeError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "MeanTensor",
    "Metric",
    "OneHotIoU",
    "OneHotMeanIoU",
    "Poisson",
    "Precision",
    "PrecisionAtRecall",
    "R2Score",
    "Recall",
    "RecallAtPrecision",
    "RootMeanSquaredError",
    "SensitivityAtSpecificity",
    "SparseCategoricalAccuracy",
    "SparseCategoricalCrossentropy",
    "SparseTopKCategoricalAccuracy",
    "SpecificityAtSensitivity",
    "SquaredHinge",
    "Sum",
    "TopKCategoricalAccuracy",
    "TrueNegatives",
    "TruePositives",
    "binary_accuracy",
    "categorical_accuracy",
    "get",
    "sparse_categorical_accuracy",
    "sparse_top_k_categorical_accuracy",
    "to_host",
    "top_k_categorical_accuracy",
]

_WITHOUT_ARGUMENTS: tuple[type[Metric], ...] = (
    AUC,
    Accuracy,
    BinaryAccuracy,
    BinaryCrossentropy,
    BinaryIoU,
    CategoricalAccuracy,
    CategoricalCrossentropy,
    CategoricalHinge,
    CosineSimilarity,
    F1Score,
    FBetaScore,
    FalseNegatives,
    FalsePositives,
    Hinge,
    KLDivergence,
    LogCoshError,
    Mean,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    MeanTensor,
    Poisson,
    Precision,
    R2Score,
    Recall,
    RootMeanSquaredError,
    SparseCategoricalAccuracy,
    SparseCategoricalCrossentropy,
    SparseTopKCategoricalAccuracy,
    SquaredHinge,
    Sum,
    TopKCategoricalAccuracy,
    TrueNegatives,
    TruePositives,
)

_BY_NAME: Mapping[str, type[Metric]] = {
    **{snake_case(each.__name__): each for each in _WITHOUT_ARGUMENTS},
    "acc": Accuracy,
    "bce": BinaryCrossentropy,
    "kld": KLDivergence,
    "kullback_leibler_divergence": KLDivergence,
    "log_cosh": LogCoshError,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "mse": MeanSquaredError,
    "msle": MeanSquaredLogarithmicError,
    "rmse": RootMeanSquaredError,
}


def get(identifier: str | Metric | Mapping[str, Any] | Callable[[Any, Any], Any]) -> Metric:
    """The metric that an argument means.

    Args:
        identifier: A name ("accuracy", "mse", or Keras's class name "MeanSquaredError"), a metric,
            a function `(y_true, y_pred) -> one value for each example`, of which the mean is
            taken, or a dict with "class_name" and "config".

    Raises:
        ValueError: No metric has this name.
        TypeError: It is none of these.
    """
    if isinstance(identifier, Metric):
        return identifier
    if isinstance(identifier, Mapping):
        made = by_name("metric", identifier["class_name"], _BY_NAME)
        return made.from_config(identifier.get("config", {}))
    allowed = "a name, a metric or a function (y_true, y_pred)"
    meant = meaning_of("metric", identifier, _BY_NAME, allowed)
    return meant() if isinstance(identifier, str) else MeanMetricWrapper(meant)


def check_name(name: str) -> None:
    """Refuse a name that no metric has.

    Raises:
        ValueError: No metric has this name.
    """
    by_name("metric", name, _BY_NAME)
