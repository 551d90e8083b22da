"""Arrays stacked along an axis that they may not have yet, and the parts of an array along one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .joining import concatenate, split
from .shapes import broadcast_to, expand_dims, ravel, reshape, swapaxes
from .tensor import Tensor, lift, lift_together
from .tensor_like import Array, implements


def _at_least(ndim: int, value: Any) -> Tensor:
    (x,) = lift_together(value)
    missing = ndim - x.data.ndim
    if missing <= 0:
        return x
    if ndim == 3:  # a vector is a row of a matrix, a matrix a layer of depth 1
        return expand_dims(_at_least(2, x), 2)
    return expand_dims(x, tuple(range(missing)))


def _each_at_least(ndim: int, values: Sequence[Any]) -> Any:
    tensors = tuple(_at_least(ndim, value) for value in values)
    return tensors[0] if len(tensors) == 1 else tensors


@implements(np.atleast_1d)
def atleast_1d(*arys: Any) -> Any:
    return _each_at_least(1, arys)


@implements(np.atleast_2d)
def atleast_2d(*arys: Any) -> Any:
    return _each_at_least(2, arys)


@implements(np.atleast_3d)
def atleast_3d(*arys: Any) -> Any:
    return _each_at_least(3, arys)


@implements(np.vstack)
def vstack(tup: Sequence[Any]) -> Tensor:
    return concatenate([_at_least(2, x) for x in tup], 0)


@implements(np.hstack)
def hstack(tup: Sequence[Any]) -> Tensor:
    parts = [_at_least(1, x) for x in tup]
    return concatenate(parts, 0 if parts and parts[0].data.ndim == 1 else 1)


@implements(np.dstack)
def dstack(tup: Sequence[Any]) -> Tensor:
    return concatenate([_at_least(3, x) for x in tup], 2)


@implements(np.column_stack)
def column_stack(tup: Sequence[Any]) -> Tensor:
    parts = lift_together(*tup)
    return concatenate([x if x.data.ndim > 1 else reshape(x, (-1, 1)) for x in parts], 1)


@implements(np.unstack)
def unstack(x: Any, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    x = lift(x)
    return tuple(x[(slice(None),) * (axis % x.ndim) + (i,)] for i in range(x.shape[axis]))


@implements(np.vsplit)
def vsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    return split(ary, indices_or_sections, 0)


@implements(np.hsplit)
def hsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    return split(ary, indices_or_sections, 0 if lift(ary).data.ndim == 1 else 1)


@implements(np.dsplit)
def dsplit(ary: Any, indices_or_sections: Any) -> list[Tensor]:
    return split(ary, indices_or_sections, 2)


@implements(np.append)
def append(arr: Any, values: Any, axis: int | None = None) -> Tensor:
    arr, values = lift_together(arr, values)
    if axis is None:
        return concatenate([ravel(arr), ravel(values)], 0)
    return concatenate([arr, values], axis)


@implements(np.delete)
def delete(arr: Any, obj: Any, axis: int | None = None) -> Tensor:
    x, axis = _along(arr, axis)
    return x.take(np.delete(np.arange(x.data.shape[axis]), obj), axis)


@implements(np.insert)
def insert(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Tensor:
    """`values` before the positions `obj`, which count in `arr` as it was."""
    x, axis = _along(arr, axis)
    _, new = lift_together(x, values)
    length = x.data.shape[axis]
    if np.ndim(obj) == 0 and not isinstance(obj, slice):
        new = expand_dims(new, tuple(range(max(x.data.ndim - new.data.ndim, 0))))
        new = np.moveaxis(new, 0, axis)
        count = new.data.shape[axis]
    else:
        count = len(np.arange(length)[obj]) if isinstance(obj, slice) else np.size(obj)
    shape = (*x.data.shape[:axis], count, *x.data.shape[axis + 1 :])
    both = concatenate([x, broadcast_to(new, shape)], axis)
    marks = length + np.arange(count)
    return both.take(np.insert(np.arange(length), obj, marks), axis)


def _along(arr: Any, axis: int | None) -> tuple[Tensor, int]:
    x = lift(arr)
    return (ravel(x), 0) if axis is None else (x, axis % x.data.ndim)


@implements(np.broadcast_arrays)
def broadcast_arrays(*args: Any) -> tuple[Tensor, ...]:
    tensors = lift_together(*args)
    shape = np.broadcast_shapes(*(x.data.shape for x in tensors))
    return tuple(broadcast_to(x, shape) for x in tensors)


@implements(np.meshgrid)
def meshgrid(*xi: Any, indexing: str = "xy", sparse: bool = False) -> tuple[Tensor, ...]:
    if indexing not in ("xy", "ij"):
        raise ValueError(f"np.meshgrid takes indexing='xy' or 'ij', got {indexing!r}")
    ndim = len(xi)
    grids = tuple(
        reshape(x, (1,) * i + (-1,) + (1,) * (ndim - 1 - i))
        for i, x in enumerate(lift_together(*xi))
    )
    if indexing == "xy" and ndim > 1:
        grids = tuple(swapaxes(x, 0, 1) for x in grids)
    return grids if sparse else broadcast_arrays(*grids)


@implements(np.lib.stride_tricks.sliding_window_view)
def sliding_window_view(x: Any, window_shape: Any, axis: Any = None) -> Tensor:
    """All windows, their axes behind the others; in memory of their own, unlike NumPy's."""
    y = lift(x)
    sizes = (window_shape,) if isinstance(window_shape, (int, np.integer)) else tuple(window_shape)
    axes = tuple(range(y.data.ndim)) if axis is None else axis
    axes = (axes,) if isinstance(axes, (int, np.integer)) else tuple(axes)
    if len(axes) != len(sizes):
        raise ValueError(f"sliding_window_view got {len(sizes)} sizes for {len(axes)} axes")
    for size, along in zip(sizes, (i % y.data.ndim for i in axes), strict=True):
        count = y.data.shape[along] - size + 1
        if size < 0 or count < 1:
            raise ValueError(f"a window of {size} does not fit into shape {y.data.shape}")
        starts: Array = np.arange(count)[:, None] + np.arange(size)
        y = np.moveaxis(y.take(starts, along), along + 1, -1)
    return y
