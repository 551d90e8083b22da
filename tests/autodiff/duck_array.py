"""`DuckArray`: a stand-in for CuPy's arrays on machines without a GPU.

It holds a NumPy array, and takes part in NumPy's protocols as CuPy does: it refuses to become a
NumPy array by itself, refuses NumPy arrays as operands, gives 0-d arrays and no scalars, and knows
only those of NumPy's functions that CuPy has too. Code that runs on it never moves data to the host
unasked.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

# What our kernels call, and CuPy 14 has with the same arguments.
FUNCTIONS = {
    *(np.arange, np.array, np.asarray, np.empty, np.empty_like, np.eye, np.full, np.full_like),
    *(np.ones, np.ones_like, np.zeros, np.zeros_like, np.copy, np.astype),
    *(np.broadcast_to, np.expand_dims, np.flip, np.moveaxis, np.pad, np.ravel, np.repeat),
    *(
        np.reshape,
        np.roll,
        np.split,
        np.squeeze,
        np.swapaxes,
        np.tile,
        np.transpose,
        np.tril,
        np.triu,
    ),
    *(np.concatenate, np.stack, np.take, np.take_along_axis, np.where, np.clip, np.unique),
    *(np.cumprod, np.cumsum, np.einsum, np.max, np.mean, np.min, np.prod, np.sum),
    *(np.all, np.any, np.allclose, np.isclose, np.array_equal, np.argmax, np.argmin, np.argsort),
    *(np.argwhere, np.count_nonzero, np.flatnonzero, np.nonzero, np.searchsorted, np.digitize),
    *(np.ndim, np.shape, np.size, np.result_type, np.round, np.around),
    np.lib.stride_tricks.sliding_window_view,
    *(np.linalg.cholesky, np.linalg.det, np.linalg.eigh, np.linalg.inv, np.linalg.slogdet),
    *(np.linalg.solve, np.linalg.svd),
}
METHODS = {
    *("all", "any", "argmax", "argmin", "argsort", "astype", "clip", "copy", "cumsum", "dot"),
    *("fill", "item", "max", "mean", "min", "prod", "ravel", "repeat", "reshape", "round"),
    *("squeeze", "sum", "swapaxes", "take", "tolist", "transpose", "view"),
}
ATTRIBUTES = {"T", "dtype", "flags", "itemsize", "nbytes", "ndim", "shape", "size", "strides"}


class DuckArray(NDArrayOperatorsMixin):
    """One array "on a device".

    Args:
        array: Its values.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        self._array = np.asarray(array)

    def get(self) -> np.ndarray:
        """A copy in host memory, as with CuPy."""
        return self._array.copy()

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        raise TypeError("a device array does not become a NumPy array by itself")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        operands = inputs if method == "__call__" else inputs[:1]
        if not all(
            isinstance(x, (DuckArray, np.ndarray, np.generic, int, float)) for x in operands
        ):
            return NotImplemented
        if method not in ("__call__", "at") or set(kwargs) - {"out", "dtype"}:
            raise TypeError(f"no {ufunc.__name__}.{method} with {sorted(kwargs)} on this device")
        return _wrapped(getattr(ufunc, method)(*_unwrapped(inputs), **_unwrapped(kwargs)))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if not set(types) <= {DuckArray, np.ndarray}:
            return NotImplemented
        if func not in FUNCTIONS:
            raise TypeError(f"no {func.__name__} on this device")
        if func in (np.asarray, np.array):  # the one way from the host to the device
            return DuckArray(func(_hosted(args[0]), *args[1:], **kwargs))
        return _wrapped(func(*_unwrapped(args), **_unwrapped(kwargs)))

    def __getattr__(self, name: str) -> Any:
        if name in ATTRIBUTES:
            return _wrapped(getattr(self._array, name))
        if name in METHODS:
            method = getattr(self._array, name)
            return lambda *args, **kwargs: _wrapped(method(*_unwrapped(args), **_unwrapped(kwargs)))
        raise AttributeError(name)

    def __getitem__(self, index: Any) -> DuckArray:
        return DuckArray(self._array[_unwrapped(index)])

    def __setitem__(self, index: Any, value: Any) -> None:
        self._array[_unwrapped(index)] = _unwrapped(value)

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        return bool(self._array)

    def __int__(self) -> int:
        return int(self._array)

    def __float__(self) -> float:
        return float(self._array)

    def __repr__(self) -> str:
        return f"DuckArray({self._array!r})"


def _unwrapped(value: Any) -> Any:
    if isinstance(value, DuckArray):
        return value._array
    if isinstance(value, np.ndarray):
        raise TypeError("an array in host memory met one on the device")
    if isinstance(value, (tuple, list)):
        return type(value)([_unwrapped(item) for item in value])
    if isinstance(value, dict):
        return {name: _unwrapped(item) for name, item in value.items()}
    return value


def _hosted(value: Any) -> Any:
    return value._array if isinstance(value, DuckArray) else value


def _wrapped(value: Any) -> Any:
    if isinstance(value, (np.ndarray, np.generic)):
        return DuckArray(value)
    if isinstance(value, (tuple, list)) and any(isinstance(item, np.ndarray) for item in value):
        items = [_wrapped(item) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value
