"""Sources and transformations with random access: index arithmetic, and one gather per array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np

from . import nest
from ._elements import (
    ENDLESS,
    Elementwise,
    Positions,
    RandomAccess,
    as_array,
    in_one_iteration,
    iteration_start,
)
from ._values import map_arrays


@final
class Rows(RandomAccess):
    """The rows of arrays that share their leading dimension, `length`."""

    def __init__(self, arrays: Any, length: int) -> None:
        self.length = length
        self._arrays = arrays

    def element(self, position: int) -> Any:
        row = position % self.length
        return map_arrays(lambda array: array[row], self._arrays)

    def batch(self, positions: range) -> Any:
        first = positions.start % self.length
        stop = first + len(positions)
        if stop > self.length or positions.step != 1:
            return self.gather(as_array(positions))
        return map_arrays(lambda array: array[first:stop], self._arrays)

    def gather(self, positions: Positions) -> Any:
        rows = positions % self.length
        return map_arrays(lambda array: array.take(rows, 0), self._arrays)


@final
class Numbers(RandomAccess):
    """The int64 numbers start, start + step, ..., computed when they are read."""

    def __init__(self, numbers: range) -> None:
        self.length = len(numbers)
        self._numbers = numbers

    def element(self, position: int) -> Any:
        return np.int64(self._numbers[position % self.length])

    def batch(self, positions: range) -> Any:
        return self.gather(as_array(positions))

    def gather(self, positions: Positions) -> Any:
        return self._numbers.start + self._numbers.step * (positions % self.length)


@final
class Strided(RandomAccess):
    """Every `step`-th element from `start` to before `stop`: take, skip and shard."""

    def __init__(self, inner: RandomAccess, start: int, stop: int | None, step: int) -> None:
        end = inner.length if stop is None else min(stop, inner.length)
        self.length = len(range(start, end, step))
        self._inner = inner
        self._start = start
        self._step = step

    def element(self, position: int) -> Any:
        return self._inner.element(self._source(position))

    def batch(self, positions: range) -> Any:
        if not in_one_iteration(positions, self.length):
            return self.gather(as_array(positions))
        first = self._source(positions.start)
        step = self._step * positions.step
        return self._inner.batch(range(first, first + step * len(positions), step))

    def gather(self, positions: Positions) -> Any:
        return self._inner.gather(self._source(positions))

    def _source(self, position: Any) -> Any:
        iteration, index = position // self.length, position % self.length
        return iteration_start(self._inner, iteration) + self._start + self._step * index


@final
class Repeated(RandomAccess):
    """`count` iterations in a row (None: without end), which lie in a row already."""

    def __init__(self, inner: RandomAccess, count: int | None) -> None:
        most = max(1, ENDLESS // max(inner.length, 1))
        self.length = inner.length * (most if count is None else min(count, most))
        self._inner = inner

    def element(self, position: int) -> Any:
        return self._inner.element(position)

    def batch(self, positions: range) -> Any:
        return self._inner.batch(positions)

    def gather(self, positions: Positions) -> Any:
        return self._inner.gather(positions)


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


@final
class Mapped(Elementwise):
    """Each element passed through a function."""

    def __init__(self, inner: RandomAccess, function: Callable[[Any], Any]) -> None:
        self.length = inner.length
        self._inner = inner
        self._function = function

    def element(self, position: int) -> Any:
        return self._function(self._inner.element(position))


@final
class Zipped(RandomAccess):
    """Tuples of the elements at equal positions; as long as the shortest part."""

    def __init__(self, parts: Any, leaves: Sequence[RandomAccess]) -> None:
        self.length = min(part.length for part in leaves)
        self._parts = parts

    def element(self, position: int) -> Any:
        iteration, index = divmod(position, self.length)
        return nest.map_structure(
            lambda part: part.element(iteration_start(part, iteration) + index), self._parts
        )

    def batch(self, positions: range) -> Any:
        if not in_one_iteration(positions, self.length):
            return self.gather(as_array(positions))
        iteration, index = divmod(positions.start, self.length)
        span = len(positions) * positions.step

        def part_of_batch(part: RandomAccess) -> Any:
            first = iteration_start(part, iteration) + index
            return part.batch(range(first, first + span, positions.step))

        return nest.map_structure(part_of_batch, self._parts)

    def gather(self, positions: Positions) -> Any:
        iterations, indices = positions // self.length, positions % self.length
        return nest.map_structure(
            lambda part: part.gather(iteration_start(part, iterations) + indices), self._parts
        )
