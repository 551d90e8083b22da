"""The two kinds of elements that a dataset can be opened into, and the iterator over either.

`RandomAccess` elements are computed from their position; `Stream` elements come one after another.
A dataset's repetitions are numbered: iteration 0 is the first pass, and a reshuffling shuffle gives
each iteration its own order.

For random access all iterations lie on one line: position `p` of iteration `k` is `k * length + p`.
On that line `repeat` changes nothing but the length, and every other transformation is arithmetic.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from ._stacking import stack_elements
from ._states import COUNT, LARGEST_COUNT, checked_fields

Positions = NDArray[np.int64]
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

    @abstractmethod
    def get_state(self) -> State:
        """The place of the next element, as JSON values."""

    @abstractmethod
    def set_state(self, state: State) -> None:
        """Continues where `get_state` of an iterator of the same chain was called.

        Not to be called after `close`.
        """

    @abstractmethod
    def close(self) -> None:
        """Releases threads and sources; calling it again does nothing."""


class StatelessIterator(ElementIterator):
    """Makes elements from those of another pass, and keeps none: its state is the input's.

    Args:
        inner: The input.
    """

    def __init__(self, inner: ElementIterator) -> None:
        self._inner = inner

    def get_state(self) -> State:
        return self._inner.get_state()

    def set_state(self, state: State) -> None:
        self._inner.set_state(state)

    def close(self) -> None:
        self._inner.close()


class Elements(ABC):
    """The elements of one opened dataset."""

    @abstractmethod
    def iterate(self, iteration: int) -> ElementIterator:
        """A pass over the given iteration, from its first element."""

    @abstractmethod
    def random_access(self) -> RandomAccess | None:
        """Itself, if elements can be read at any position; otherwise None."""


class Stream(Elements):
    """Elements that can only be had in order."""

    def random_access(self) -> RandomAccess | None:
        """A stream has none."""
        return None


class RandomAccess(Elements):
    """Elements that are functions of their position, `length` of them in each iteration."""

    length: int

    @abstractmethod
    def element(self, position: int) -> Any:
        """The element at one position."""

    @abstractmethod
    def batch(self, positions: range) -> Any:
        """The elements at evenly spaced, ascending positions (at least one), stacked."""

    @abstractmethod
    def gather(self, positions: Positions) -> Any:
        """The elements at the given positions (at least one, in any order), stacked."""

    @abstractmethod
    def each(self, positions: Positions) -> list[Any]:
        """The elements at the given positions (at least one, in any order), one by one."""

    def random_access(self) -> RandomAccess:
        """Itself."""
        return self

    def iterate(self, iteration: int) -> ElementIterator:
        """A pass over the given iteration."""
        return _PositionIterator(self, iteration)


def note_element(error: BaseException, number: int) -> None:
    """Adds to an error of a transformation which element it was working on."""
    error.add_note(f"At element {number} of the transformation's input.")


def iteration_start(elements: RandomAccess, iteration: Any) -> Any:
    """The position at which an iteration begins.

    Iterations are numbered modulo what 64 bits can address: 16384 of an infinite dataset. Beyond,
    the orders of its shuffles come round again.
    """
    return iteration % max(LARGEST_COUNT // max(elements.length, 1), 1) * elements.length


def in_one_iteration(positions: range, length: int) -> bool:
    """Whether ascending positions belong to the same iteration of `length` elements."""
    return positions.start // length == positions[-1] // length


def as_array(positions: range) -> Positions:
    """The positions of a range, for `gather`."""
    return np.arange(positions.start, positions.stop, positions.step)


class Elementwise(RandomAccess):
    """Random access whose batches are stacked from single elements."""

    def batch(self, positions: range) -> Any:
        """The elements of a range, stacked."""
        return stack_elements(self.each(as_array(positions)))

    def gather(self, positions: Positions) -> Any:
        """The elements at the positions, stacked."""
        return stack_elements(self.each(positions))


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
