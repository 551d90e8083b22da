"""A trainer's pulls and pushes, cut into what each server is asked: pure functions of arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np

from ...autodiff import distinct_rows
from ...collectives.parameter_server import (
    Asks,
    Create,
    OptimizerSpec,
    Pull,
    PushPlan,
    Rate,
    ShardSpec,
    Update,
)
from ..variables.cell import SavedValue
from .placement import Layout, Part

ASK_AGAIN_SECS = 1.0
"""A request that has to wait is answered, and asked again, so often."""

# A smaller array travels as fast as it is found out whether all its elements are equal.
_MIN_BYTES_TO_COMPARE = 64 << 10


@dataclass(frozen=True)
class ServerRequest:
    """A request with its arrays, and where the arrays of the reply go.

    Attributes:
        request, arrays, into: See `ParameterClient.start`.
        is_repeatable: Whether the arrays are still the same when the reply comes, so that it can be
            sent again when the connection is lost.
    """

    request: Asks[Any]
    arrays: Sequence[np.ndarray] = ()
    into: Sequence[np.ndarray] = ()
    is_repeatable: bool = True


@dataclass(frozen=True)
class VariableChange:
    """What is to become of one variable in a step.

    Attributes:
        layout: Where it is.
        optimizer: By which rule.
        rate: With which learning rate, and as which update.
        slots: Where the rule's slots are; they are cut as the variable is.
        gradient: Of the variable's shape, or of some rows.
        rows: int64 numbers of the rows that `gradient` is of, rising; None for all.
    """

    layout: Layout
    optimizer: OptimizerSpec
    rate: Rate
    slots: Sequence[Layout]
    gradient: np.ndarray
    rows: np.ndarray | None = None


class PartUpdate(NamedTuple):
    """An `Update` that is quickly compared with that of the step before."""

    id: int
    optimizer: int
    slots: tuple[int, ...]
    rows: bool


@dataclass
class PushPart:
    """One server's part of a push: its optimizers and updates, and the arrays that go with them."""

    optimizers: list[OptimizerSpec] = field(default_factory=list)
    rates: list[Rate] = field(default_factory=list)
    updates: list[PartUpdate] = field(default_factory=list)
    arrays: list[np.ndarray] = field(default_factory=list)

    def add(self, change: VariableChange, part_index: int) -> None:
        """Add one part of a variable, if there is anything to do to it."""
        part = change.layout.parts[part_index]
        if change.rows is None:
            arrays = [_rows_of(change.layout, change.gradient, part)]
        else:
            here = rows_within(change.rows, part)
            if here.start == here.stop and change.optimizer.rows_only:
                return
            # The server counts rows within its part.
            arrays = [change.rows[here] - part.start, np.asarray(change.gradient[here], order="C")]
        slots = tuple([slot.parts[part_index].id for slot in change.slots])
        has_rows = change.rows is not None
        self.updates.append(PartUpdate(part.id, self._index_of(change), slots, has_rows))
        self.arrays += arrays

    def plan(self, pull: Sequence[int]) -> str:
        """What the server is told to do, and to send afterwards."""
        return _plan(tuple(self.optimizers), tuple(self.updates), tuple(pull))

    def _index_of(self, change: VariableChange) -> int:
        """That of its optimizer; variables of one optimizer share the object."""
        for index, known in enumerate(self.optimizers):
            if known is change.optimizer and self.rates[index] == change.rate:
                return index
        self.optimizers.append(change.optimizer)
        self.rates.append(change.rate)
        return len(self.optimizers) - 1


@lru_cache(maxsize=256)  # the same in each step
def _plan(
    optimizers: tuple[OptimizerSpec, ...],
    updates: tuple[PartUpdate, ...],
    pull: tuple[int, ...],
) -> str:
    records = tuple([Update(**update._asdict()) for update in updates])
    return PushPlan(optimizers=optimizers, updates=records, pull=pull).text


def split_changes(changes: Sequence[VariableChange], num_servers: int) -> list[PushPart]:
    """Each server's part of a step."""
    parts = [PushPart() for _ in range(num_servers)]
    for change in changes:
        for index, part in enumerate(change.layout.parts):
            parts[part.server].add(change, index)
    return parts


@dataclass
class PullPart:
    """Values that one server is to send: of whole parts or of some of their rows."""

    ids: list[int] = field(default_factory=list)
    rows: list[np.ndarray | None] = field(default_factory=list)
    into: list[np.ndarray] = field(default_factory=list)

    def add(self, part_id: int, rows: np.ndarray | None, into: np.ndarray) -> None:
        """Ask for a part too, or for some of its rows, counted within it."""
        self.ids.append(part_id)
        self.rows.append(rows)
        self.into.append(into)

    def request(self, min_version: int) -> ServerRequest:
        """Ask for them as they are after so many updates."""
        pull = Pull(
            ids=tuple(self.ids),
            rows=tuple([rows is not None for rows in self.rows]),
            min_version=min_version,
            wait_secs=ASK_AGAIN_SECS if min_version else 0.0,
        )
        arrays = [rows for rows in self.rows if rows is not None]
        return ServerRequest(pull, arrays, self.into)


