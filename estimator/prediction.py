"""Predictions, example by example or batch by batch."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Self, final

import numpy as np

from ..autodiff import lift, no_grad
from ..inputs import nest
from ..observe import short_tracebacks
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

    def step(self, features: Any) -> Any:
        """The predictions for one batch of features, as the model makes them.

        Hooks are told that it is about to be predicted. Before the first one there are neither
        variables nor the model's hooks: so with hooks the model is called once more.
        """
        if not self._is_built:
            self._is_built = True
            spec = self._call(features)
            if not self._hooks and not spec.prediction_hooks:
                return spec.predictions
            self.created(spec.prediction_hooks)
        self.before_run()
        spec = self._call(features)
        self._held.take_over()
        return spec.predictions

    def _call(self, features: Any) -> EstimatorSpec:
        spec = spec_of(self._model, self.store, features)
        self._held.note(0, 1, {"prediction_hooks": spec.prediction_hooks}, {})
        return spec


def spec_of(
    model: ModelFunction,
    store: VariableStore,
    features: Any,
    labels: Any = None,
    mode: ModeKeys = ModeKeys.PREDICT,
) -> EstimatorSpec:
    """What the model says of one batch; any number of threads may ask once its variables exist."""

    def call() -> EstimatorSpec:
        with store.building(), no_grad():
            return model(features, labels, mode)

    spec: EstimatorSpec = DEFAULT_STRATEGY.run(call)
    return spec


@final
class Predictor:
    """Predicts single requests with one checkpoint, restored once; `Estimator.predictor` makes it.

    Any number of threads may call it at the same time; hooks take no part. The model stays in
    memory, and nobody deletes the checkpoint, until it is closed (as a context manager, by `close`,
    or when nobody holds it any more). A newer checkpoint needs a new one.

    Args:
        model: What to predict with.
        store: Its variables.
        checkpoint_path: Where their values come from; None for initial ones.
        held: Closed with it.
    """

    def __init__(
        self,
        model: ModelFunction,
        store: VariableStore,
        checkpoint_path: str | None,
        held: ExitStack,
    ) -> None:
        self.checkpoint_path = checkpoint_path
        self._model = model
        self._store = store
        self._release = weakref.finalize(self, held.close)

    def __call__(self, features: Any) -> Any:
        """Predict one batch.

        Args:
            features: As `model_fn` takes them: an array, or a structure of arrays, with one row
                per example.

        Returns:
            The predictions as `model_fn` makes them, in NumPy arrays.

        Raises:
            ValueError: It was closed.
        """
        if not self._release.alive:
            raise ValueError("this Predictor is closed; make a new one with Estimator.predictor()")
        with short_tracebacks:
            return _on_host(spec_of(self._model, self._store, features).predictions)

    def close(self) -> None:
        """Predict nothing any more; the checkpoint may be deleted."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _on_host(predictions: Any) -> Any:
    return nest.map_structure(lambda value: np.asarray(lift(value).data), predictions)


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
        predictions = _on_host(
            _chosen(session.step(split_features_and_labels(batch)[0]), predict_keys)
        )
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
            f"predict_keys names {', '.join(map(str, missing))}; the predictions are "
            f"{', '.join(sorted(map(str, predictions)))}"
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
