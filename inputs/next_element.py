"""What TensorFlow 1's `get_next` gives: elements, or stand-ins while an `input_fn` is called.

In TensorFlow 1 an `input_fn` is called once and returns what stands for the next element of each
step. It may take that apart, rename it and compute with it. The caller of an `input_fn`, who knows
what a stand-in can do, says here how they are made; a run-time argument cannot reach `get_next`,
which the user's function calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, final

from .plan import Plan

MakeStandIns = Callable[[object, Plan], Any]
"""Makes what stands for the elements of an iterator, which is over the dataset of this plan."""

_make_stand_ins: ContextVar[MakeStandIns | None] = ContextVar(
    "paceline_inputs_make_stand_ins", default=None
)


@contextmanager
def stand_ins_for_elements(make: MakeStandIns) -> Iterator[None]:
    """While this holds, `get_next` in this thread reads nothing and gives what `make` makes."""
    token = _make_stand_ins.set(make)
    try:
        yield
    finally:
        _make_stand_ins.reset(token)


def current_stand_ins() -> MakeStandIns | None:
    """What makes stand-ins; None where `get_next` gives elements."""
    return _make_stand_ins.get()


@final
class OptionalElement:
    """What `get_next_as_optional` gives: an element, or none behind the last one.

    Args:
        elements: The element alone; empty if there is none.
    """

    def __init__(self, elements: tuple[Any, ...]) -> None:
        self._elements = elements

    def has_value(self) -> bool:
        """Whether there is an element."""
        return bool(self._elements)

    def get_value(self) -> Any:
        """The element.

        Raises:
            ValueError: There is none.
        """
        if not self._elements:
            raise ValueError("the dataset has no further element; ask has_value() before")
        return self._elements[0]
