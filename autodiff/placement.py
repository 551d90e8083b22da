"""Where an array from host memory goes that becomes an operand: to the device of its thread.

CuPy refuses NumPy's arrays as operands, and model code is full of them: tables, masks, weights of
classes. They all come into an expression by `lift`, or as a `Tensor` that is made of them, and both
pass them through `placed`. A strategy says by `placing` where the replica of a thread computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np

NO_NUMBERS = frozenset("OSTUMm")
"""NumPy's kinds of dtypes that stay on the host: objects, text and dates, which no GPU has."""

is_in_use = False
"""Whether any thread of this process has been on a device: without one, nobody needs to ask."""

_put: ContextVar[Callable[[np.ndarray], Any] | None] = ContextVar("paceline_put", default=None)


@contextmanager
def placing(put: Callable[[np.ndarray], Any] | None) -> Iterator[None]:
    """Within it, arrays that become operands are what `put` gives: copies on a device.

    With None they stay in host memory, as they do outside of such a block.
    """
    global is_in_use
    is_in_use = True
    token = _put.set(put)
    try:
        yield
    finally:
        _put.reset(token)


def is_placing() -> bool:
    """Whether operands of this thread are brought anywhere."""
    return _put.get() is not None


def is_array(value: Any) -> bool:
    """Whether it is an array or one of its numbers, of NumPy or in the memory of a GPU."""
    kind = type(value)
    is_on_card = hasattr(kind, "__cuda_array_interface__") and hasattr(kind, "__array_ufunc__")
    return is_on_card or isinstance(value, np.ndarray | np.generic)


def is_away(array: Any) -> bool:
    """Whether an operand is in host memory and the device of this thread can hold it."""
    is_on_host = isinstance(array, (np.ndarray, np.generic))
    return is_on_host and array.dtype.kind not in NO_NUMBERS and is_placing()


def on_host(array: Any) -> Any:
    """An array's values in host memory, for which a GPU is waited for."""
    return array if isinstance(array, (np.ndarray, np.generic)) else array.get()


def placed(array: Any) -> Any:
    """A NumPy array, or one of its numbers, on the device of this thread; all else as it is.

    So are text and dates.
    """
    put = _put.get()
    return put(np.asarray(array)) if put is not None and is_away(array) else array
