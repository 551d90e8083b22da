"""Which arrays can travel, and how their elements are combined."""

from __future__ import annotations

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


def as_bytes(array: Array) -> memoryview:
    """Return the memory of a contiguous ``array`` as bytes."""
    return array.view(np.uint8).data


def check_rank(rank: int, what: str, size: int, *, other_than: int | None = None) -> None:
    """Raise `ValueError` unless ``rank`` is one of ``size`` ranks, and not the caller's own."""
    if not 0 <= rank < size:
        raise ValueError(f"{what} must be a rank from 0 to {size - 1}, but is {rank}")
    if rank == other_than:
        raise ValueError(f"{what} is {rank}, this rank itself: send to another one")
