"""The same elements in another shape or order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .arithmetic import unbroadcast
from .refusals import unknown_dtype
from .tensor import Tensor, is_floating, lift, lift_array, record, record_view
from .tensor_like import Array, implements
from .windows import contiguous


def _reshaped(x: Tensor, data: Array) -> Tensor:
    """`data`, which holds the elements of x in the same order."""
    shape = x.data.shape
    return record_view(data, x, lambda g, outs: (g.reshape(shape),))


@implements(np.reshape)
def reshape(a: Any, shape: Any) -> Tensor:
    x = lift_array(a)
    return _reshaped(x, contiguous(x.data).reshape(shape))


@implements(np.ravel)
def ravel(a: Any) -> Tensor:
    x = lift_array(a)
    return _reshaped(x, contiguous(x.data).reshape(-1))


@implements(np.expand_dims)
def expand_dims(a: Any, axis: int | tuple[int, ...]) -> Tensor:
    x = lift(a)
    return _reshaped(x, np.expand_dims(x.data, axis))


@implements(np.squeeze)
def squeeze(a: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    x = lift(a)
    return _reshaped(x, x.data.squeeze(axis))


@implements(np.transpose)
def transpose(a: Any, axes: Sequence[int] | None = None) -> Tensor:
    x = lift(a)
    ndim = x.data.ndim

    def vjp(g: Array, outs: Any) -> Any:
        if axes is None:
            return (g.T,)
        source = [i % ndim for i in axes]
        return (g.transpose([source.index(i) for i in range(ndim)]),)

    return record_view(x.data.transpose(axes), x, vjp)


@implements(np.matrix_transpose, np.linalg.matrix_transpose)
def matrix_transpose(x: Any) -> Tensor:
    return swapaxes(x, -1, -2)


@implements(np.swapaxes)
def swapaxes(a: Any, axis1: int, axis2: int) -> Tensor:
    x = lift(a)
    y = x.data.swapaxes(axis1, axis2)
    return record_view(y, x, lambda g, outs: (g.swapaxes(axis1, axis2),))


@implements(np.moveaxis)
def moveaxis(a: Any, source: Any, destination: Any) -> Tensor:
    x = lift(a)
    return record_view(
        np.moveaxis(x.data, source, destination),
        x,
        lambda g, outs: (np.moveaxis(g, destination, source),),
    )


@implements(np.flip)
def flip(m: Any, axis: int | tuple[int, ...] | None = None) -> Tensor:
    x = lift(m)
    return record_view(np.flip(x.data, axis), x, lambda g, outs: (np.flip(g, axis),))


@implements(np.flipud)
def flipud(m: Any) -> Tensor:
    return flip(m, 0)


@implements(np.fliplr)
def fliplr(m: Any) -> Tensor:
    return flip(m, 1)


@implements(np.rot90)
def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Tensor:
    x = lift(m)
    first, second = (axis % x.data.ndim for axis in axes)
    k %= 4
    if k == 2:
        return flip(x, (first, second))
    if k == 1:
        return swapaxes(flip(x, second), first, second)
    return flip(swapaxes(x, first, second), second) if k else flip(flip(x, first), first)


@implements(np.rollaxis)
def rollaxis(a: Any, axis: int, start: int = 0) -> Tensor:
    x = lift(a)
    ndim = x.data.ndim
    axis, start = axis % ndim, start + ndim * (start < 0)
    return moveaxis(x, axis, start - (axis < start))


@implements(np.roll)
def roll(a: Any, shift: Any, axis: Any = None) -> Tensor:
    x = lift(a)
    shift, axis = (tuple(n) if isinstance(n, list) else n for n in (shift, axis))
    back = tuple(-n for n in shift) if isinstance(shift, tuple) else -shift
    return record(np.roll(x.data, shift, axis), (x,), lambda g, outs: (np.roll(g, back, axis),))


def _triangle(function: Callable[..., Any]) -> None:
    def apply(m: Any, k: int = 0) -> Tensor:
        x = lift(m)
        shape = x.data.shape  # a vector becomes the rows of a matrix
        y = function(x.data, k)
        return record(y, (x,), lambda g, outs: (unbroadcast(function(g, k), shape),))

    apply.__name__ = function.__name__
    implements(function)(apply)


_triangle(np.tril)
_triangle(np.triu)


@implements(np.broadcast_to)
def broadcast_to(array: Any, shape: Any) -> Tensor:
    x = lift(array)
    return record_view(
        np.broadcast_to(x.data, shape), x, lambda g, outs: (unbroadcast(g, x.data.shape),)
    )


@implements(np.astype)
def astype(x: Any, dtype: Any) -> Any:
    """Another precision. A conversion to whole numbers cannot be differentiated: a plain array."""
    x = lift(x)
    kind = np.dtype(dtype).kind
    if kind in "biu":
        return x.data.astype(dtype)
    if not is_floating(np.dtype(dtype)):
        raise unknown_dtype(np.dtype(dtype))
    return record(x.data.astype(dtype), (x,), lambda g, outs: (g,))


@implements(np.copy)
def copy(a: Any) -> Tensor:
    x = lift(a)
    return record(x.data.copy(), (x,), lambda g, outs: (g,))
