"""`window`: overlapping stretches of the input, each a small dataset of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from . import nest
from .checks import COUNT, STATE, checked_fields
from .elements import ElementIterator, State
from .plan import Plan, strided_cardinality
from .sources import Items
from .values import DatasetSpec

MakeDataset = Callable[[Plan], Any]
"""Makes the dataset that users see of the plan of one component of a window."""


@final
@dataclass(frozen=True)
class Windows:
    """Which elements make a window: `size` of them at most, `stride` apart.

    Each window begins `shift` elements further; smaller ones at the end may be left out.
    """

    size: int
    shift: int
    stride: int
    drop_remainder: bool

    @property
    def span(self) -> int:
        """How many consecutive elements a full window stretches over."""
        return (self.size - 1) * self.stride + 1

    def count(self, cardinality: int) -> int:
        """How many windows there are over so many elements."""
        if cardinality < 0:
            return cardinality
        first = self.span - 1 if self.drop_remainder else 0
        return strided_cardinality(cardinality, first, None, self.shift)


def windowed(plan: Plan, windows: Windows, make_dataset: MakeDataset) -> Plan:
    w = windows
    return plan.then(
        lambda inner, _: inner.through(_WindowIterator, windows, make_dataset),
        f"window({w.size}, shift={w.shift}, stride={w.stride}, drop_remainder={w.drop_remainder})",
        # Not the files: a window may lie across the border between two of them.
        count=windows.count,
        known_spec=lambda: nest.map_structure(DatasetSpec, plan.spec()),
    )


@final
class _WindowIterator(ElementIterator):
    """Holds the elements that the next window shares; its state tells how to read them again."""

    def __init__(self, inner: ElementIterator, windows: Windows, make_dataset: MakeDataset) -> None:
        self._inner = inner
        self._windows = windows
        self._make_dataset = make_dataset
        self._held: deque[tuple[State, Any]] = deque()
        self._num_to_skip = 0

    def __next__(self) -> Any:
        self._fill()
        chosen = [element for _, element in self._held][:: self._windows.stride]
        if len(chosen) < (self._windows.size if self._windows.drop_remainder else 1):
            raise StopIteration
        num_dropped = min(self._windows.shift, len(self._held))
        for _ in range(num_dropped):
            self._held.popleft()
        self._num_to_skip = self._windows.shift - num_dropped
        columns = zip(*[nest.leaves_in_order_of(chosen[0], e) for e in chosen], strict=True)
        datasets = [self._make_dataset(_values_plan(list(column))) for column in columns]
        return nest.repacked(chosen[0], datasets)

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


def _values_plan(values: list[Any]) -> Plan:
    """The dataset of one component of a window."""
    items = Items(len(values), lambda indices: [values[index] for index in indices])
    return Plan("window", len(values), open=lambda _: items)
