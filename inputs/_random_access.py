"""Sources and rearrangements with random access: index arithmetic, and one gather per array."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
from ._stacking import merged_batches
from ._values import map_arrays, rows_of


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

    def each(self, positions: Positions) -> list[Any]:
        return rows_of(self._arrays, (positions % self.length).tolist())


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

    def each(self, positions: Positions) -> list[Any]:
        return list(self.gather(positions))


@final
class Items(Elementwise):
    """The items of anything that is indexed from 0 to `length` - 1.

    Args:
        length: how many items there are.
        read: makes the elements of a list of item numbers.
    """

    def __init__(self, length: int, read: Callable[[list[int]], list[Any]]) -> None:
        self.length = length
        self._read = read

    def element(self, position: int) -> Any:
        return self._read([position % self.length])[0]

    def each(self, positions: Positions) -> list[Any]:
        return self._read((positions % self.length).tolist())


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

    def each(self, positions: Positions) -> list[Any]:
        return self._inner.each(self._source(positions))

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

    def each(self, positions: Positions) -> list[Any]:
        return self._inner.each(positions)


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
        starts = self._starts(positions)
        return nest.map_structure(lambda part: part.gather(starts(part)), self._parts)

    def each(self, positions: Positions) -> list[Any]:
        starts = self._starts(positions)
        columns = [part.each(starts(part)) for part in nest.flatten(self._parts)]
        return [nest.repacked(self._parts, items) for items in zip(*columns, strict=True)]

    def _starts(self, positions: Positions) -> Callable[[RandomAccess], Positions]:
        """Where each part has what lies at `positions` here."""
        iterations, indices = positions // self.length, positions % self.length
        return lambda part: iteration_start(part, iterations) + indices


@final
class Concatenated(RandomAccess):
    """Several parts, one after another."""

    def __init__(self, parts: Sequence[RandomAccess]) -> None:
        self._parts = parts
        self._ends = np.cumsum([part.length for part in parts])
        self.length = int(self._ends[-1])

    def element(self, position: int) -> Any:
        part, start = self._locate(position)
        return part.element(start)

    def batch(self, positions: range) -> Any:
        part, start = self._locate(positions.start)
        last_part, last = self._locate(positions[-1])
        if part is last_part and last - start == positions[-1] - positions.start:
            return part.batch(range(start, last + 1, positions.step))
        return self.gather(as_array(positions))

    def gather(self, positions: Positions) -> Any:
        pieces = [(chosen, part.gather(at)) for chosen, part, at in self._split(positions)]
        return pieces[0][1] if len(pieces) == 1 else merged_batches(len(positions), pieces)

    def each(self, positions: Positions) -> list[Any]:
        elements: list[Any] = [None] * len(positions)
        for chosen, part, at in self._split(positions):
            for index, element in zip(chosen.tolist(), part.each(at), strict=True):
                elements[index] = element
        return elements

    def _locate(self, position: int) -> tuple[RandomAccess, int]:
        """The part that a position belongs to, and the place there."""
        iteration, index = divmod(position, self.length)
        number = int(np.searchsorted(self._ends, index, "right"))
        part = self._parts[number]
        return part, iteration_start(part, iteration) + index - int(
            self._ends[number]
        ) + part.length

    def _split(self, positions: Positions) -> Iterator[tuple[Positions, RandomAccess, Positions]]:
        """For each part that is concerned: which of the positions, the part, the places there."""
        iterations, indices = positions // self.length, positions % self.length
        numbers = np.searchsorted(self._ends, indices, "right")
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            part = self._parts[number]
            first = int(self._ends[number]) - part.length
            starts = iteration_start(part, iterations[chosen])
            yield chosen, part, starts + indices[chosen] - first
