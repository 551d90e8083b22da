"""Which parameter server holds which rows of which variable: pure functions of names and sizes."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, final

import numpy as np

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


def _positive(argument: str, value: int) -> int:
    if value < 1:
        raise ValueError(f"{argument} must be at least 1, it is {value}")
    return value
