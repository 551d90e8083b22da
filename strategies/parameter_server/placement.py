"""Which parameter server holds which rows of which variable.

The chief lays variables out in the order of their creation and posts each `Layout`; the other
trainers read it.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np
from pydantic import BaseModel, ConfigDict

Shape: TypeAlias = "tuple[int, ...]"


@dataclass(frozen=True)
class Piece:
    """Some rows of a variable that are to be placed, or a whole one.

    Args:
        name: The variable's.
        shape: The piece's own.
        dtype: Of its elements.
    """

    name: str
    shape: Shape
    dtype: np.dtype

    @property
    def num_bytes(self) -> int:
        """The size of its value."""
        return math.prod(self.shape) * self.dtype.itemsize


Place: TypeAlias = Callable[[Piece, Sequence[int]], int]
"""`place(piece, bytes_placed)`: the index of the server that gets a piece.

`bytes_placed` has for each server the number of bytes that it has got so far.
"""


@final
class RoundRobin:
    """One server after the other, in the order in which variables are created."""

    def __init__(self) -> None:
        self._next = 0

    def __call__(self, piece: Piece, bytes_placed: Sequence[int]) -> int:
        index = self._next % len(bytes_placed)
        self._next += 1
        return index


def smallest_first(piece: Piece, bytes_placed: Sequence[int]) -> int:
    """The server that has got the fewest bytes so far; of several the first."""
    return int(np.argmin(bytes_placed))


def placement_of(placement: Literal["round_robin", "by_size"] | Place) -> Place:
    """The function that places pieces, from its name or as the user gives it.

    Raises:
        ValueError: It is neither a known name nor a function.
    """
    if callable(placement):
        return placement
    if placement == "round_robin":
        return RoundRobin()
    if placement == "by_size":
        return smallest_first
    raise ValueError(
        f"placement is {placement!r}; give 'round_robin', 'by_size', or a function "
        f"place(piece, bytes_placed) that returns the index of a parameter server"
    )


class Partitioner(ABC):
    """Says into how many pieces a variable is cut, along its first dimension."""

    @abstractmethod
    def num_shards(self, shape: Shape, dtype: np.dtype) -> int:
        """The number of pieces, at least 1."""


@final
class FixedShardsPartitioner(Partitioner):
    """Cuts every variable into the same number of pieces.

    Args:
        num_shards: How many; a variable with fewer rows is cut into single rows.
    """

    def __init__(self, num_shards: int) -> None:
        self._num_shards = _positive("num_shards", num_shards)

    def num_shards(self, shape: Shape, dtype: np.dtype) -> int:
        return self._num_shards


@final
class MinSizePartitioner(Partitioner):
    """Cuts into as many pieces as possible, none smaller than a given size.

    Args:
        min_shard_bytes: The least size of a piece.
        max_shards: The most pieces.
    """

    def __init__(self, min_shard_bytes: int = 256 << 10, max_shards: int = 1) -> None:
        self._min_shard_bytes = _positive("min_shard_bytes", min_shard_bytes)
        self._max_shards = _positive("max_shards", max_shards)

    def num_shards(self, shape: Shape, dtype: np.dtype) -> int:
        num_bytes = math.prod(shape) * dtype.itemsize
        return max(1, min(self._max_shards, num_bytes // self._min_shard_bytes))


@final
class MaxSizePartitioner(Partitioner):
    """Cuts into as few pieces as possible, none larger than a given size (or than one row).

    Args:
        max_shard_bytes: The largest size of a piece.
        max_shards: The most pieces, even if they get larger then; None for no limit.
    """

    def __init__(self, max_shard_bytes: int, max_shards: int | None = None) -> None:
        self._max_shard_bytes = _positive("max_shard_bytes", max_shard_bytes)
        self._max_shards = None if max_shards is None else _positive("max_shards", max_shards)

    def num_shards(self, shape: Shape, dtype: np.dtype) -> int:
        num_rows = max(1, shape[0] if shape else 1)
        row_bytes = max(1, math.prod(shape[1:]) * dtype.itemsize)
        rows_in_one = max(1, self._max_shard_bytes // row_bytes)
        wanted = -(-num_rows // rows_in_one)
        return wanted if self._max_shards is None else min(wanted, self._max_shards)


def cut_rows(num_rows: int, num_shards: int) -> list[tuple[int, int]]:
    """Ranges (start, stop) of rows, as even as possible, the first ones longer by one."""
    num_shards = max(1, min(num_shards, num_rows))
    length, longer = divmod(num_rows, num_shards)
    starts = [i * length + min(i, longer) for i in range(num_shards + 1)]
    return list(itertools.pairwise(starts))


class Part(BaseModel):
    """The rows `start` to `stop` (not included) of a variable, on one server.

    Attributes:
        id: Its number in the job.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: int
    server: int
    start: int
    stop: int


class Layout(BaseModel):
    """Where one variable is.

    Attributes:
        name, shape, dtype: As the variable has them; a scalar counts as one row.
        parts: Its rows in order, without gaps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    shape: Shape
    dtype: str
    parts: tuple[Part, ...]

    def rows_of(self, array: np.ndarray, part: Part) -> np.ndarray:
        """The rows of a part, as a view of an array of the variable's shape."""
        return array[part.start : part.stop] if self.shape else array


@final
class VariablePlacer:
    """Lays out one variable after the other. Only the chief has one.

    Args:
        num_servers: How many there are.
        place: Which server gets a piece.
        partitioner: Into how many pieces a variable is cut; None cuts none.
    """

    def __init__(self, num_servers: int, place: Place, partitioner: Partitioner | None) -> None:
        self._bytes_placed = [0] * num_servers
        self._place = place
        self._partitioner = partitioner
        self._next_id = 0

    def lay_out(self, name: str, shape: Shape, dtype: np.dtype, beside: Layout | None) -> Layout:
        """Where a new variable goes: beside another one, or where it fits.

        Raises:
            ValueError: The user's function names a server that is not there.
        """
        if beside is not None:
            places = [(part.server, part.start, part.stop) for part in beside.parts]
        else:
            places = list(self._places(name, shape, dtype))
        first, self._next_id = self._next_id, self._next_id + len(places)
        parts = [
            Part(id=first + i, server=server, start=start, stop=stop)
            for i, (server, start, stop) in enumerate(places)
        ]
        return Layout(name=name, shape=shape, dtype=dtype.name, parts=tuple(parts))

    def _places(self, name: str, shape: Shape, dtype: np.dtype) -> Iterator[tuple[int, int, int]]:
        for start, stop in self._ranges(shape, dtype):
            piece = Piece(name, (stop - start, *shape[1:]) if shape else (), dtype)
            server = self._server_for(piece)
            self._bytes_placed[server] += piece.num_bytes
            yield server, start, stop

    def _ranges(self, shape: Shape, dtype: np.dtype) -> list[tuple[int, int]]:
        wanted = self._partitioner.num_shards(shape, dtype) if self._partitioner and shape else 1
        return cut_rows(shape[0] if shape else 1, wanted)

    def _server_for(self, piece: Piece) -> int:
        num_servers = len(self._bytes_placed)
        server = self._place(piece, tuple(self._bytes_placed))
        if not 0 <= server < num_servers:
            raise ValueError(
                f"placement put {piece.name!r} on parameter server {server}; "
                f"there are {num_servers}, counted from 0"
            )
        return server


def _positive(argument: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{argument} must be at least 1, it is {value}")
    return value
