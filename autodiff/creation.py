"""Arrays that lie beside another one, of its kind and on its device.

`np.zeros`, `np.empty`, `np.arange` and `np.asarray` take `like=` for that. So do `np.ones`,
`np.full` and `np.eye`, but NumPy writes these in Python, and they hand an argument (`device=None`)
on that CuPy does not have: `filled` and `identity` stand in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def filled(shape: int | tuple[int, ...], value: Any, dtype: Any, like: Any) -> Any:
    """An array of one value beside `like`."""
    array = np.empty(shape, dtype, like=like)
    array.fill(value)
    return array


def identity(n: int, dtype: Any, like: Any) -> Any:
    """(n, n), 1 on the diagonal and 0 elsewhere, beside `like`."""
    array = np.zeros(n * n, dtype, like=like)
    array[:: n + 1] = 1
    return array.reshape(n, n)


def _ones(like: Any, shape: Any, dtype: Any = None, **_: Any) -> Any:
    return filled(shape, 1, dtype, like)


def _full(like: Any, shape: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Any:
    given = np.asarray(fill_value, like=like) if dtype is None else None
    return filled(shape, fill_value, dtype if given is None else given.dtype, like)


def _eye(like: Any, n: int, **options: Any) -> Any:
    options = {name: value for name, value in options.items() if name not in ("device", "order")}
    return np.asarray(np.eye(n, **options), like=like)


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda like, *args, **kwargs: function(*args, like=like, **kwargs)


CREATION: dict[Callable[..., Any], Callable[..., Any]] = {
    **{f: _plain(f) for f in (np.zeros, np.empty, np.arange, np.array, np.asarray)},
    np.ones: _ones,
    np.full: _full,
    np.eye: _eye,
}
"""What NumPy's functions with `like=tensor` give: `function(like, *args, **kwargs)`."""
