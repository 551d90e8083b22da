"""Losses under Keras's names: functions, objects with a reduction, and `get` for strings.

A function gives one value for each example: `y_true` is an array (or tensor) of labels, `y_pred` a
tensor or array of predictions; the result is a tensor with the dtype of the predictions. Losses of
several outputs are means over the last axis, so that (n, d) gives (n,). Predictions of shape (n,)
are one number for each example and give (n,). (Keras would take the mean over them, which a later
division by the batch would not notice.)

Called as `loss(y_true, y_pred)`, an object gives the mean over the replica's examples unless its
reduction says otherwise. That is what `minimize` in an Estimator wants. A custom training loop over
several replicas wants `Reduction.NONE` and `nn.compute_average_loss`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arguments import by_name, meaning_of
from .base import ClassOfFunction, FunctionLoss, Loss
from .ctc import CTC, ctc
from .hinges import (
    CategoricalHinge,
    Hinge,
    SquaredHinge,
    categorical_hinge,
    hinge,
    squared_hinge,
)
from .overlap import Dice, Tversky, dice, tversky
from .probabilities import (
    BinaryCrossentropy,
    BinaryFocalCrossentropy,
    CategoricalCrossentropy,
    CategoricalFocalCrossentropy,
    KLDivergence,
    SparseCategoricalCrossentropy,
    binary_crossentropy,
    binary_focal_crossentropy,
    categorical_crossentropy,
    categorical_focal_crossentropy,
    kl_divergence,
    sparse_categorical_crossentropy,
)
from .reduction import Reduction, compute_average_loss, scale_regularization_loss
from .regression import (
    CosineSimilarity,
    Huber,
    LogCosh,
    MeanAbsoluteError,
    MeanAbsolutePercentageError,
    MeanSquaredError,
    MeanSquaredLogarithmicError,
    Poisson,
    cosine_similarity,
    huber,
    log_cosh,
    mean_absolute_error,
    mean_absolute_percentage_error,
    mean_squared_error,
    mean_squared_logarithmic_error,
    poisson,
)

mse = MSE = mean_squared_error
mae = MAE = mean_absolute_error
mape = MAPE = mean_absolute_percentage_error
msle = MSLE = mean_squared_logarithmic_error
bce = BCE = binary_crossentropy
kld = KLD = kullback_leibler_divergence = kl_divergence
logcosh = log_cosh

__all__ = [
    "BCE",
    "CTC",
    "KLD",
    "MAE",
    "MAPE",
    "MSE",
    "MSLE",
    "BinaryCrossentropy",
    "BinaryFocalCrossentropy",
    "CategoricalCrossentropy",
    "CategoricalFocalCrossentropy",
    "CategoricalHinge",
    "CosineSimilarity",
    "Dice",
    "Hinge",
    "Huber",
    "KLDivergence",
    "LogCosh",
    "Loss",
    "MeanAbsoluteError",
    "MeanAbsolutePercentageError",
    "MeanSquaredError",
    "MeanSquaredLogarithmicError",
    "Poisson",
    "Reduction",
    "SparseCategoricalCrossentropy",
    "SquaredHinge",
    "Tversky",
    "bce",
    "binary_crossentropy",
    "binary_focal_crossentropy",
    "categorical_crossentropy",
    "categorical_focal_crossentropy",
    "categorical_hinge",
    "compute_average_loss",
    "cosine_similarity",
    "ctc",
    "dice",
    "get",
    "hinge",
    "huber",
    "kl_divergence",
    "kld",
    "kullback_leibler_divergence",
    "log_cosh",
    "logcosh",
    "mae",
    "mape",
    "mean_absolute_error",
    "mean_absolute_percentage_error",
    "mean_squared_error",
    "mean_squared_logarithmic_error",
    "mse",
    "msle",
    "poisson",
    "scale_regularization_loss",
    "sparse_categorical_crossentropy",
    "squared_hinge",
    "tversky",
]

_BY_NAME: Mapping[str, type[ClassOfFunction]] = {
    "mse": MeanSquaredError,
    "mae": MeanAbsoluteError,
    "mape": MeanAbsolutePercentageError,
    "msle": MeanSquaredLogarithmicError,
    "bce": BinaryCrossentropy,
    "kld": KLDivergence,
    "kullback_leibler_divergence": KLDivergence,
    "huber_loss": Huber,
    **{each.function.__name__: each for each in ClassOfFunction.__subclasses__()},
}


def get(identifier: str | Loss | Mapping[str, Any] | Callable[[Any, Any], Any]) -> Loss:
    """The loss object that an argument means.

    Args:
        identifier: A name ("mse", "huber", or Keras's class name "MeanSquaredError"), a loss
            object, a function `(y_true, y_pred) -> one loss for each example`, or a dict with
            "class_name" and "config".

    Raises:
        ValueError: No loss has this name.
        TypeError: It is none of these.
    """
    if isinstance(identifier, Loss):
        return identifier
    if isinstance(identifier, Mapping):
        return by_name("loss", identifier["class_name"], _BY_NAME).from_config(
            identifier.get("config", {})
        )
    allowed = "a name, a loss object or a function (y_true, y_pred)"
    meant = meaning_of("loss", identifier, _BY_NAME, allowed)
    return meant() if isinstance(identifier, str) else FunctionLoss(meant)
