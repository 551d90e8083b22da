"""`take`, `skip`, `shard` and `repeat`: fewer of the elements, or all of them again.

Arguments have been checked.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, final

from .checks import COUNT, FLAG, STATE, checked_fields
from .elements import (
    ENDLESS,
    DerivedIterator,
    ElementIterator,
    Elements,
    Positions,
    RandomAccess,
    Rearranged,
    State,
    Stream,
    as_indices,
    in_one_iteration,
    iteration_start,
)
from .plan import INFINITE, Keeps, Opening, Plan, Shard, strided_cardinality


def first(plan: Plan, count: int) -> Plan:
    """So many elements at the most; -1 is all of them."""
    return _between(plan, f"take({count})", 0, None if count == -1 else count)


def all_but_first(plan: Plan, count: int) -> Plan:
    """The elements behind so many; -1 leaves none."""
    start, stop = (0, 0) if count == -1 else (count, None)
    return _between(plan, f"skip({count})", start, stop)


def _between(plan: Plan, text: str, start: int, stop: int | None) -> Plan:
    return plan.then(
        lambda inner, _: inner.transformed(_Strided, _StridedIterator, start, stop, 1),
        text,
        # Not the files: some of all elements is not some of those in a worker's files.
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.READY,
        count=lambda number: strided_cardinality(number, start, stop, 1),
    )


def sharded(plan: Plan, count: int, index: int) -> Plan:
    # What was seen before is counted in the order that this step divides, and not in what other
    # shards further down have divided.
    order = replace(plan, open=lambda opening: plan.open(opening._replace(start=0)))
    return order.then(
        lambda inner, opening: inner.transformed(
            _Strided, _StridedIterator, opening.start + index, None, count
        ),
        f"shard({count}, {index})",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.READY,
        count=lambda number: strided_cardinality(number, index, None, count),
        shard=Shard(count, index, plan),
    )


def repeated(plan: Plan, count: int | None) -> Plan:
    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        if access is not None:
            return _Repeated(access, count)
        return Stream(lambda iteration: _RepeatIterator(inner, count, iteration))

    return plan.then(
        step,
        f"repeat({'' if count is None else count})",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.READY | Keeps.ANY_ORDER,
        cardinality=_repeated_cardinality(plan.cardinality, count),
        epoch=plan.epoch_length,
    )


def _repeated_cardinality(cardinality: int, count: int | None) -> int:
    if cardinality == 0 or count == 0:
        return 0
    if cardinality < 0:
        return cardinality
    return INFINITE if count is None else cardinality * count


@final
class _Strided(Rearranged):
    """Every `step`-th element from `start` to before `stop`."""

    def __init__(self, inner: RandomAccess, start: int, stop: int | None, step: int) -> None:
        end = inner.length if stop is None else min(stop, inner.length)
        super().__init__(inner, len(range(start, end, step)))
        self._start = start
        self._step = step

    def _sources(self, positions: Positions) -> Positions:
        if not isinstance(positions, range):
            return self._source(positions)
        if not in_one_iteration(positions, self.length):
            return self._source(as_indices(positions))
        first, step = self._source(positions.start), self._step * positions.step
        return range(first, first + step * len(positions), step)

    def _source(self, position: Any) -> Any:
        iteration, index = position // self.length, position % self.length
        return iteration_start(self._inner, iteration) + self._start + self._step * index


@final
class _StridedIterator(DerivedIterator):
    """Reads what lies between two elements without handing it out."""

    _counters: ClassVar = {"source": "_source", "read": "_num_read"}

    def __init__(self, inner: ElementIterator, start: int, stop: int | None, step: int) -> None:
        super().__init__(inner)
        self._stop = stop
        self._step = step
        self._source = start
        self._num_read = 0

    def __next__(self) -> Any:
        if self._stop is not None and self._source >= self._stop:
            raise StopIteration
        while self._num_read < self._source:
            next(self._inner)
            self._num_read += 1
        element = next(self._inner)
        self._num_read += 1
        self._source += self._step
        return element


@final
class _Repeated(RandomAccess):
    """Several iterations, which lie in a row already; without end there are just very many."""

    def __init__(self, inner: RandomAccess, count: int | None) -> None:
        most = max(1, ENDLESS // max(inner.length, 1))
        self.length = inner.length * (most if count is None else min(count, most))
        self._inner = inner

    def element(self, position: int) -> Any:
        return self._inner.element(position)

    def gather(self, positions: Positions) -> Any:
        return self._inner.gather(positions)

    def each(self, positions: Positions) -> list[Any]:
        return self._inner.each(positions)


@final
class _RepeatIterator(ElementIterator):
    """One iteration after another; without a count until one is empty."""

    def __init__(self, inner: Elements, count: int | None, iteration: int) -> None:
        self._inner = inner
        self._count = count
        self._first = 0 if count is None else iteration * count
        self._num_finished = 0
        self._is_empty = True
        self._pass = inner.iterate(self._first)

    def __next__(self) -> Any:
        while self._count is None or self._num_finished < self._count:
            try:
                element = next(self._pass)
            except StopIteration:
                self._start_next_pass()
                continue
            self._is_empty = False
            return element
        raise StopIteration

    def get_state(self) -> State:
        return {
            "finished": self._num_finished,
            "empty": self._is_empty,
            "inner": self._pass.get_state(),
        }

    def set_state(self, state: State) -> None:
        checked_fields(state, {"finished": COUNT, "empty": FLAG, "inner": STATE})
        self._pass.close()
        self._num_finished, self._is_empty = state["finished"], state["empty"]
        self._pass = self._inner.iterate(self._first + self._num_finished)
        self._pass.set_state(state["inner"])

    def close(self) -> None:
        self._count = self._num_finished
        self._pass.close()

    def _start_next_pass(self) -> None:
        self._pass.close()
        if self._is_empty:  # so would be all further passes, without end
            raise StopIteration
        self._num_finished += 1
        self._is_empty = True
        self._pass = self._inner.iterate(self._first + self._num_finished)
