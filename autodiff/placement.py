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

_put: ContextVar[Callable[[np.ndarray], Any] | None] = ContextVar("paceline_put", default=None)


@contextmanager
def placing(put: Callable[[np.ndarray], Any] | None) -> Iterator[None]:
    """Within it, arrays that become operands are what `put` gives: copies on a device.

    With None they stay in host memory, as they do outside of such a block.
    """
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


def placed(array: Any) -> Any:
    """A NumPy array, or one of its numbers, on the device of this thread; any other as it is."""
    put = _put.get()
    if put is None or not isinstance(array, (np.ndarray, np.generic)):
        return array
    return put(np.asarray(array))
