"""`interleave` and `flat_map`: the elements of datasets that a function makes of each element."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, final

from .checks import COUNT, STATE, checked_fields, list_of_states, read_again, refused
from .elements import ElementIterator, Elements, State, Stream
from .plan import Keeps, Opening, Plan
from .prefetching import produced_ahead

PlanOf = Callable[[Any], Plan]
"""The plan of the dataset that a user's function makes of an element."""

OpenPart = Callable[[Any, int], Elements]
"""`open_part(element, number)` opens what is made of the input's element `number`."""


def interleaved(
    plan: Plan, plan_of: PlanOf, cycle_length: int, block_length: int, prefetch: int
) -> Plan:
    """Blocks of `block_length` elements in turn from up to `cycle_length` datasets at a time."""

    def step(inner: Elements, opening: Opening) -> Elements:
        def open_part(element: Any, number: int) -> Elements:
            try:
                part = plan_of(element)
            except StopIteration as error:
                raise RuntimeError("map_func raised StopIteration") from error
            return produced_ahead(part.open(opening.inside(number)), prefetch)

        return Stream(
            lambda iteration: _InterleaveIterator(
                inner.iterate(iteration), open_part, cycle_length, block_length, iteration
            )
        )

    text = f"interleave(cycle_length={cycle_length}, block_length={block_length})"
    # Nobody knows yet what shuffles the datasets have that the function makes.
    return plan.demanding(reshuffles=True).then(step, text, Keeps.FILES)


@final
class _Part(NamedTuple):
    """A dataset that is being read, and how the element that it was made of is read again."""

    elements: ElementIterator
    number: int
    before: State


@final
class _InterleaveIterator(ElementIterator):
    """Goes round its slots; an empty one takes the input's next element when its turn comes."""

    def __init__(
        self,
        inner: ElementIterator,
        open_part: OpenPart,
        cycle_length: int,
        block_length: int,
        iteration: int,
    ) -> None:
        self._inner = inner
        self._open_part = open_part
        self._slots: list[_Part | None] = [None] * cycle_length
        self._block_length = block_length
        self._iteration = iteration
        self._turn = 0
        self._num_in_block = 0
        self._num_opened = 0
        self._has_ended = False

    def __next__(self) -> Any:
        while True:
            part = self._slots[self._turn]
            if part is None and not self._has_ended:
                part = self._slots[self._turn] = self._open_next()
            if part is None:  # the input has ended: the open ones go on in turn
                if not any(self._slots):
                    raise StopIteration
                self._next_turn()
                continue
            try:
                element = next(part.elements)
            except StopIteration:
                part.elements.close()
                self._slots[self._turn] = None
                self._next_turn()
                continue
            self._num_in_block += 1
            if self._num_in_block == self._block_length:
                self._next_turn()
            return element

    def get_state(self) -> State:
        slots = [
            part and {"number": part.number, "before": part.before, "at": part.elements.get_state()}
            for part in self._slots
        ]
        return {
            "slots": slots,
            "turn": self._turn,
            "in_block": self._num_in_block,
            "opened": self._num_opened,
            "inner": self._inner.get_state(),
        }

    def set_state(self, state: State) -> None:
        slots = list_of_states(len(self._slots))
        fields = {"slots": slots, "turn": COUNT, "in_block": COUNT, "opened": COUNT}
        checked_fields(state, {**fields, "inner": STATE})
        if state["turn"] >= len(self._slots) or state["in_block"] >= self._block_length:
            text = f"of {len(self._slots)} datasets in blocks of {self._block_length}"
            raise refused(text, state)
        self._close_parts()
        for index, saved in enumerate(state["slots"]):
            if saved is not None:
                self._slots[index] = self._reopened(saved)
        self._inner.set_state(state["inner"])
        self._turn, self._num_in_block = state["turn"], state["in_block"]
        self._num_opened = state["opened"]
        self._has_ended = False

    def _reopened(self, saved: State) -> _Part:
        """A part of which a state says that it was open."""
        checked_fields(saved, {"number": COUNT, "before": STATE, "at": STATE})
        # Not the element is saved but where it is read: elements are arrays, states are small JSON.
        self._inner.set_state(saved["before"])
        part = read_again(partial(self._open, saved["number"], saved["before"]))
        part.elements.set_state(saved["at"])
        return part

    def close(self) -> None:
        self._close_parts()
        self._has_ended = True
        self._inner.close()

    def _open_next(self) -> _Part | None:
        before = self._inner.get_state()
        try:
            part = self._open(self._num_opened, before)
        except StopIteration:
            self._has_ended = True
            return None
        self._num_opened += 1
        return part

    def _open(self, number: int, before: State) -> _Part:
        elements = self._open_part(next(self._inner), number)
        return _Part(elements.iterate(self._iteration), number, before)

    def _next_turn(self) -> None:
        self._turn = (self._turn + 1) % len(self._slots)
        self._num_in_block = 0

    def _close_parts(self) -> None:
        for index, part in enumerate(self._slots):
            if part is not None:
                part.elements.close()
                self._slots[index] = None
