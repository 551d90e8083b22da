"""The premade linear model."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..nn import losses, metrics, optimizers
from ..strategies import get_variable
from .estimator import Estimator
from .feature_column import NumericColumn
from .run_config import RunConfig
from .specs import EstimatorSpec, ModeKeys


def LinearRegressor(  # noqa: N802 (it is used like the class that it is in TensorFlow)
    feature_columns: Sequence[NumericColumn],
    model_dir: str | os.PathLike[str] | None = None,
    label_dimension: int = 1,
    optimizer: str | Any = "Ftrl",
    config: RunConfig | None = None,
    warm_start_from: str | os.PathLike[str] | None = None,
) -> Estimator:
    """An Estimator that fits a linear function of its features with the mean squared error.

    All weights begin at zero. Evaluation reports average_loss, label/mean and prediction/mean
    besides loss; predictions are a dict with "predictions" of shape (batch, label_dimension).

    Args:
        feature_columns: What to read; at least one.
        model_dir, config, warm_start_from: See `Estimator`.
        label_dimension: The number of values to predict for each example.
        optimizer: The name of an optimizer, whose learning rate is then min(0.2, 1/√(number of
            columns)) for Ftrl and 0.2 for all others; an optimizer; or a function of no argument
            that makes one.

    Raises:
        ValueError: No column, or an unknown optimizer.
    """
    columns = list(feature_columns)
    if not columns:
        raise ValueError("feature_columns is empty; name at least one, such as numeric_column('x')")
    make_optimizer = _optimizer_maker(optimizer, len(columns))

    def model_fn(features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
        outputs: Any = get_variable(
            "linear/linear_model/bias_weights", (label_dimension,), initializer=_zeros
        )
        for column in columns:
            weights = get_variable(
                f"linear/linear_model/{column.key}/weights",
                (column.num_elements, label_dimension),
                initializer=_zeros,
            )
            outputs = column.read(features) @ weights + outputs
        if mode is ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions={"predictions": outputs})
        labels = np.asarray(labels, np.float32).reshape(len(labels), -1)
        loss = np.mean(losses.mean_squared_error(labels, outputs))
        if mode is ModeKeys.EVAL:
            return EstimatorSpec(
                mode, loss=loss, eval_metric_ops=_regression_metrics(labels, outputs)
            )
        return EstimatorSpec(mode, loss=loss, train_op=make_optimizer().minimize(loss))

    return Estimator(model_fn, model_dir, config, warm_start_from=warm_start_from)


def _optimizer_maker(optimizer: Any, num_columns: int) -> Any:
    if isinstance(optimizer, optimizers.Optimizer):
        return lambda: optimizer
    if callable(optimizer):
        return optimizer
    if not isinstance(optimizer, str):
        raise TypeError(
            f"optimizer must be the name of one, such as 'Ftrl', an optimizer, or a function that "
            f"makes one; it is {optimizer!r}"
        )
    rate = min(0.2, 1 / math.sqrt(num_columns)) if optimizer.lower() == "ftrl" else 0.2
    optimizers.get(optimizer, learning_rate=rate)  # an unknown name is refused here, not in step 1
    return lambda: optimizers.get(optimizer, learning_rate=rate)


def _regression_metrics(labels: np.ndarray, outputs: Any) -> dict[str, metrics.Metric]:
    means = {
        "average_loss": np.square(labels - outputs.numpy()),
        "label/mean": labels,
        "prediction/mean": outputs.numpy(),
    }
    found: dict[str, metrics.Metric] = {}
    for name, values in means.items():
        found[name] = metrics.Mean(name=name)
        found[name].update_state(values)
    return found


def _zeros(shape: Any, dtype: Any, rng: Any) -> np.ndarray:
    return np.zeros(shape, dtype)
