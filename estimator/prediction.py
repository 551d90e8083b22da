"""Predictions, example by example or batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..autodiff import lift, no_grad
from ..inputs import nest
from ..strategies import DEFAULT_STRATEGY, VariableStore
from .hooks import SessionRunHook
from .model_function import ModelFunction, split_features_and_labels
from .specs import EstimatorSpec, ModeKeys


def predict(
    model: ModelFunction,
    store: VariableStore,
    batches: Any,
    predict_keys: Sequence[str] | None,
    hooks: Sequence[SessionRunHook],
    yield_single_examples: bool,
) -> Iterator[Any]:
    """Predictions for each batch, until the data end.

    Nothing that surrounds the caller is changed between two predictions, so that generators may
    be interleaved.
    """
    for hook in hooks:
        hook.begin()

    def predict_batch(batch: Any) -> EstimatorSpec:
        with store.building(), no_grad():
            return model(split_features_and_labels(batch)[0], None, ModeKeys.PREDICT)

    for batch in batches:
        spec = DEFAULT_STRATEGY.run(predict_batch, (batch,))
        chosen = _chosen(spec.predictions, predict_keys)
        predictions = nest.map_structure(lambda value: np.asarray(lift(value).data), chosen)
        if yield_single_examples:
            yield from _examples(predictions)
        else:
            yield predictions


def _chosen(predictions: Any, keys: Sequence[str] | None) -> Any:
    if keys is None:
        return predictions
    if not isinstance(predictions, dict):
        raise ValueError(
            "predict_keys needs predictions that are a dict, model_fn returned "
            f"{type(predictions).__name__}; leave predict_keys out"
        )
    missing = [key for key in keys if key not in predictions]
    if missing:
        raise ValueError(
            f"predict_keys names {', '.join(missing)}; the predictions are "
            f"{', '.join(sorted(predictions))}"
        )
    return {key: predictions[key] for key in keys}


def _examples(predictions: Any) -> Iterator[Any]:
    lengths = {len(leaf) if np.ndim(leaf) else 0 for leaf in nest.flatten(predictions)}
    if len(lengths) != 1:
        raise ValueError(
            f"predictions have different first dimensions ({sorted(lengths)}) and cannot be split "
            f"into examples; pass yield_single_examples=False"
        )
    for i in range(lengths.pop()):
        yield nest.map_structure(lambda leaf: leaf[i], predictions)  # noqa: B023
