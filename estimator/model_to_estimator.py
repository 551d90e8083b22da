"""`model_to_estimator`: a compiled `nn.Model` as an Estimator."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import Any

from .. import checkpoint
from ..nn import Model
from ..training import ModeKeys
from .estimator import Estimator
from .model_dir import one_model_dir
from .run_config import RunConfig
from .specs import EstimatorSpec
from .warm_start import WarmStartSettings


def model_to_estimator(
    keras_model: Model,
    model_dir: str | os.PathLike[str] | None = None,
    config: RunConfig | None = None,
    metric_names_map: Mapping[str, str] | None = None,
) -> Estimator:
    """An Estimator that trains, evaluates and predicts with a compiled model.

    It begins with the weights that the model has now: the chief saves them in `model_dir/keras`,
    and a run without a checkpoint of its own takes them from there. What the model computes outside
    does not change. Predictions are a dict by the names of the model's outputs, such as "dense_1".

    Args:
        keras_model: Compiled, with a loss and an optimizer.
        model_dir, config: See `Estimator`.
        metric_names_map: What evaluations call a metric, by its name in the model, where that is
            not to be the same.

    Raises:
        TypeError: It is no `Model`.
        ValueError: It was not compiled; or `metric_names_map` gives two metrics one name.
    """
    if not isinstance(keras_model, Model):
        raise TypeError(f"keras_model must be a paceline.nn.Model, it is {keras_model!r}")
    if not keras_model.is_compiled:
        raise ValueError(
            f"{keras_model!r} was not compiled: call model.compile(optimizer, loss) before"
        )
    renamed = dict(metric_names_map or {})
    if len(set(renamed.values())) < len(renamed):
        raise ValueError(f"metric_names_map gives two metrics one name: {renamed}")
    config = config or RunConfig()
    path = one_model_dir(model_dir, config)
    config = config.replace(model_dir=path)
    return Estimator(
        _model_fn(keras_model, renamed), config=config, warm_start_from=_begin(keras_model, config)
    )


def _begin(model: Model, config: RunConfig) -> WarmStartSettings | None:
    """What runs begin with, saved by the chief; None where the model has no weights yet."""
    weights = {weight.name: weight for weight in model.weights}
    if not weights:
        return None
    directory = os.path.join(str(config.model_dir), "keras")
    if config.is_chief:
        checkpoint.save(directory, 0, {name: weight.numpy() for name, weight in weights.items()})
    return WarmStartSettings(directory, [f"{re.escape(name)}$" for name in weights])


def _model_fn(model: Model, renamed: Mapping[str, str]) -> Callable[..., EstimatorSpec]:
    def model_fn(features: Any, labels: Any, mode: ModeKeys) -> EstimatorSpec:
        outputs = model(features, training=mode is ModeKeys.TRAIN)
        predictions = _by_name(model, outputs)
        if mode is ModeKeys.PREDICT:
            return EstimatorSpec(mode, predictions=predictions)
        parts = model.parts(labels, outputs)
        loss = model.compute_loss(y=labels, y_pred=outputs)
        if mode is ModeKeys.TRAIN:
            return EstimatorSpec(mode, predictions, loss, model.optimizer.minimize(loss))
        metrics = model.compiled.of_call(parts)
        named = {renamed.get(name, name): metric for name, metric in metrics.items()}
        return EstimatorSpec(mode, predictions, loss, eval_metric_ops=named)

    return model_fn


def _by_name(model: Model, outputs: Any) -> dict[str, Any]:
    if isinstance(outputs, Mapping):
        return dict(outputs)
    parts = outputs if isinstance(outputs, (list, tuple)) else [outputs]
    return dict(zip(model.output_names, parts, strict=True))
