"""`Predictor`: answers single requests with one checkpoint."""

from __future__ import annotations

import weakref
from contextlib import ExitStack
from typing import Any, Self, final

from ..observe import short_tracebacks
from ..strategies import VariableStore
from ..training import on_host, spec_of
from .model_function import ModelFunction


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
            return on_host(spec_of(self._model, self._store, (features, None)).predictions)

    def close(self) -> None:
        """Predict nothing any more; the checkpoint may be deleted."""
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
