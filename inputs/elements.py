"""The two kinds of elements that a dataset can be opened into, and the iterator over either.

`RandomAccess` elements are computed from their position; those of a `Stream` come one after
another. A dataset's repetitions are numbered: iteration 0 is the first pass, and a reshuffling
shuffle gives each iteration its own order.

For random access all iterations lie on one line: position `p` of iteration `k` is `k * length + p`.
On that line `repeat` changes nothing but the length, and every other transformation is arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Concatenate, ParamSpec, final

import numpy as np
from numpy.typing import NDArray

from .checks import COUNT, LARGEST_COUNT, STATE, checked, checked_fields, list_of_states
from .values import stack_elements

Indices = NDArray[np.int64]
Positions = range | Indices
"""Positions in any order, at least one; or a range of ascending ones, of which views can be had."""

Arguments = ParamSpec("Arguments")

State = Any
"""What `get_state` returns: small, and made of JSON's types only."""

ENDLESS = 1 << 48
"""About the length of an infinite dataset: at ten million elements a second it lasts 325 days."""


class ElementIterator(ABC):
    """One pass over elements that can be saved between any two of them."""

    @abstractmethod
    def __next__(self) -> Any:
        """The next element; StopIteration at the end.

        Any other exception stands for the element that could not be had: the next call goes on
        behind it.
        """

    def next_batch(self, size: int, min_size: int) -> Any:
        """The next `size` elements, stacked, or as many as are left, if there are `min_size`."""
        elements = take_up_to(size, self)
        if len(elements) < min_size:
            raise StopIteration
        return stack_elements(elements)

    @abstractmethod
    def get_state(self) -> State:
        """The position of the next element, as JSON values."""

    @abstractmethod
    def set_state(self, state: State) -> None:
        """Continues where `get_state` of an iterator of the same chain was called.

        Not to be called after `close`.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases threads and sources; calling it again does nothing."""


class DerivedIterator(ElementIterator):
    """Makes elements of those of another iterator, and holds none between two calls.

    So its state is the input's; or, where a subclass counts, a dict of the counters and that.
    """

    _counters: ClassVar[dict[str, str]] = {}
    """The attribute for each counter in a state."""

    def __init__(self, inner: ElementIterator) -> None:
        self._inner = inner

    @final
    def get_state(self) -> State:
        state = self._inner.get_state()
        if not self._counters:
            return state
        counts = {field: getattr(self, name) for field, name in self._counters.items()}
        return {**counts, "inner": state}

    @final
    def set_state(self, state: State) -> None:
        if self._counters:
            checked_fields(state, {**dict.fromkeys(self._counters, COUNT), "inner": STATE})
            for field, name in self._counters.items():
                setattr(self, name, state[field])
            state = state["inner"]
        self._inner.set_state(state)

    @final
    def close(self) -> None:
        self._inner.close()


class JointIterator(ElementIterator):
    """Makes each element of those that several iterators have at the same time."""

    def __init__(self, parts: Sequence[ElementIterator]) -> None:
        self._parts = parts

    @final
    def get_state(self) -> State:
        return [part.get_state() for part in self._parts]

    @final
    def set_state(self, state: State) -> None:
        checked(state, list_of_states(len(self._parts)))
        for part, part_state in zip(self._parts, state, strict=True):
            part.set_state(part_state)

    @final
    def close(self) -> None:
        for part in self._parts:
            part.close()


ByPosition = Callable[Concatenate["RandomAccess", Arguments], "RandomAccess"]
"""The class that a verb makes of elements with random access, given these and its arguments."""

InOrder = Callable[Concatenate[ElementIterator, Arguments], ElementIterator]
"""The class that a verb makes of a pass over elements, given the pass and its arguments."""


