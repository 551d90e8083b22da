"""Sums, means, extrema and their relatives along axes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .numerics import keep_where, narrowed, total, widened
from .shapes import ravel
from .tensor import Tensor, lift, lift_array, lift_together, operand, record
from .tensor_like import Array, implements

Axis = int | tuple[int, ...] | None


def spread(reduced: Array, shape: tuple[int, ...], axis: Axis) -> Array:
    """A view of a reduced array that broadcasts against the array of `shape` that was reduced."""
    if axis is None or not shape:  # NumPy takes axis=0 and -1 of a scalar too
        return reduced.reshape((1,) * len(shape))
    kept = list(shape)
    for i in axis if isinstance(axis, tuple) else (axis,):
        kept[i] = 1
    return reduced.reshape(kept)


def _filled(like: Array, value: Array, out: Array | None) -> Array:
    """A fresh array of `value`, broadcast to the shape of `like`."""
    if type(value) is Tensor:
        return np.broadcast_to(value, like.shape)
    full = np.empty_like(like) if out is None else out
    full[...] = value
    return full


@implements(np.sum)
def sum(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    x = lift(a)
    data = x.data

    def vjp(g: Array, outs: Any) -> Any:
        return (_filled(data, spread(g, data.shape, axis), outs[0]),)

    return record(narrowed(total(data, axis, keepdims), data), (x,), vjp)


@implements(np.mean)
def mean(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    x = lift(a)
    data = x.data
    y, count = _mean(data, axis, keepdims)

    def vjp(g: Array, outs: Any) -> Any:
        share = widened(g) / (count or 1)
        if axis is not None or keepdims:  # else it is one number, which broadcasts as it is
            share = spread(share, data.shape, axis)
        return (_filled(data, share, outs[0]),)

    return record(y, (x,), vjp)


def _mean(data: Array, axis: Axis, keepdims: bool) -> tuple[Array, float]:
    """The mean as `np.mean` computes it, with less overhead, and the number of elements in it."""
    if type(data) is Tensor:
        mean_of = np.mean(data, axis, keepdims=keepdims)
        return mean_of, data.size / mean_of.size if mean_of.size else 1.0
    sums = total(data, axis, keepdims)
    # Not by the lengths of the axes, which may be given in four ways.
    count = data.size / sums.size if sums.size else 1.0
    return narrowed(sums / count, data), count


@implements(np.var)
def var(a: Any, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
    x = lift(a)
    wide = widened(x.data)
    deviation, y, degrees = _squared_deviation(wide, axis, ddof, keepdims)

    def vjp(g: Array, outs: Any) -> Any:
        scale = spread(widened(g), deviation.shape, axis) * (2 / degrees)
        if type(g) is Tensor:
            again, _, _ = _squared_deviation(operand(g, x, wide), axis, ddof, keepdims)
            return (again * scale,)
        return (np.multiply(deviation, scale, out=outs[0]),)

    return record(narrowed(y, x.data), (x,), vjp)


@implements(np.std)
def std(a: Any, axis: Axis = None, *, ddof: int = 0, keepdims: bool = False) -> Tensor:
    """The root of `var`; its gradient counts as 0 where all values are equal."""
    x = lift(a)
    wide = widened(x.data)
    deviation, variance, degrees = _squared_deviation(wide, axis, ddof, keepdims)
    y = np.sqrt(variance)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            again, square, _ = _squared_deviation(operand(g, x, wide), axis, ddof, keepdims)
            scale = g / (np.sqrt(np.where(y == 0, 1, square)) * degrees)
            return (again * spread(scale, deviation.shape, axis),)
        scale = g / (np.where(y == 0, 1, y) * degrees)
        return (np.multiply(deviation, spread(scale, deviation.shape, axis), out=outs[0]),)

    return record(narrowed(y, x.data), (x,), vjp)


def _squared_deviation(
    data: Array, axis: Axis, ddof: int, keepdims: bool
) -> tuple[Array, Array, float]:
    # Around the mean, not the mean of squares less the square of the mean, whose digits cancel.
    center, count = _mean(data, axis, keepdims=True)
    deviation = data - center
    squared = (deviation * deviation).sum(axis=axis, keepdims=keepdims)
    degrees = max(count - ddof, 0) or math.nan  # NumPy's result where there are too few numbers
    return deviation, squared / degrees, degrees


def _extremum(function: Callable[..., Any], alias: Callable[..., Any]) -> None:
    """`max` or `min`; elements that tie share the gradient equally."""

    def apply(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
        x = lift(a)
        data = x.data
        y = function(data, axis=axis, keepdims=keepdims)

        def vjp(g: Array, outs: Any) -> Any:
            is_best = data == spread(y, data.shape, axis)
            num_best = np.maximum(is_best.sum(axis=axis, keepdims=True), 1)
            share = spread(g, data.shape, axis) / num_best
            if share.dtype != g.dtype:
                share = share.astype(g.dtype)
            if type(g) is Tensor:
                share = np.broadcast_to(share, data.shape)
            return (keep_where(share, is_best),)

        return record(y, (x,), vjp)

    apply.__name__ = function.__name__
    implements(function, alias)(apply)


_extremum(np.max, np.amax)
_extremum(np.min, np.amin)


@implements(np.prod)
def prod(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    x = lift(a)
    data, wide = x.data, widened(x.data)

    def vjp(g: Array, outs: Any) -> Any:
        return (_product_of_others(operand(g, x, wide), axis) * spread(g, data.shape, axis),)

    return record(narrowed(wide.prod(axis=axis, keepdims=keepdims), data), (x,), vjp)


def _product_of_others(data: Array, axis: Axis) -> Array:
    """For each element the product of all others along `axis`."""
    axes = tuple(range(data.ndim))
    if axis is not None and data.shape:
        axes = axis if isinstance(axis, tuple) else (axis,)
    ends = tuple(range(-len(axes), 0))
    last = np.moveaxis(data, axes, ends)
    num_kept = last.ndim - len(axes)
    flat = last.reshape((*last.shape[:num_kept], math.prod(last.shape[num_kept:])))
    # The product of all before an element times that of all behind it: a zero is no trouble, as it
    # would be for the product of all divided by the element.
    others = _products_before(flat, -1) * np.flip(_products_before(np.flip(flat, -1), -1), -1)
    return np.moveaxis(others.reshape(last.shape), ends, axes)


def _products_before(numbers: Array, axis: int) -> Array:
    """For each element the product of all before it."""
    head = (slice(None),) * (axis % numbers.ndim)
    first = np.ones_like(numbers[(*head, slice(0, 1))])
    products = np.cumprod(numbers[(*head, slice(0, -1))], axis)
    return np.concatenate([first, products], axis)[(*head, slice(0, numbers.shape[axis]))]


@implements(np.cumprod)
def cumprod(a: Any, axis: int | None = None) -> Tensor:
    x = lift(a)
    if axis is None or not x.data.shape:
        x, axis = ravel(x), 0
    wide = widened(x.data)

    def vjp(g: Array, outs: Any) -> Any:
        numbers = np.moveaxis(operand(g, x, wide), axis, 0)
        if not len(numbers):
            return (g,)
        parts = np.moveaxis(widened(g), axis, 0)
        # By x_i: the product before it, times Σ g_k (product from behind x_i up to x_k), k >= i,
        # which is summed from the end. So a zero is no trouble, as it would be for a quotient.
        sums = [parts[-1]]
        for i in range(len(numbers) - 1, 0, -1):
            sums.append(parts[i - 1] + numbers[i] * sums[-1])
        return (np.moveaxis(_products_before(numbers, 0) * np.stack(sums[::-1]), 0, axis),)

    return record(narrowed(np.cumprod(wide, axis), x.data), (x,), vjp)


@implements(np.cumsum)
def cumsum(a: Any, axis: int | None = None) -> Tensor:
    x = lift(a)
    if axis is None or not x.data.shape:
        x, axis = ravel(x), 0

    def vjp(g: Array, outs: Any) -> Any:
        return (np.flip(np.cumsum(np.flip(widened(g), axis), axis), axis),)

    return record(narrowed(np.cumsum(widened(x.data), axis), x.data), (x,), vjp)


@implements(np.average)
def average(a: Any, axis: Axis = None, weights: Any = None, *, keepdims: bool = False) -> Tensor:
    """The mean; with `weights`, of the shape of `a` or one for each place of `axis`, weighted."""
    if weights is None:
        return np.mean(a, axis, keepdims=keepdims)
    x, w = lift_together(a, weights)
    if w.data.shape != x.data.shape:
        lengths = [x.data.shape[i] for i in (axis if isinstance(axis, tuple) else (axis or 0,))]
        if axis is None or list(w.data.shape) != lengths:
            raise ValueError(
                f"np.average: weights of shape {w.data.shape} fit neither the array of shape "
                f"{x.data.shape} nor its axis {axis}"
            )
        along = {i % x.data.ndim: i for i in (axis if isinstance(axis, tuple) else (axis,))}
        order = np.argsort([i % x.data.ndim for i in along.values()])
        w = w.transpose([int(i) for i in order])
        w = w.reshape([n if i in along else 1 for i, n in enumerate(x.data.shape)])
    scale = np.sum(np.broadcast_to(w, x.data.shape), axis, keepdims=keepdims)
    if (scale == 0).any():
        raise ZeroDivisionError("np.average: the weights sum to zero and cannot be normalized")
    return np.sum(x * w, axis, keepdims=keepdims) / scale


@implements(np.ptp)
def ptp(a: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    return np.max(a, axis, keepdims=keepdims) - np.min(a, axis, keepdims=keepdims)


def logsumexp(x: Any, axis: Axis = None, *, keepdims: bool = False) -> Tensor:
    """log(sum(exp(x))) along `axis`, without overflow.

    Of elements that are all -inf, as in a row that is masked as a whole, none has a gradient.
    """
    x = lift_array(x)
    data = widened(x.data)
    top = data.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    weights = np.exp(data - top)
    sums = weights.sum(axis=axis, keepdims=True)
    with np.errstate(divide="ignore"):  # log(0) is the -inf of a masked row
        y = narrowed(np.log(sums) + top, x.data)
    sums = np.where(sums == 0, 1, sums)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            shares = np.exp(operand(g, x, data) - top)
            total_of = np.sum(shares, axis=axis, keepdims=True)
            return (shares * (spread(g, data.shape, axis) / np.where(total_of == 0, 1, total_of)),)
        return (np.multiply(weights, spread(g, data.shape, axis) / sums, out=outs[0]),)

    return record(y if keepdims else y.squeeze(axis=axis), (x,), vjp)
