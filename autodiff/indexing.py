"""Elements and rows of an array, by position."""

from __future__ import annotations

import math
import operator
from types import EllipsisType
from typing import Any

import numpy as np

from .awaited import Awaited, record_awaited
from .indexed_slices import IndexedSlices, Patch
from .piecewise_constant import plain
from .shapes import moveaxis, ravel
from .tensor import Tensor, lift, lift_array, note_read, record, record_view
from .tensor_like import Array, TensorLike, implements

_BASIC = (int, slice, EllipsisType, type(None), np.integer)


@implements(operator.getitem)
def getitem(a: Any, index: Any) -> Tensor:
    """`a[index]`. Whole rows of a leaf, by an array of their numbers, get `IndexedSlices`."""
    if type(a) is Tensor:
        a = lift(a)
    index = plain(index)
    items = index if isinstance(index, tuple) else (index,)
    arrays = [item for item in items if not isinstance(item, _BASIC)]
    # One array in the brackets: of whole numbers it picks rows, for which a variable's values need
    # not be at hand as a whole (`read_rows`); of truth values it goes on below.
    if arrays and items is not index and isinstance(a, TensorLike):
        index = _positions(index, a.like())
        if index.dtype.kind in "iu":
            return _rows(a, index)
    x = lift(a)
    if not arrays:
        return record_view(x.data[index], x, lambda g, outs: (Patch(g, index),))
    repeats = any(_positions(array, x.data).dtype != np.bool_ for array in arrays)
    return record(x.data[index], (x,), lambda g, outs: (Patch(g, index, repeats),))


def place(values: Any, index: Any, shape: tuple[int, ...], may_repeat: bool = False) -> Tensor:
    """Zeros of `shape` to which `values` are added at `index`: `getitem` the other way round.

    Args:
        values: Of the shape of `zeros[index]`.
        index: Anything that NumPy takes between the brackets.
        shape: Of the result.
        may_repeat: Whether `index` may name an element more than once.
    """
    x = lift(values)
    patch = Patch(x.data, index, may_repeat)
    zeros = np.zeros(shape, x.data.dtype, like=x.data)
    return record(patch.add_to(zeros), (x,), lambda g, outs: (g[index],))


@implements(np.take)
def take(a: Any, indices: Any, axis: int | None = None) -> Tensor:
    """Elements along an axis. Rows of a leaf (axis=0) get `IndexedSlices`."""
    if not isinstance(a, TensorLike) or type(a) is Tensor:
        a = lift_array(a)
    if axis is None or a.ndim == 0:  # NumPy takes axis=0 and -1 of a scalar too
        a, axis = ravel(a), 0
    positions = _positions(plain(indices), a.like())
    if axis % a.ndim == 0:
        return _rows(a, positions)
    x = a.tensor()
    data = np.take(x.data, positions, axis=axis)
    index = (*(slice(None),) * (axis % a.ndim), positions)
    return record(data, (x,), lambda g, outs: (Patch(g, index, may_repeat=True),))


def _positions(index: Any, data: Array) -> Array:
    """An index as an array beside `data`; an empty list holds whole numbers, not floats.

    An array on a device stays there: `data` may be a variable's that is kept elsewhere.
    """
    is_on_device = hasattr(index, "dtype") and not isinstance(index, np.ndarray | np.generic)
    array = index if is_on_device else np.asarray(index, like=data)
    return array if array.size or isinstance(index, np.ndarray) else array.astype(np.intp)


def _rows(source: TensorLike, rows: Array) -> Tensor:
    x, data = source.read_rows(rows)
    if x is not source:
        note_read(source, x)
    shape = x.data.shape
    distinct = data.distinct if isinstance(data, Awaited) else None

    def vjp(g: Array, outs: Any) -> Any:
        flat = rows.reshape(-1).astype(np.int64)  # a copy: the caller's are not changed
        flat += shape[0] * (flat < 0)  # rows are told from 0: -1 and the last one must be one row
        flat = np.asarray(flat, like=g)  # the table may lie elsewhere than what was read of it
        return (IndexedSlices(g.reshape(len(flat), *shape[1:]), flat, shape, distinct),)

    if isinstance(data, Awaited):
        return record_awaited(data, (x,), vjp)
    return record(data, (x,), vjp)


@implements(np.take_along_axis)
def take_along_axis(arr: Any, indices: Any, axis: int | None = -1) -> Tensor:
    x = lift(arr)
    if axis is None:
        x, axis = ravel(x), 0
    positions = plain(indices)
    shape = x.data.shape
    along = axis % len(shape)

    def vjp(g: Array, outs: Any) -> Any:
        index = [
            np.arange(n, like=g).reshape((-1,) + (1,) * (len(shape) - 1 - i))
            for i, n in enumerate(shape)
        ]
        index[along] = positions
        return (Patch(g, tuple(index), may_repeat=True),)

    return record(np.take_along_axis(x.data, positions, axis=axis), (x,), vjp)


@implements(np.sort)
def sort(a: Any, axis: int | None = -1) -> Tensor:
    x = lift(a)
    return take_along_axis(x, np.argsort(x.data, axis=axis), axis)


@implements(np.median)
def median(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """The middle one, or the mean of both in the middle, which then share the gradient."""
    x = lift(a)
    ndim = x.data.ndim
    axes = tuple(range(ndim)) if axis is None else axis
    axes = tuple(i % ndim for i in (axes if isinstance(axes, tuple) else (axes,)))
    last = moveaxis(x, axes, range(ndim - len(axes), ndim))
    rows = last.reshape((*last.shape[: ndim - len(axes)], math.prod(x.data.shape[i] for i in axes)))
    length = rows.shape[-1]
    ordered = sort(rows)
    low, high = ordered[..., (length - 1) // 2], ordered[..., length // 2]
    middle = low * 0.5 + high * 0.5
    middle = np.where(np.isnan(rows).any(axis=-1), np.nan, middle)
    return np.expand_dims(middle, axes) if keepdims else middle