class Elements(ABC):
    """The elements of one opened dataset."""

    @abstractmethod
    def iterate(self, iteration: int) -> ElementIterator:
        """A pass over the given iteration, from its first element."""

    @abstractmethod
    def random_access(self) -> RandomAccess | None:
        """Itself, if elements can be read at any position; otherwise None."""

    @final
    def through(
        self,
        in_order: InOrder[Arguments],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Stream:
        """The stream whose passes are iterators of a class over passes of these elements."""
        return Stream(lambda iteration: in_order(self.iterate(iteration), *args, **kwargs))

    @final
    def transformed(
        self,
        by_position: ByPosition[Arguments],
        in_order: InOrder[Arguments],
        *args: Arguments.args,
        **kwargs: Arguments.kwargs,
    ) -> Elements:
        """What a verb makes of these elements: by position where it can, otherwise in order."""
        access = self.random_access()
        if access is None:
            return self.through(in_order, *args, **kwargs)
        return by_position(access, *args, **kwargs)


BeginPass = Callable[[int], ElementIterator]
"""`begin_pass(iteration)` is the iterator over that iteration, at its first element."""


@final
class Stream(Elements):
    """Elements that can only be had in order."""

    def __init__(self, begin_pass: BeginPass) -> None:
        self._begin_pass = begin_pass

    def iterate(self, iteration: int) -> ElementIterator:
        return self._begin_pass(iteration)

    def random_access(self) -> None:
        return None


class RandomAccess(Elements):
    """Elements that are functions of their position, `length` of them in each iteration."""

    length: int

    @abstractmethod
    def element(self, position: int) -> Any:
        """The element at one position."""

    @abstractmethod
    def gather(self, positions: Positions) -> Any:
        """The elements at the positions, stacked; of consecutive ones it may be a view."""

    @abstractmethod
    def each(self, positions: Positions) -> list[Any]:
        """The elements at the positions, one by one."""

    @final
    def random_access(self) -> RandomAccess:
        return self

    @final
    def iterate(self, iteration: int) -> ElementIterator:
        return _PositionIterator(self, iteration)


class Elementwise(RandomAccess):
    """Random access whose batches are stacked from single elements."""

    @final
    def gather(self, positions: Positions) -> Any:
        return stack_elements(self.each(positions))


class Rearranged(RandomAccess):
    """The elements of `inner` at other positions, which are found by arithmetic."""

    def __init__(self, inner: RandomAccess, length: int) -> None:
        self.length = length
        self._inner = inner

    @abstractmethod
    def _source(self, position: int) -> int:
        """The position in `inner` of what lies at `position` here."""

    @abstractmethod
    def _sources(self, positions: Positions) -> Positions:
        """`_source` of each of the positions."""

    @final
    def element(self, position: int) -> Any:
        return self._inner.element(self._source(position))

    @final
    def gather(self, positions: Positions) -> Any:
        return self._inner.gather(self._sources(positions))

    @final
    def each(self, positions: Positions) -> list[Any]:
        return self._inner.each(self._sources(positions))


def iteration_start(elements: RandomAccess, iteration: Any) -> Any:
    """The position at which an iteration (or each of several) begins.

    Iterations are numbered modulo what 64 bits can address: 16384 of an infinite dataset. Beyond,
    the orders of its shuffles come round again.
    """
    return iteration % max(LARGEST_COUNT // max(elements.length, 1), 1) * elements.length


def in_one_iteration(positions: range, length: int) -> bool:
    """Whether ascending positions belong to the same iteration of `length` elements."""
    return positions.start // length == positions[-1] // length


def as_indices(positions: Positions) -> Indices:
    """The positions as an array, for arithmetic on all of them at once."""
    if isinstance(positions, range):
        return np.arange(positions.start, positions.stop, positions.step)
    return positions


def take_up_to(count: int, iterator: ElementIterator) -> list[Any]:
    """The next `count` elements, or as many as are left."""
    elements: list[Any] = []
    try:
        while len(elements) < count:
            elements.append(next(iterator))
    except StopIteration:
        pass
    return elements


def add_element_note(error: BaseException, number: int) -> None:
    """Adds to an error of a transformation which element it was working on."""
    error.add_note(f"At element {number} of the transformation's input.")


@final
class _PositionIterator(ElementIterator):
    """Walks along positions; its state is one number."""

    def __init__(self, elements: RandomAccess, iteration: int) -> None:
        self._element = elements.element
        self._start = iteration_start(elements, iteration)
        self._stop = self._start + elements.length
        self._position = self._start

    def __next__(self) -> Any:
        position = self._position
        if position >= self._stop:
            raise StopIteration
        self._position = position + 1
        return self._element(position)

    def get_state(self) -> State:
        return {"position": self._position - self._start}

    def set_state(self, state: State) -> None:
        self._position = self._start + checked_fields(state, {"position": COUNT})["position"]

    def close(self) -> None:
        self._position = self._stop
