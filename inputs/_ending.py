"""Workers whose data end at different steps: each goes on with empty batches until the last."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from ._elements import ElementIterator, Elements, StatelessIterator, Stream
from ._values import ArraySpec, map_arrays

AnyHasData = Callable[[bool], bool]
"""Called by all workers before each step, with whether this one has data; whether any has."""


@final
class UntilAllEnd(Stream):
    """The steps of this worker, and then empty ones until the data of all workers have ended.

    Args:
        inner: tuples of batches for the local replicas.
        any_has_data: see `AnyHasData`.
        empty: makes an empty step, for a worker that has no other to take the structure from.
    """

    def __init__(self, inner: Elements, any_has_data: AnyHasData, empty: Callable[[], Any]) -> None:
        self._inner = inner
        self._any_has_data = any_has_data
        self._empty = empty

    def iterate(self, iteration: int) -> ElementIterator:
        inner = self._inner.iterate(iteration)
        return _UntilAllEndIterator(inner, self._any_has_data, self._empty)


@final
class _UntilAllEndIterator(StatelessIterator):
    """Empty steps change nothing, so its state is the input's."""

    def __init__(
        self, inner: ElementIterator, any_has_data: AnyHasData, empty: Callable[[], Any]
    ) -> None:
        super().__init__(inner)
        self._any_has_data = any_has_data
        self._empty = empty
        self._has_ended = False

    def __next__(self) -> Any:
        step = None if self._has_ended else self._next_step()
        if not self._any_has_data(step is not None):
            raise StopIteration
        return self._empty() if step is None else step

    def _next_step(self) -> Any:
        try:
            step = next(self._inner)
        except StopIteration:
            self._has_ended = True
            return None
        self._empty = lambda: map_arrays(lambda array: array[:0], step)
        return step


def empty_batch(spec: Any) -> Any:
    """A batch of no examples, of the spec that full ones have."""
    return map_arrays(_empty_array, spec)


def _empty_array(spec: ArraySpec) -> np.ndarray:
    return np.empty((0, *[size or 0 for size in spec.shape[1:]]), spec.dtype)
