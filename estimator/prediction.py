"""Predictions, example by example or batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import numpy as np

from ..autodiff import lift, no_grad
from ..inputs import nest
from ..strategies import DEFAULT_STRATEGY, VariableStore, get_or_create_global_step
from .hooks import RunningHooks, SessionRunHook
from .model_function import ModelFunction, split_features_and_labels
from .reading_session import ReadingSession
from .specs import EstimatorSpec, ModeKeys


@final
class PredictionSession(ReadingSession):
    """The state of a prediction.

    Args:
        model: What to predict with.
        store: Its variables.
    """

    def __init__(self, model: ModelFunction, store: VariableStore) -> None:
        super().__init__(DEFAULT_STRATEGY, store)
        self._model = model
        self._is_built = False

    @property
    def global_step(self) -> int:
        """The step of the checkpoint that is used; 0 without one."""
        with self.store.building():  # a checkpoint that has none serves to predict as well
            return int(get_or_create_global_step())

    def step(self, batch: Any, on_built: Callable[[EstimatorSpec], None]) -> Any:
        """The predictions for one batch, as the model makes them.

        Args:
            on_built: Called in the first step, when all variables exist.
        """
        spec = self.strategy.run(self._predict, (batch,))
        if not self._is_built:
            self._is_built = True
            on_built(spec)
        return spec.predictions

    def _predict(self, batch: Any) -> EstimatorSpec:
        with self.store.building(), no_grad():
            return self._model(split_features_and_labels(batch)[0], None, ModeKeys.PREDICT)


def predict(
    session: PredictionSession,
    batches: Any,
    predict_keys: Sequence[str] | None,
    hooks: Sequence[SessionRunHook],
    yield_single_examples: bool,
) -> Iterator[Any]:
    """Predictions for each batch, until the data end or a hook asks to stop.

    Nothing that surrounds the caller is changed between two predictions, so that generators may
    be interleaved.
    """
    running = RunningHooks(session, hooks)

    def built(spec: EstimatorSpec) -> None:
        running.created(spec.prediction_hooks)
        running.before_run()

    is_first = True
    for batch in batches:
        if not is_first:  # before that there are neither variables nor the model's hooks
            running.before_run()
        is_first = False
        chosen = _chosen(session.step(batch, built), predict_keys)
        predictions = nest.map_structure(lambda value: np.asarray(lift(value).data), chosen)
        running.after_run()
        if yield_single_examples:
            yield from _examples(predictions)
        else:
            yield predictions
        if running.stop_requested:
            break
    running.end()


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
