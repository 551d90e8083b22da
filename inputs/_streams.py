"""Sources and rearrangements whose elements come one after another."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, final

from . import nest
from ._elements import ElementIterator, Elements, State, Stream
from ._states import COUNT, FLAG, STATE, checked, checked_fields, list_of_states, refused

_logger = logging.getLogger("paceline")


@final
class StridedStream(Stream):
    """Every `step`-th element from `start` to before `stop`: take, skip and shard."""

    def __init__(self, inner: Elements, start: int, stop: int | None, step: int) -> None:
        self._inner = inner
        self._start = start
        self._stop = stop
        self._step = step

    def iterate(self, iteration: int) -> ElementIterator:
        return _StridedIterator(self._inner.iterate(iteration), self._start, self._stop, self._step)


@final
class _StridedIterator(ElementIterator):
    def __init__(self, inner: ElementIterator, start: int, stop: int | None, step: int) -> None:
        self._inner = inner
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

    def get_state(self) -> State:
        return {"source": self._source, "read": self._num_read, "inner": self._inner.get_state()}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"source": COUNT, "read": COUNT, "inner": STATE})
        self._source, self._num_read = state["source"], state["read"]
        self._inner.set_state(state["inner"])

    def close(self) -> None:
        self._inner.close()


@final
class RepeatedStream(Stream):
    """`count` iterations in a row; None goes on until an iteration is empty."""

    def __init__(self, inner: Elements, count: int | None) -> None:
        self._inner = inner
        self._count = count

    def iterate(self, iteration: int) -> ElementIterator:
        first = 0 if self._count is None else iteration * self._count
        return _RepeatedIterator(self._inner, first, self._count)


@final
class _RepeatedIterator(ElementIterator):
    def __init__(self, inner: Elements, first: int, count: int | None) -> None:
        self._inner = inner
        self._first = first
        self._count = count
        self._num_finished = 0
        self._is_empty = True
        self._pass = inner.iterate(first)

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
        if self._is_empty:
            raise StopIteration
        self._num_finished += 1
        self._is_empty = True
        self._pass = self._inner.iterate(self._first + self._num_finished)


@final
class ZippedStream(Stream):
    """Structures of the elements that come at the same time; ends with the shortest part."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    def iterate(self, iteration: int) -> ElementIterator:
        return _ZippedIterator(
            nest.map_structure(lambda part: part.iterate(iteration), self._parts)
        )


@final
class _ZippedIterator(ElementIterator):
    def __init__(self, parts: Any) -> None:
        self._parts = parts
        self._leaves: list[ElementIterator] = nest.flatten(parts)

    def __next__(self) -> Any:
        elements: list[Any] = []
        first_error: Exception | None = None
        for part in self._leaves:
            try:
                elements.append(next(part))
            except StopIteration:
                raise
            except Exception as error:
                # The other parts move on as well, so that what belongs together stays together.
                first_error = first_error or error
        if first_error is not None:
            raise first_error
        return nest.repacked(self._parts, elements)

    def get_state(self) -> State:
        return [part.get_state() for part in self._leaves]

    def set_state(self, state: State) -> None:
        checked(state, list_of_states(len(self._leaves)))
        for part, part_state in zip(self._leaves, state, strict=True):
            part.set_state(part_state)

    def close(self) -> None:
        for part in self._leaves:
            part.close()


@final
class ConcatenatedStream(Stream):
    """Several parts, one after another."""

    def __init__(self, parts: Sequence[Elements]) -> None:
        self._parts = parts

    def iterate(self, iteration: int) -> ElementIterator:
        return _ConcatenatedIterator(self._parts, iteration)


@final
class _ConcatenatedIterator(ElementIterator):
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
