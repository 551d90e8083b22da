"""`zip`, `concatenate` and `enumerate`: several datasets as one.

Arguments have been checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any, final

import numpy as np

from . import nest
from .checks import COUNT, STATE, checked_fields, refused
from .elements import (
    ENDLESS,
    ElementIterator,
    Elements,
    Indices,
    JointIterator,
    Positions,
    RandomAccess,
    State,
    Stream,
    as_indices,
    in_one_iteration,
    iteration_start,
)
from .plan import INFINITE, UNKNOWN, Demands, Opening, Plan
from .sources import range_plan
from .values import merged_batches


def zipped(plans: Any) -> Plan:
    """Elements of several datasets side by side, in the structure in which they are given.

    They cannot be divided by files: files that stand side by side may have unequal lengths.
    """
    parts: list[Plan] = nest.flatten(plans)
    if not parts:
        raise ValueError("datasets must hold at least one Dataset, got an empty structure.")

    def open_parts(opening: Opening) -> Elements:
        # In order, for elements belong together by their positions.
        opened = nest.map_structure(lambda plan: plan.open_in_order(opening), plans)
        accesses = _all_random_access(nest.flatten(opened))
        if accesses is not None:
            return _Zipped(opened, accesses)
        return Stream(
            lambda iteration: _ZipIterator(
                nest.map_structure(lambda part: part.iterate(iteration), opened)
            )
        )

    return Plan(
        text=f"zip({', '.join(plan.text for plan in parts)})",
        cardinality=_shortest([plan.cardinality for plan in parts]),
        epoch=_shortest([plan.epoch_length for plan in parts]),
        open=open_parts,
        known_spec=lambda: nest.map_structure(lambda plan: plan.spec(), plans),
        demands=Demands.of([plan.demands for plan in parts]),
        is_ready=all(plan.is_ready for plan in parts),
    )


def enumerated(plan: Plan, start: int) -> Plan:
    pairs = zipped((range_plan(range(start, start + ENDLESS)), plan))
    return replace(pairs, cardinality=plan.cardinality, epoch=plan.epoch)


def concatenated(plans: Sequence[Plan]) -> Plan:
    def open_parts(opening: Opening) -> Elements:
        parts = [plan.open(opening) for plan in plans]
        accesses = _all_random_access(parts)
        if accesses is not None:
            return _Concatenated(accesses)
        return Stream(lambda iteration: _ConcatenateIterator(parts, iteration))

    cardinality = reduce(_sum, [plan.cardinality for plan in plans])
    all_come_from_files = all(plan.file_counts for plan in plans)
    first, *others = plans
    # The text is part of each saved state, which stays small.
    rest = others[0].text if len(others) == 1 else f"{len(others)} datasets, {cardinality} elements"
    return Plan(
        text=f"{first.text}.concatenate({rest})",
        cardinality=cardinality,
        epoch=reduce(_sum, [plan.epoch_length for plan in plans]),
        open=open_parts,
        known_spec=first.spec,
        demands=Demands.of([plan.demands for plan in plans]),
        is_ready=all(plan.is_ready for plan in plans),
        batch_size=first.batch_size if len({plan.batch_size for plan in plans}) == 1 else None,
        file_counts=sum([p.file_counts for p in plans], ()) if all_come_from_files else (),
    )


def _all_random_access(parts: Sequence[Elements]) -> list[RandomAccess] | None:
    """The parts, if all have random access."""
    accesses = [access for part in parts if (access := part.random_access()) is not None]
    return accesses if len(accesses) == len(parts) else None


def _shortest(cardinalities: list[int]) -> int:
    finite = [c for c in cardinalities if c != INFINITE]
    if UNKNOWN in finite:
        return 0 if 0 in finite else UNKNOWN
    return min(finite, default=INFINITE)


def _sum(first: int, second: int) -> int:
    if INFINITE in (first, second):
        return INFINITE
    return UNKNOWN if UNKNOWN in (first, second) else first + second


@final
class _Zipped(RandomAccess):
    """Structures of the elements at equal positions; as long as the shortest part."""

    def __init__(self, parts: Any, leaves: Sequence[RandomAccess]) -> None:
        self.length = min(part.length for part in leaves)
        self._parts = parts
        self._leaves = leaves

    def element(self, position: int) -> Any:
        sources = self._sources(position)
        return nest.map_structure(lambda part: part.element(sources(part)), self._parts)

    def gather(self, positions: Positions) -> Any:
        sources = self._sources(positions)
        return nest.map_structure(lambda part: part.gather(sources(part)), self._parts)

    def each(self, positions: Positions) -> list[Any]:
        sources = self._sources(positions)
        columns = [part.each(sources(part)) for part in self._leaves]
        return [nest.repacked(self._parts, items) for items in zip(*columns, strict=True)]

    def _sources(self, positions: Any) -> Callable[[RandomAccess], Any]:
        """Where each part has what lies at a position, or at several, here."""
        if isinstance(positions, range):
            if in_one_iteration(positions, self.length):
                start_in = self._sources(positions.start)
                return lambda part: _moved(positions, start_in(part))
            positions = as_indices(positions)
        iterations, indices = positions // self.length, positions % self.length
        return lambda part: iteration_start(part, iterations) + indices


@final
class _ZipIterator(JointIterator):
    """Ends with the shortest part."""

    def __init__(self, parts: Any) -> None:
        super().__init__(nest.flatten(parts))
        self._structure = parts

    def __next__(self) -> Any:
        elements: list[Any] = []
        first_error: Exception | None = None
        for part in self._parts:
            try:
                elements.append(next(part))
            except StopIteration:
                raise
            except Exception as error:
                # The other parts move on as well, so that what belongs together stays together.
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return nest.repacked(self._structure, elements)


@final
class _Concatenated(RandomAccess):
    """Several parts, one after another."""

    def __init__(self, parts: Sequence[RandomAccess]) -> None:
        self._parts = parts
        self._ends = np.cumsum([part.length for part in parts])
        self.length = int(self._ends[-1])

    def element(self, position: int) -> Any:
        part, source = self._locate(position)
        return part.element(source)

    def gather(self, positions: Positions) -> Any:
        if isinstance(positions, range):
            part, first = self._locate(positions.start)
            last_part, last = self._locate(positions[-1])
            if part is last_part and last - first == positions[-1] - positions.start:
                return part.gather(_moved(positions, first))
            positions = as_indices(positions)
        pieces = [(chosen, part.gather(at)) for chosen, part, at in self._split(positions)]
        return pieces[0][1] if len(pieces) == 1 else merged_batches(len(positions), pieces)

    def each(self, positions: Positions) -> list[Any]:
        elements: list[Any] = [None] * len(positions)
        for chosen, part, at in self._split(as_indices(positions)):
            for index, element in zip(chosen.tolist(), part.each(at), strict=True):
                elements[index] = element
        return elements

    def _locate(self, position: int) -> tuple[RandomAccess, int]:
        """The part that a position belongs to, and the position there."""
        iteration, index = divmod(position, self.length)
        number = int(np.searchsorted(self._ends, index, "right"))
        part = self._parts[number]
        first = int(self._ends[number]) - part.length
        return part, iteration_start(part, iteration) + index - first

    def _split(self, positions: Indices) -> Iterator[tuple[Indices, RandomAccess, Indices]]:
        """For each part with some: which of the positions, the part, the positions there."""
        iterations, indices = positions // self.length, positions % self.length
        numbers = np.searchsorted(self._ends, indices, "right")
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            part = self._parts[number]
            first = int(self._ends[number]) - part.length
            starts = iteration_start(part, iterations[chosen])
            yield chosen, part, starts + indices[chosen] - first


@final
class _ConcatenateIterator(ElementIterator):
    """Has one part open at a time."""

    def __init__(self, parts: Sequence[Elements], iteration: int) -> None:
        self._parts = parts
        self._iteration = iteration
        self._number = 0
        self._part = parts[0].iterate(iteration)

    def __next__(self) -> Any:
        while True:
            try:
                return next(self._part)
            except StopIteration:
                if self._number + 1 >= len(self._parts):
                    raise
            self._open(self._number + 1)

    def get_state(self) -> State:
        return {"part": self._number, "inner": self._part.get_state()}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"part": COUNT, "inner": STATE})
        if state["part"] >= len(self._parts):
            raise refused(f"of one of {len(self._parts)} parts", state)
        self._open(state["part"])
        self._part.set_state(state["inner"])

    def close(self) -> None:
        self._part.close()
        self._parts = self._parts[: self._number + 1]

    def _open(self, number: int) -> None:
        self._part.close()
        self._number = number
        self._part = self._parts[number].iterate(self._iteration)


def _moved(positions: range, start: int) -> range:
    """As many positions, as far apart, from another start on."""
    return range(start, start + len(positions) * positions.step, positions.step)
