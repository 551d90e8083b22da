"""More metrics for a model that is there already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from ..training import ModeKeys
from .estimator import Estimator
from .model_function import chosen_arguments
from .run_config import RunConfig
from .specs import EstimatorSpec

_OF_MODEL = ("features", "labels", "mode", "params", "config")
_OF_METRICS = ("features", "labels", "predictions", "config")


def add_metrics(estimator: Estimator, metric_fn: Callable[..., Mapping[str, Any]]) -> Estimator:
    """An Estimator of the same model, model_dir and config, which evaluates more metrics.

    Args:
        estimator: The model. Its `model_fn` gives predictions in mode EVAL, as the premade ones do,
            if `metric_fn` names them.
        metric_fn: Names of features, labels, predictions (those of the `EstimatorSpec`) and config
            what it needs, and returns what `eval_metric_ops` takes: metrics that were updated with
            the batch, by name. One of a name that the model has takes the other's place.

    Raises:
        TypeError: One of them is something else.
        ValueError: `metric_fn` needs other arguments.
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"estimator must be an Estimator, it is {estimator!r}")
    names = chosen_arguments(metric_fn, "metric_fn", _OF_METRICS)
    model_names = chosen_arguments(estimator.model_fn, "model_fn", _OF_MODEL)
    inner = estimator.model_fn

    def model_fn(
        features: Any, labels: Any, mode: ModeKeys, params: Any, config: RunConfig
    ) -> EstimatorSpec:
        given = {"labels": labels, "mode": mode, "params": params, "config": config}
        spec: EstimatorSpec = inner(
            features=features, **{name: given[name] for name in given.keys() & model_names}
        )
        if mode is not ModeKeys.EVAL:
            return spec
        given |= {"features": features, "predictions": spec.predictions}
        more = metric_fn(**{name: given[name] for name in names})
        if not isinstance(more, Mapping):
            raise TypeError(f"metric_fn must return a dict of metrics by name, it gave {more!r}")
        return spec._replace(eval_metric_ops={**spec.eval_metric_ops, **more})

    has_params = "params" in model_names and estimator.params
    return Estimator(
        model_fn if has_params else partial(model_fn, params={}),
        estimator.model_dir,
        estimator.config,
        estimator.params if has_params else None,
        estimator.warm_start_from,
    )
