"""Which loop there is for which arrays."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import numpy as np

from .loops import LOOPS, Loop

_MIN_SIZE = 2**15
_DTYPES = {np.dtype(np.float32), np.dtype(np.float64)}

_NDIMS = {
    name: [array.count(":,") + 1 for array in re.findall(r"float\[(.*?)\]", types)]
    for name, (_, types) in LOOPS.items()
}
"""How many axes each of the arrays of floats has that a loop takes."""

_log = logging.getLogger("paceline")
_min_size: float = _MIN_SIZE
_loops: dict[Any, Loop | None] = {}
_lock = threading.Lock()


def compiled_loop(name: str, *arrays: Any, constants: tuple[int, ...] = ()) -> Loop | None:
    """The compiled loop of that name for these arrays, or None: go on with NumPy.

    Args:
        name: In `LOOPS`.
        arrays: Those of its arguments that hold floats, in their order. They decide the dtype; it
            is float32 or float64, and that of all. Each must be contiguous.
        constants: The loop's numbers that are known when it is compiled, if it has some.
    """
    first = arrays[0]
    if type(first) is not np.ndarray or first.size < _min_size:
        return None
    dtype = first.dtype
    if dtype not in _DTYPES:
        return None
    for array, ndim in zip(arrays, _NDIMS[name], strict=True):
        fits = type(array) is np.ndarray and array.dtype == dtype and array.ndim == ndim
        if not fits or not array.flags.carray:
            return None
    key = name, dtype.char, constants
    try:
        return _loops[key]
    except KeyError:
        return _compiled(key)


@contextmanager
def compiled_from(min_size: float) -> Iterator[None]:
    """Within it loops are compiled for arrays of at least so many elements, in all threads.

    Args:
        min_size: 0 for all arrays, `math.inf` for none: NumPy only.
    """
    global _min_size
    before, _min_size = _min_size, min_size
    try:
        yield
    finally:
        _min_size = before


def describe() -> str:
    """Which loops are in use: a line for people. It imports numba where that is installed."""
    if find_spec("numba") is None:
        return "NumPy only; pip install 'paceline[fast]' for loops compiled by numba"
    try:
        from . import compiling
    except Exception as error:
        return f"NumPy only; numba cannot be imported: {error}"
    return f"compiled by numba {compiling.VERSION}, kept in {compiling.cache_directory()}"


def _compiled(key: tuple[str, str, tuple[int, ...]]) -> Loop | None:
    with _lock:  # one thread compiles, the others want the same loop
        if key not in _loops:
            _loops[key] = _compile(*key)
        return _loops[key]


def _compile(name: str, dtype: str, constants: tuple[int, ...]) -> Loop | None:
    if find_spec("numba") is None:
        return None
    try:
        from . import compiling

        return compiling.compile_loop(name, dtype, constants)
    except Exception as error:
        # numba refuses a NumPy that is newer than itself: work goes on, and somebody should know.
        _log.warning(
            "numba is installed, but the loop %r cannot be compiled: %s. NumPy computes instead, "
            "with the same results; `paceline doctor` shows more.",
            name,
            error,
        )
        return None
