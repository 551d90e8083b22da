"""Predictions, example by example or batch by batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, final

import numpy as np

from ..autodiff import lift, no_grad
from ..inputs import nest
from ..strategies import DEFAULT_STRATEGY, VariableStore, get_or_create_global_step
from .model_function import ModelFunction, split_features_and_labels
from .session import Session, SessionRunHook
from .specs import EstimatorSpec, ModeKeys


@final
class PredictionSession(Session):
    """The state of a prediction.

    Args:
        model: What to predict with.
        store: Its variables.
        hooks: Take part in it.
    """

    def __init__(
        self, model: ModelFunction, store: VariableStore, hooks: Sequence[SessionRunHook]
    ) -> None:
        super().__init__(DEFAULT_STRATEGY, store, hooks)
        self._model = model
        self._is_built = False

    @property
    def global_step(self) -> int:
        """The step of the checkpoint that is used; 0 without one."""
        with self.store.building():  # a checkpoint that has none serves to predict as well
            return int(get_or_create_global_step())

    @property
    def figures(self) -> Mapping[str, Any]:
        return {"loss": None}

    def step(self, batch: Any) -> Any:
        """The predictions for one batch, as the model makes them; hooks are told of the first."""
        if self._is_built:  # before that there are neither variables nor the model's hooks
            self.before_run()
        spec: EstimatorSpec = self.strategy.run(self._predict, (batch,))
        if not self._is_built:
            self._is_built = True
            self.created(None, spec.prediction_hooks)
            self.before_run()
        return spec.predictions

    def _predict(self, batch: Any) -> EstimatorSpec:
        with self.store.building(), no_grad():
            return self._model(split_features_and_labels(batch)[0], None, ModeKeys.PREDICT)


def predict(
    session: PredictionSession,
    batches: Iterable[Any],
    predict_keys: Sequence[str] | None,
    yield_single_examples: bool,
) -> Iterator[Any]:
    """Predictions for each batch, until the data end or a hook asks to stop.

    Nothing that surrounds the caller is changed between two predictions, so that generators may
    be interleaved.
    """
    for batch in batches:
        chosen = _chosen(session.step(batch), predict_keys)
        predictions = nest.map_structure(lambda value: np.asarray(lift(value).data), chosen)
        session.after_run()
        if yield_single_examples:
            yield from _examples(predictions)
        else:
            yield predictions
        if session.stop_requested:
            break
    session.end()


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
