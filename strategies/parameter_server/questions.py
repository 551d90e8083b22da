"""What a trainer asks a server for, and what it sends: pure functions of layouts and arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...collectives.parameter_server import Asks, Held, Pull, ShardSpec
from ..storage import SavedValue
from .layout import Layout, Part

ASK_AGAIN_SECS = 1.0
"""A request that has to wait is answered, and asked again, so often."""

_WORTH_LOOKING_BYTES = 64 << 10


@dataclass(frozen=True)
class Question:
    """A request with its arrays, and where the arrays of the reply go.

    Attributes:
        request, arrays, into: See `ParameterClient.start`.
        may_be_repeated: Whether the arrays are still the same when the reply comes, so that it can
            be sent again when the connection is lost.
    """

    request: Asks[Any]
    arrays: Sequence[np.ndarray] = ()
    into: Sequence[np.ndarray] = ()
    may_be_repeated: bool = True


@dataclass
class Wanted:
    """Values that one server is to send: of whole parts or of some of their rows."""

    ids: list[int] = field(default_factory=list)
    rows: dict[int, np.ndarray] = field(default_factory=dict)
    into: list[np.ndarray] = field(default_factory=list)

    def question(self, min_version: int) -> Question:
        """Ask for them as they are after so many updates."""
        request = Pull(
            ids=tuple(self.ids),
            rows=tuple([number in self.rows for number in self.ids]) if self.rows else (),
            min_version=min_version,
            wait_secs=ASK_AGAIN_SECS if min_version else 0.0,
        )
        return Question(request, list(self.rows.values()), self.into)


def cut_of(held: Sequence[Held]) -> tuple[int, list[dict[int, int]]]:
    """Which pushes belong to a snapshot of servers that stand still.

    A trainer has at most one push under way: the one that some of the servers have that it goes to,
    and others have not. It belongs to the snapshot of all of them.

    Returns:
        The version that all are to come to, where trainers are in step; and for each server, by
        rank, the number of the last push.
    """
    numbers: list[dict[int, int]] = [{} for _ in held]
    ranks = sorted({rank for one in held for rank in one.positions})
    for rank in ranks:
        known = [one.positions.get(rank) for one in held]
        newest = max((p for p in known if p is not None), key=lambda p: p.number)
        for server, position in enumerate(known):
            if server in newest.servers:
                numbers[server][rank] = newest.number
            elif position is not None:
                numbers[server][rank] = position.number
    return max(one.version for one in held), numbers


def rows_to_send(value: np.ndarray | SavedValue, layout: Layout, part: Part) -> list[np.ndarray]:
    """What goes to a server of a value; nothing where it reads for itself."""
    if isinstance(value, SavedValue):
        return []
    return [np.asarray(layout.rows_of(value, part), order="C")]


def only_number(value: np.ndarray) -> float | None:
    """The number that all elements of a large array are, to the bit, if there is one."""
    if value.nbytes < _WORTH_LOOKING_BYTES or value.dtype.kind != "f" or value.itemsize > 8:
        return None
    bits = np.ascontiguousarray(value).reshape(-1).view(f"u{value.itemsize}")
    number = float(value.reshape(-1)[0])
    is_plain = math.isfinite(number) and (number != 0 or bits[0] == 0)  # no minus zero
    return number if is_plain and bits[-1] == bits[0] and (bits == bits[0]).all() else None


def spec_of(layout: Layout, part: Part) -> ShardSpec:
    return ShardSpec.model_validate(
        {
            "name": layout.name,
            "whole_shape": layout.shape,
            "dtype": layout.dtype,
            "start": part.start,
            "stop": part.stop,
        }
    )


def whole(variables: Sequence[tuple[Layout, np.ndarray]]) -> dict[int, Wanted]:
    """What each server is to send so that arrays are filled with whole variables."""
    by_server: dict[int, Wanted] = {}
    for layout, array in variables:
        for part in layout.parts:
            wanted = by_server.setdefault(part.server, Wanted())
            wanted.ids.append(part.id)
            wanted.into.append(layout.rows_of(array, part))
    return by_server
