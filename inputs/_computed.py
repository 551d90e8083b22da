"""Transformations with random access that compute something: batch, padded_batch and map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from ._elements import Elementwise, Positions, RandomAccess, as_array, note_element
from ._values import rows_of


@final
class Batched(Elementwise):
    """Stacks of `size` consecutive elements, which never cross the end of an iteration."""

    def __init__(self, inner: RandomAccess, size: int, drop_remainder: bool) -> None:
        self.length = inner.length // size if drop_remainder else -(-inner.length // size)
        self._inner = inner
        self._size = size

    def element(self, position: int) -> Any:
        iteration, index = divmod(position, self.length)
        start = iteration * self._inner.length
        first = start + index * self._size
        return self._inner.batch(range(first, min(first + self._size, start + self._inner.length)))

    def each(self, positions: Positions) -> list[Any]:
        return [self.element(position) for position in positions.tolist()]


@final
class Stacked(RandomAccess):
    """The same elements, which a function of its own makes a batch of (padding them)."""

    def __init__(self, inner: RandomAccess, stack: Callable[[list[Any]], Any]) -> None:
        self.length = inner.length
        self._inner = inner
        self._stack = stack

    def element(self, position: int) -> Any:
        return self._inner.element(position)

    def batch(self, positions: range) -> Any:
        return self._stack(self._inner.each(as_array(positions)))

    def gather(self, positions: Positions) -> Any:
        return self._stack(self._inner.each(positions))

    def each(self, positions: Positions) -> list[Any]:
        return self._inner.each(positions)


@final
class Mapped(Elementwise):
    """Each element passed through a function."""

    def __init__(self, inner: RandomAccess, function: Callable[[Any], Any]) -> None:
        self.length = inner.length
        self._inner = inner
        self._function = function

    def element(self, position: int) -> Any:
        element = self._inner.element(position)
        try:
            return self._function(element)
        except Exception as error:
            note_element(error, position % self.length)
            raise

    def each(self, positions: Positions) -> list[Any]:
        function = self._function
        results: list[Any] = []
        elements = self._inner.each(positions)
        try:
            for element in elements:
                results.append(function(element))
        except Exception as error:
            note_element(error, int(positions[len(results)]) % self.length)
            raise
        return results


@final
class MappedInBatches(RandomAccess):
    """Each element passed through a function of batches, as many at a time as are asked for."""

    def __init__(self, inner: RandomAccess, function: Callable[[Any, int], Any]) -> None:
        self.length = inner.length
        self._inner = inner
        self._function = function

    def element(self, position: int) -> Any:
        return rows_of(self.batch(range(position, position + 1)), [0])[0]

    def batch(self, positions: range) -> Any:
        return self._function(self._inner.batch(positions), len(positions))

    def gather(self, positions: Positions) -> Any:
        return self._function(self._inner.gather(positions), len(positions))

    def each(self, positions: Positions) -> list[Any]:
        return rows_of(self.gather(positions), list(range(len(positions))))
