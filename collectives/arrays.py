"""Which arrays can travel, and how their elements are combined."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from .communicator import Array, Op

UFUNCS: dict[Op, np.ufunc] = {
    Op.SUM: np.add,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.PRODUCT: np.multiply,
}
DTYPES = frozenset(
    np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int64", "bool")
)


def check_array(array: Any, name: str, *, writeable: bool = True) -> None:
    """Raise unless ``array`` is one that a communicator can move, in place if ``writeable``.

    Raises:
        TypeError: Not a NumPy array, or of a dtype that is not supported.
        ValueError: Not one-dimensional, not contiguous, or read-only.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(
            f"'{name}' must be a NumPy array, but is a {type(array).__name__}: "
            "convert it with np.asarray"
        )
    if array.dtype not in DTYPES:
        raise TypeError(
            f"'{name}' has dtype {array.dtype}, which communicators do not move: "
            f"use one of {', '.join(sorted(str(dtype) for dtype in DTYPES))}"
        )
    flags = array.flags
    if array.ndim != 1 or not flags.c_contiguous:
        raise ValueError(
            f"'{name}' must be contiguous and one-dimensional, but has shape {array.shape} and "
            f"strides {array.strides}: pass np.ascontiguousarray(array).reshape(-1)"
        )
    if writeable and not flags.writeable:
        raise ValueError(f"'{name}' is read-only, but results are written into it: pass a copy")


def dense_blocks(
    rows: Any, values: Any, num_rows: int, block_size: int
) -> Iterator[tuple[slice, Any]]:
    """Cut an array of which most rows are zero into blocks, all in one buffer.

    So a whole array can be gone through that would not fit into memory once more.

    Args:
        rows: The other rows' numbers, rising.
        values: Those rows.
        num_rows: Of the whole array.
        block_size: Its elements in a block, about.

    Yields:
        The place of a block among the rows, and the block; valid until the next one.
    """
    length = max(1, block_size // max(1, math.prod(values.shape[1:])))
    starts = range(0, num_rows, length)
    bounds = np.searchsorted(rows, np.asarray([*starts, num_rows], like=rows)).tolist()
    buffer = np.zeros((min(length, num_rows), *values.shape[1:]), values.dtype, like=values)
    for start, (first, last) in zip(starts, itertools.pairwise(bounds), strict=True):
        stop = min(start + length, num_rows)
        within = rows[first:last] - start
        buffer[within] = values[first:last]
        yield slice(start, stop), buffer[: stop - start]
        buffer[within] = 0


def as_bytes(array: Array) -> memoryview:
    """Return the memory of a contiguous ``array`` as bytes."""
    return array.view(np.uint8).data


def check_rank(rank: int, what: str, size: int, *, other_than: int | None = None) -> None:
    """Raise `ValueError` unless ``rank`` is one of ``size`` ranks, and not the caller's own."""
    if not 0 <= rank < size:
        raise ValueError(f"{what} must be a rank from 0 to {size - 1}, but is {rank}")
    if rank == other_than:
        raise ValueError(f"{what} is {rank}, this rank itself: send to another one")