def pull_of_variables(variables: Sequence[tuple[Layout, np.ndarray]]) -> dict[int, PullPart]:
    """What each server is to send so that arrays are filled with whole variables."""
    by_server: dict[int, PullPart] = {}
    for layout, array in variables:
        for part in layout.parts:
            pull = by_server.setdefault(part.server, PullPart())
            pull.add(part.id, None, layout.rows_of(array, part))
    return by_server


@final
class RowLookup:
    """Rows of a variable that are wanted: each of them travels once.

    Args:
        layout: Where the variable is.
        rows: int64 numbers of any shape, from 0.

    Attributes:
        layout: As given.
        rows: The different ones, rising.
        places: For each row that is wanted its position among these, in one dimension.
        found: Is to be filled with these.

    Raises:
        IndexError: There is no such row.
    """

    def __init__(self, layout: Layout, rows: np.ndarray) -> None:
        self.layout = layout
        self._shape = rows.shape
        self.rows, self.places = distinct_rows(rows.reshape(-1))
        self.found = np.empty((len(self.rows), *layout.shape[1:]), layout.dtype)
        check_rows(layout, self.rows)

    def result(self) -> np.ndarray:
        """The rows as they were asked for."""
        return self.found[self.places].reshape(*self._shape, *self.layout.shape[1:])


def pull_of_rows(lookups: Sequence[RowLookup]) -> dict[int, PullPart]:
    """What each server is to send so that all that was looked up is found."""
    by_server: dict[int, PullPart] = {}
    for lookup in lookups:
        for part, here in parts_with_rows(lookup.layout, lookup.rows):
            pull = by_server.setdefault(part.server, PullPart())
            pull.add(part.id, lookup.rows[here] - part.start, lookup.found[here])
    return by_server


def creations_of(
    layout: Layout, value: np.ndarray | SavedValue, version: int
) -> Iterator[tuple[int, ServerRequest]]:
    """For each part of a new variable its server, and what has that one hold it.

    What is saved a server reads for itself; of one number everywhere only that travels.
    """
    whole = None if isinstance(value, SavedValue) else value
    path = value.path if isinstance(value, SavedValue) else None
    fill = None if whole is None else only_number(whole)
    for part in layout.parts:
        spec = shard_of(layout, part)
        create = Create(id=part.id, spec=spec, fill=fill, checkpoint=path, version=version)
        arrays = [_rows_of(layout, whole, part)] if whole is not None and fill is None else []
        yield part.server, ServerRequest(create, arrays)


def shard_of(layout: Layout, part: Part) -> ShardSpec:
    """What a server holds as a part of a variable."""
    return ShardSpec.model_validate(
        {
            "name": layout.name,
            "whole_shape": layout.shape,
            "dtype": layout.dtype,
            "start": part.start,
            "stop": part.stop,
        }
    )


def rows_within(rows: np.ndarray, part: Part) -> slice:
    """Which of rising row numbers fall into a part."""
    return slice(*rows.searchsorted((part.start, part.stop)).tolist())


def check_rows(layout: Layout, rows: np.ndarray) -> None:
    """Make sure that a variable has these rows, which are rising.

    Raises:
        IndexError: There is no such row.
    """
    num_rows = layout.shape[0]
    if len(rows) and not 0 <= rows[0] <= rows[-1] < num_rows:
        wrong = rows[0] if rows[0] < 0 else rows[-1]
        raise IndexError(f"{layout.name!r} has no row {wrong}; it has {num_rows}, counted from 0")


def parts_with_rows(layout: Layout, rows: np.ndarray) -> Iterator[tuple[Part, slice]]:
    """The parts that hold some of these rising rows, with the place of theirs among them."""
    for part in layout.parts:
        here = rows_within(rows, part)
        if here.start < here.stop:
            yield part, here


def only_number(value: np.ndarray) -> float | None:
    """The number that all elements of a large array are, to the bit, if there is one."""
    if value.nbytes < _MIN_BYTES_TO_COMPARE or value.dtype.kind != "f" or value.itemsize > 8:
        return None
    bits = np.ascontiguousarray(value).reshape(-1).view(f"u{value.itemsize}")
    number = float(value.reshape(-1)[0])
    is_plain = math.isfinite(number) and (number != 0 or bits[0] == 0)  # no minus zero
    return number if is_plain and bits[-1] == bits[0] and (bits == bits[0]).all() else None


def _rows_of(layout: Layout, array: np.ndarray, part: Part) -> np.ndarray:
    return np.asarray(layout.rows_of(array, part), order="C")
