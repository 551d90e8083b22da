"""What a step does to variables, cut into what each server has to do. Pure functions of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from ...collectives.parameter_server import OptimizerSpec, Update
from .layout import Layout, Part


@dataclass(frozen=True)
class Change:
    """What is to become of one variable.

    Attributes:
        layout: Where it is.
        how: By which rule.
        slots: Where the rule's slots are; they are cut as the variable is.
        gradient: Of the variable's shape, or of some rows.
        rows: int64 numbers of the rows that `gradient` is of, rising; None for all.
    """

    layout: Layout
    how: OptimizerSpec
    slots: Sequence[Layout]
    gradient: np.ndarray
    rows: np.ndarray | None = None


@dataclass
class Share:
    """One server's part in a push: its optimizers and updates, and the arrays that go with them."""

    optimizers: list[OptimizerSpec] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)

    def add(self, change: Change, part_index: int) -> None:
        """Add one part of a variable, if there is anything to do to it."""
        part = change.layout.parts[part_index]
        if change.rows is None:
            arrays = [np.asarray(change.layout.rows_of(change.gradient, part), order="C")]
        else:
            here = rows_within(change.rows, part)
            if here.start == here.stop and change.how.rows_only:
                return
            arrays = [change.rows[here] - part.start, np.asarray(change.gradient[here], order="C")]
        slots = tuple([slot.parts[part_index].id for slot in change.slots])
        how = self._place_of(change.how)
        self.updates.append(_update(part.id, how, slots, change.rows is not None))
        self.arrays += arrays

    def _place_of(self, how: OptimizerSpec) -> int:
        """The place of a rule among the optimizers; variables of one optimizer share the object."""
        for place, known in enumerate(self.optimizers):
            if known is how:
                return place
        self.optimizers.append(how)
        return len(self.optimizers) - 1


@lru_cache(maxsize=1 << 14)  # the same in each step
def _update(part_id: int, optimizer: int, slots: tuple[int, ...], rows: bool) -> Update:
    return Update(id=part_id, optimizer=optimizer, slots=slots, rows=rows)


def split_changes(changes: Sequence[Change], num_servers: int) -> list[Share]:
    """Each server's part of a step."""
    shares = [Share() for _ in range(num_servers)]
    for change in changes:
        for index, part in enumerate(change.layout.parts):
            shares[part.server].add(change, index)
    return shares


def rows_within(rows: np.ndarray, part: Part) -> slice:
    """Which of rising row numbers fall into a part."""
    start, stop = np.searchsorted(rows, (part.start, part.stop))
    return slice(int(start), int(stop))


def parts_with_rows(layout: Layout, rows: np.ndarray) -> Iterator[tuple[Part, slice]]:
    """The parts that hold some of these rows, with the place of theirs among them.

    Args:
        rows: Rising row numbers.

    Raises:
        IndexError: There is no such row.
    """
    num_rows = layout.shape[0]
    if len(rows) and not 0 <= rows[0] <= rows[-1] < num_rows:
        wrong = rows[0] if rows[0] < 0 else rows[-1]
        raise IndexError(f"{layout.name!r} has no row {wrong}; it has {num_rows}, counted from 0")
    for part in layout.parts:
        here = rows_within(rows, part)
        if here.start < here.stop:
            yield part, here
