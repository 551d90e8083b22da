"""`window`: overlapping stretches of the input, each a small dataset of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, final

from . import nest
from ._elements import ElementIterator, Elements, State, Stream
from ._states import COUNT, STATE, checked_fields


@final
class WindowedStream(Stream):
    """Windows of up to `size` elements, every `stride`-th from every `shift`-th one on.

    Args:
        inner: what the windows are cut from.
        min_size: windows of fewer elements, at the end, are left out.
        make_dataset: makes a dataset of the values that one component has in a window.
    """

    def __init__(
        self,
        inner: Elements,
        *,
        size: int,
        shift: int,
        stride: int,
        min_size: int,
        make_dataset: Callable[[list[Any]], Any],
    ) -> None:
        self._inner = inner
        self._size = size
        self._shift = shift
        self._stride = stride
        self._min_size = min_size
        self._make_dataset = make_dataset

    def iterate(self, iteration: int) -> ElementIterator:
        return _WindowIterator(self._inner.iterate(iteration), self)

    @property
    def shift(self) -> int:
        """How many elements lie between the beginnings of two windows."""
        return self._shift

    @property
    def span(self) -> int:
        """How many consecutive elements a full window stretches over."""
        return (self._size - 1) * self._stride + 1

    def window(self, held: list[Any]) -> Any:
        """The window over consecutive elements; None if it is too small."""
        chosen = held[:: self._stride]
        if len(chosen) < self._min_size:
            return None
        columns = zip(*[nest.leaves_in_order_of(chosen[0], e) for e in chosen], strict=True)
        return nest.repacked(chosen[0], [self._make_dataset(list(column)) for column in columns])


@final
class _WindowIterator(ElementIterator):
    """Holds the elements that the next window shares; its state tells how to read them again."""

    def __init__(self, inner: ElementIterator, windows: WindowedStream) -> None:
        self._inner = inner
        self._windows = windows
        self._held: deque[tuple[State, Any]] = deque()
        self._num_to_skip = 0

    def __next__(self) -> Any:
        self._fill()
        window = self._windows.window([element for _, element in self._held])
        if window is None:
            raise StopIteration
        num_dropped = min(self._windows.shift, len(self._held))
        for _ in range(num_dropped):
            self._held.popleft()
        self._num_to_skip = self._windows.shift - num_dropped
        return window

    def get_state(self) -> State:
        before = self._held[0][0] if self._held else self._inner.get_state()
        return {"skip": self._num_to_skip, "inner": before}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"skip": COUNT, "inner": STATE})
        self._inner.set_state(state["inner"])
        self._held.clear()
        self._num_to_skip = state["skip"]

    def close(self) -> None:
        self._held.clear()
        self._inner.close()

    def _fill(self) -> None:
        try:
            while self._num_to_skip > 0:
                next(self._inner)
                self._num_to_skip -= 1
            while len(self._held) < self._windows.span:
                before = self._inner.get_state()
                self._held.append((before, next(self._inner)))
        except StopIteration:
            pass
