"""Sums, means, extrema and their relatives along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .tensor import Array, Tensor, implements, lift, lift_array, record

Axis = int | tuple[int, ...] | None


def spread(reduced: Array, shape: tuple[int, ...], axis: Axis) -> Array:
    """A view of a reduced array that broadcasts against the array of `shape` that was reduced."""
    if axis is None:
        return reduced.reshape((1,) * len(shape))
    kept = list(shape)
    for i in axis if isinstance(axis, tuple) else (axis,):
        kept[i] = 1
    return reduced.reshape(kept)


def _filled(like: Array, value: Array, out: Array | None) -> Array:
    """A fresh array of `value`, broadcast to the shape of `like`."""
    full = np.empty_like(like) if out is None else out
    full[...] = value
    return full


@implements(np.sum)
def sum(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    x = lift(a)
    data = x.data

    def vjp(g: Array, outs: Any) -> Any:
        return (_filled(data, spread(g, data.shape, axis), outs[0]),)

    return record(data.sum(axis=axis, keepdims=keepdims), (x,), vjp)


@implements(np.mean)
def mean(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    x = lift(a)
    data = x.data
    y, count = _mean(data, axis, keepdims)

    def vjp(g: Array, outs: Any) -> Any:
        return (_filled(data, spread(g / count, data.shape, axis), outs[0]),)

    return record(y, (x,), vjp)


def _mean(data: Array, axis: Axis, keepdims: bool) -> tuple[Array, float]:
    """The mean as `np.mean` computes it, with less overhead, and the number of elements in it."""
    total = data.sum(axis=axis, keepdims=keepdims)
    count = data.size / total.size if total.size else 1.0
    if data.dtype == np.float16:  # a sum would overflow
        return data.mean(axis=axis, keepdims=keepdims), count
    return total / count, count


@implements(np.var)
def var(a: Any, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
    x = lift(a)
    deviation, y, degrees = _squared_deviation(x.data, axis, ddof, keepdims)

    def vjp(g: Array, outs: Any) -> Any:
        scale = spread(g, deviation.shape, axis) * (2 / degrees)
        return (np.multiply(deviation, scale, out=outs[0]),)

    return record(y, (x,), vjp)


@implements(np.std)
def std(a: Any, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
    """The root of `var`; its gradient counts as 0 where all values are equal."""
    x = lift(a)
    deviation, variance, degrees = _squared_deviation(x.data, axis, ddof, keepdims)
    y = np.sqrt(variance)

    def vjp(g: Array, outs: Any) -> Any:
        scale = g / (np.where(y == 0, 1, y) * degrees)
        return (np.multiply(deviation, spread(scale, deviation.shape, axis), out=outs[0]),)

    return record(y, (x,), vjp)


def _squared_deviation(
    data: Array, axis: Axis, ddof: int, keepdims: bool
) -> tuple[Array, Array, float]:
    center, count = _mean(data, axis, keepdims=True)
    deviation = data - center
    squared = (deviation * deviation).sum(axis=axis, keepdims=keepdims)
    degrees = max(count - ddof, 0)
    return deviation, squared / degrees, degrees


def _extremum(function: Callable[..., Any], alias: Callable[..., Any]) -> None:
    """`max` or `min`; elements that tie share the gradient equally."""

    def apply(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        x = lift(a)
        data = x.data
        y = function(data, axis=axis, keepdims=keepdims)

        def vjp(g: Array, outs: Any) -> Any:
            share = (data == spread(y, data.shape, axis)).astype(g.dtype)
            share *= spread(g, data.shape, axis) / share.sum(axis=axis, keepdims=True)
            return (share,)

        return record(y, (x,), vjp)

    apply.__name__ = function.__name__
    implements(function, alias)(apply)


_extremum(np.max, np.amax)
_extremum(np.min, np.amin)


@implements(np.prod)
def prod(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    x = lift(a)
    data = x.data

    def vjp(g: Array, outs: Any) -> Any:
        return (_product_of_others(data, axis) * spread(g, data.shape, axis),)

    return record(data.prod(axis=axis, keepdims=keepdims), (x,), vjp)


def _product_of_others(data: Array, axis: Axis) -> Array:
    """For each element the product of all others along `axis`, without dividing by it."""
    axes = tuple(range(data.ndim)) if axis is None else axis if isinstance(axis, tuple) else (axis,)
    ends = tuple(range(-len(axes), 0))
    last = np.moveaxis(data, axes, ends)
    flat = last.reshape((*last.shape[: last.ndim - len(axes)], -1))
    before, after = np.ones_like(flat), np.ones_like(flat)
    before[..., 1:] = np.cumprod(flat[..., :-1], axis=-1)
    after[..., :-1] = np.cumprod(flat[..., :0:-1], axis=-1)[..., ::-1]
    return np.moveaxis((before * after).reshape(last.shape), ends, axes)


@implements(np.cumsum)
def cumsum(a: Any, axis: int | None = None) -> Tensor:
    x = lift(a)
    shape = x.data.shape
    along = 0 if axis is None else axis

    def vjp(g: Array, outs: Any) -> Any:
        return (np.flip(np.cumsum(np.flip(g, along), along), along).reshape(shape),)

    return record(np.cumsum(x.data, axis), (x,), vjp)


def logsumexp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along `axis`, without overflow."""
    x = lift_array(x)
    data = x.data
    top = data.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(data - top)
    total = weights.sum(axis=axis, keepdims=True)
    y = np.log(total) + top

    def vjp(g: Array, outs: Any) -> Any:
        return (np.multiply(weights, spread(g, data.shape, axis) / total, out=outs[0]),)

    return record(y if keepdims else y.squeeze(axis=axis), (x,), vjp)
