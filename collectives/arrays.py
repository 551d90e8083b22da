"""Which arrays can travel, how their elements are combined, and how they are divided."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Op(Enum):
    """How elements of several ranks become one. For bool, SUM and MAX mean "or", the rest "and"."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"
    PRODUCT = "product"

    # There is one object of each: Enum's own hash, of the name, is written in Python.
    __hash__ = object.__hash__


UFUNCS: dict[Op, np.ufunc] = {
    Op.SUM: np.add,
    Op.MIN: np.minimum,
    Op.MAX: np.maximum,
    Op.PRODUCT: np.multiply,
}
_NO_GPU = nullcontext()
DTYPES = frozenset(
    np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int64", "bool")
)


def check_array(
    array: Any,
    name: str,
    *,
    is_written: bool = True,
    is_flat: bool = False,
    takes_gpu: bool | None = None,
) -> None:
    """Raise unless a communicator can move ``array``, and write into it where it `is_written`."""
    if is_on_gpu(array):
        if not takes_gpu:
            raise TypeError(
                f"'{name}' is in the memory of a GPU, which this communicator does not take: "
                "copy it to the host with array.get()"
            )
    elif not isinstance(array, np.ndarray):
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
    if not flags.c_contiguous:
        raise ValueError(
            f"'{name}' must be contiguous in the order of C, but has shape {array.shape} and "
            f"strides {array.strides}: pass np.ascontiguousarray(array)"
        )
    if is_flat and array.ndim != 1:
        raise ValueError(
            f"'{name}' must be one-dimensional, but has shape {array.shape}: pass array.reshape(-1)"
        )
    if is_written and isinstance(array, np.ndarray) and not flags.writeable:
        raise ValueError(f"'{name}' is read-only, but results are written into it: pass a copy")


def is_on_gpu(array: Any) -> bool:
    """Whether this is an array in the memory of a GPU: CuPy's, or one that is like it."""
    return not isinstance(array, np.ndarray) and hasattr(array, "__cuda_array_interface__")


def current_gpu(array: Any) -> AbstractContextManager[object]:
    """Within it the GPU of the calling thread is that of an array, if it is on one.

    MPI copies by way of the thread's GPU, and crashes where that is another one
    (https://github.com/pytorch/pytorch/issues/21922), or where the thread has none so far, as one
    of our own (https://github.com/open-mpi/ompi/issues/627).
    """
    return _NO_GPU if isinstance(array, np.ndarray) else _current(array.device)


@contextmanager
def _current(gpu: Any) -> Iterator[None]:
    with gpu:
        gpu.use()  # `with` alone does nothing for the first GPU in a thread that has none
        yield


def writable_like(array: Any, shape: tuple[int, ...] | int) -> Any:
    """A new array in the memory of ``array``, which the caller may write into at once.

    On a GPU that takes a wait: CuPy gives memory again as soon as nobody holds it, to the stream
    that had it, on which the GPU may still be at what was to be done with it.
    """
    new = np.empty(shape, array.dtype, like=array)
    if is_on_gpu(array):
        array.device.synchronize()
    return new


def part_bounds(length: int, num_parts: int) -> list[tuple[int, int]]:
    """Divide ``length`` elements evenly; the first parts are longer by one where that must be.

    >>> part_bounds(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    short, num_longer = divmod(length, num_parts)
    starts = [short * i + min(i, num_longer) for i in range(num_parts + 1)]
    return list(itertools.pairwise(starts))


def dense_blocks(
    rows: Any, values: Any, num_rows: int, block_size: int
) -> Iterator[tuple[slice, Any]]:
    """Cut an array of which most rows are zero into blocks, all in one buffer.

    So a whole array can be gone through that would not fit into memory once more. Yields the place
    of a block of about `block_size` elements among the rows, and the block, valid until the next
    one.
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
