"""Transformations of streams that compute something: batch, unbatch, map and filter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from . import nest
from ._elements import (
    ElementIterator,
    Elements,
    State,
    StatelessIterator,
    Stream,
    note_element,
)
from ._stacking import stack_elements
from ._states import COUNT, STATE, checked_fields, read_again, refused
from ._values import rows_of


@final
class BatchedStream(Stream):
    """Stacks of `size` consecutive elements; the last may be smaller, or is dropped."""

    def __init__(
        self,
        inner: Elements,
        size: int,
        drop_remainder: bool,
        stack: Callable[[list[Any]], Any] = stack_elements,
    ) -> None:
        self._inner = inner
        self._size = size
        self._min_size = size if drop_remainder else 1
        self._stack = stack

    def iterate(self, iteration: int) -> ElementIterator:
        inner = self._inner.iterate(iteration)
        return _BatchedIterator(inner, self._size, self._min_size, self._stack)


@final
class _BatchedIterator(StatelessIterator):
    """Holds nothing between two batches, so its state is the input's."""

    def __init__(
        self,
        inner: ElementIterator,
        size: int,
        min_size: int,
        stack: Callable[[list[Any]], Any],
    ) -> None:
        super().__init__(inner)
        self._size = size
        self._min_size = min_size
        self._stack = stack

    def __next__(self) -> Any:
        elements = take_up_to(self._size, self._inner)
        if len(elements) < self._min_size:
            raise StopIteration
        return self._stack(elements)


@final
class MappedStream(Stream):
    """Each element passed through a function."""

    def __init__(self, inner: Elements, function: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._function = function

    def iterate(self, iteration: int) -> ElementIterator:
        return _MappedIterator(self._inner.iterate(iteration), self._function)


@final
class _MappedIterator(ElementIterator):
    """Counts its input, to name the element that the function fails on."""

    def __init__(self, inner: ElementIterator, function: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._function = function
        self._num_read = 0

    def __next__(self) -> Any:
        element = next(self._inner)
        self._num_read += 1
        try:
            return self._function(element)
        except Exception as error:
            note_element(error, self._num_read - 1)
            raise

    def get_state(self) -> State:
        return {"read": self._num_read, "inner": self._inner.get_state()}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"read": COUNT, "inner": STATE})
        self._num_read = state["read"]
        self._inner.set_state(state["inner"])

    def close(self) -> None:
        self._inner.close()


@final
class FilteredStream(Stream):
    """The elements for which a function says True."""

    def __init__(self, inner: Elements, predicate: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._predicate = predicate

    def iterate(self, iteration: int) -> ElementIterator:
        return _FilteredIterator(self._inner.iterate(iteration), self._predicate)


@final
class _FilteredIterator(StatelessIterator):
    """Keeps nothing, so its state is the input's."""

    def __init__(self, inner: ElementIterator, predicate: Callable[[Any], Any]) -> None:
        super().__init__(inner)
        self._predicate = predicate

    def __next__(self) -> Any:
        while True:
            element = next(self._inner)
            if _is_true(self._predicate(element)):
                return element


def _is_true(answer: Any) -> bool:
    if np.ndim(answer) != 0:
        raise ValueError(
            f"predicate must return True or False for one element, it returned an array of shape "
            f"{np.shape(answer)}. Filter before batch(), or reduce it with all() or any()."
        )
    return bool(answer)


@final
class UnbatchedStream(Stream):
    """The rows of elements that are batches."""

    def __init__(self, inner: Elements) -> None:
        self._inner = inner

    def iterate(self, iteration: int) -> ElementIterator:
        return _UnbatchedIterator(self._inner.iterate(iteration))


@final
class _UnbatchedIterator(ElementIterator):
    """Holds the rest of a batch; its state tells how the batch is read again."""

    def __init__(self, inner: ElementIterator) -> None:
        self._inner = inner
        self._rows: list[Any] = []
        self._num_given = 0
        self._before: State = None

    def __next__(self) -> Any:
        while self._is_over():
            self._read()
        self._num_given += 1
        return self._rows[self._num_given - 1]

    def get_state(self) -> State:
        if self._is_over():
            return {"row": 0, "inner": self._inner.get_state()}
        return {"row": self._num_given, "inner": self._before}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"row": COUNT, "inner": STATE})
        self._inner.set_state(state["inner"])
        self._rows, self._num_given = [], 0
        if state["row"]:
            read_again(self._read)
            if state["row"] >= len(self._rows):
                raise refused(f"inside a batch of {len(self._rows)} rows", state)
            self._num_given = state["row"]

    def close(self) -> None:
        self._rows, self._num_given = [], 0
        self._inner.close()

    def _is_over(self) -> bool:
        """Whether nothing of the batch is left."""
        return self._num_given >= len(self._rows)

    def _read(self) -> None:
        self._before = self._inner.get_state()
        batch = next(self._inner)
        self._rows = rows_of(batch, list(range(nest.batch_size(batch))))
        self._num_given = 0


def take_up_to(count: int, iterator: ElementIterator) -> list[Any]:
    """The next `count` elements, or as many as are left."""
    elements: list[Any] = []
    try:
        while len(elements) < count:
            elements.append(next(iterator))
    except StopIteration:
        pass
    return elements
