"""The only module of this package that knows CuPy."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

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
    with use(index):
        return _cupy().array(array)


def use(index: int) -> AbstractContextManager[object]:
    if index >= count():
        raise RuntimeError(f"GPU:{index} is not here: {count()} GPU(s) are visible to CuPy")
    return _cupy().cuda.Device(index)
