"""Predictions, example by example or batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar, final

import numpy as np

from ..autodiff import lift, no_grad
from ..inputs import nest
from ..strategies import (
    DEFAULT_STRATEGY,
    Strategy,
    VariableStore,
    get_or_create_global_step,
    to_host,
)
from .session import Session, SessionRunHook
from .spec import ModeKeys, ModelCall, Spec

Found = TypeVar("Found", bound=Spec)


@final
class PredictionSession(Session):
    """The state of a prediction.

    Args:
        model: What to predict with.
        store: Its variables.
        hooks: Take part in it.
        brings_hooks: Whether the model may bring hooks, which are known after its first call only.
        strategy: Of one replica: it predicts there.
    """

    def __init__(
        self,
        model: ModelCall,
        store: VariableStore,
        hooks: Sequence[SessionRunHook],
        brings_hooks: bool = True,
        strategy: Strategy = DEFAULT_STRATEGY,
    ) -> None:
        super().__init__(strategy, store, hooks)
        self._model = model
        self._is_built = False
        self._brings_hooks = brings_hooks

    @property
    def global_step(self) -> int:
        """The step of the checkpoint that is used; 0 without one."""
        with self.store.building():  # a checkpoint that has none serves to predict as well
            return int(get_or_create_global_step())

    @property
    def figures(self) -> Mapping[str, Any]:
        return {"loss": None}

    def step(self, batch: Any) -> Any:
        """The predictions for one batch, as the model makes them.

        Hooks are told that it is about to be predicted. Before the first one there are neither
        variables nor the model's hooks: so with hooks the model is called once more, but for one
        that brings none.
        """
        if not self._is_built and not self._brings_hooks:
            self._is_built = True
            self.created(())
        if not self._is_built:
            self._is_built = True
            spec = self._call(batch)
            if not self._hooks and not spec.prediction_hooks:
                return spec.predictions
            self.created(spec.prediction_hooks)
        self.before_run()
        spec = self._call(batch)
        self._held.take_over()
        return spec.predictions

    def _call(self, batch: Any) -> Spec:
        spec = spec_of(self._model, self.store, batch, strategy=self.strategy)
        self._held.note(0, 1, {"prediction_hooks": spec.prediction_hooks}, spec.named or {})
        return spec


def spec_of(
    model: Callable[[Any, ModeKeys], Found],
    store: VariableStore,
    batch: Any,
    mode: ModeKeys = ModeKeys.PREDICT,
    strategy: Strategy = DEFAULT_STRATEGY,
) -> Found:
    """What the model says of one batch; any number of threads may ask once its variables exist.

    It is computed by the only replica of `strategy`.
    """

    def call() -> Found:
        with store.building(), no_grad():
            return model(batch, mode)

    spec: Found = strategy.run(call)
    return spec


def on_host(predictions: Any) -> Any:
    """Predictions in NumPy arrays."""
    return nest.map_structure(lambda value: np.asarray(to_host(lift(value).data)), predictions)


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
        predictions = on_host(_chosen(session.step(batch), predict_keys))
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
