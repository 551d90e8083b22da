"""The only module of this package that knows CuPy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from ...autodiff import Array


@cache
def _cupy() -> Any:
    """CuPy, or None where it is not installed or sees no GPU."""
    try:
        import cupy
    except ImportError:
        return None
    return cupy if cupy.is_available() else None


def count() -> int:
    """The number of GPUs that CuPy can use; 0 without CuPy or a driver."""
    cupy = _cupy()
    return cupy.cuda.runtime.getDeviceCount() if cupy else 0


def put(array: Array, index: int) -> Array:
    """A copy on a card, in the order of that card's work; from host memory through pinned memory.

    A copy between cards waits for what writes the array, and what the array's own card does from
    here on waits for the copy: it may overwrite the array, or give its memory to another one.
    """
    cupy = _cupy()
    home = index if isinstance(array, np.ndarray) else array.device.id
    if home == index:
        with use(index):
            return cupy.array(array)
    current = cupy.cuda.get_current_stream
    with use(home):
        written = current().record()
    with use(index):
        current().wait_event(written)
        copy = cupy.array(array)
        read = current().record()
    with use(home):
        current().wait_event(read)
    return copy


@contextmanager
def use(index: int) -> Iterator[None]:
    """Within it the calling thread computes on a card, on the stream of this package there."""
    if index >= count():
        raise RuntimeError(f"GPU:{index} is not here: {count()} GPU(s) are visible to CuPy")
    cupy = _cupy()
    with cupy.cuda.Device(index), _stream(cupy, index):
        yield


@cache
def _stream(cupy: Any, index: int) -> Any:
    """The stream of a card: each replica has its own card, and so its own order of work.

    It is a blocking one: threads outside replicas are on CUDA's default stream, which waits for it.
    """
    with cupy.cuda.Device(index):
        return cupy.cuda.Stream()
