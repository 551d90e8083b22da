"""Arithmetic of two arrays, with broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .numerics import keep_where, sum_dtype
from .tensor import Array, Tensor, implements, lift, record


def unbroadcast(gradient: Array, shape: tuple[int, ...], out: Array | None = None) -> Array:
    """Sum a gradient over the axes along which an array of `shape` was broadcast.

    Where `shape` only lacks leading axes, as a bias does, the sum goes into `out` if there is one.
    """
    if gradient.shape == shape:
        return gradient
    if len(shape) == 1 and shape[0] == gradient.shape[-1]:
        return sum_of_rows(gradient.reshape(math.prod(gradient.shape[:-1]), shape[0]), out)
    num_leading = gradient.ndim - len(shape)
    axes = list(range(num_leading))
    for axis, length in enumerate(shape, num_leading):
        if length == 1 and gradient.shape[axis] != 1:
            axes.append(axis)
    dtype = sum_dtype(gradient)
    if len(axes) == num_leading and out is not None:
        return gradient.sum(axis=tuple(axes), dtype=dtype, out=out)
    return gradient.sum(axis=tuple(axes), dtype=dtype, keepdims=True).reshape(shape)


def sum_of_rows(matrix: Array, out: Array | None = None) -> Array:
    """The sum over the first axis; of many rows in a fifth of the time, as a matrix product."""
    dtype = sum_dtype(matrix)
    if len(matrix) < 256 or dtype is not None:
        return matrix.sum(axis=0, dtype=dtype, out=out)
    ones = np.ones(len(matrix), matrix.dtype, like=matrix)
    return np.matmul(ones, matrix) if out is None else np.matmul(ones, matrix, out=out)


@implements(np.add)
def add(x1: Any, x2: Any) -> Tensor:
    x1, x2 = lift(x1), lift(x2)

    def vjp(g: Array, outs: Any) -> Any:
        if not x2.requires_grad:
            return unbroadcast(g, x1.data.shape, outs[0]), None
        g2 = unbroadcast(g, x2.data.shape, outs[1])
        if not x1.requires_grad:
            return None, g2
        return unbroadcast(g, x1.data.shape, outs[0]), g.copy() if g2 is g else g2

    return record(np.add(x1.data, x2.data), (x1, x2), vjp)


@implements(np.subtract)
def subtract(x1: Any, x2: Any) -> Tensor:
    x1, x2 = lift(x1), lift(x2)

    def vjp(g: Array, outs: Any) -> Any:
        if not x2.requires_grad:
            return unbroadcast(g, x1.data.shape, outs[0]), None
        g2 = unbroadcast(g, x2.data.shape, outs[1])
        if not x1.requires_grad:
            return None, np.negative(g2, out=g2)
        g2 = np.negative(g2, out=outs[1] if g2 is g else g2)
        return unbroadcast(g, x1.data.shape, outs[0]), g2

    return record(np.subtract(x1.data, x2.data), (x1, x2), vjp)


@implements(np.multiply)
def multiply(x1: Any, x2: Any) -> Tensor:
    x1, x2 = lift(x1), lift(x2)
    a, b = x1.data, x2.data

    def vjp(g: Array, outs: Any) -> Any:
        g2 = unbroadcast(np.multiply(g, a), b.shape, outs[1]) if x2.requires_grad else None
        if not x1.requires_grad:
            return None, g2
        return unbroadcast(np.multiply(g, b, out=g), a.shape, outs[0]), g2

    return record(np.multiply(a, b), (x1, x2), vjp)


@implements(np.divide)
def divide(x1: Any, x2: Any) -> Tensor:
    x1, x2 = lift(x1), lift(x2)
    a, b = x1.data, x2.data
    y = np.divide(a, b)

    def vjp(g: Array, outs: Any) -> Any:
        g2 = unbroadcast(g * y / -b, b.shape, outs[1]) if x2.requires_grad else None
        if not x1.requires_grad:
            return None, g2
        return unbroadcast(np.divide(g, b, out=g), a.shape, outs[0]), g2

    return record(y, (x1, x2), vjp)


@implements(np.remainder)
def remainder(x1: Any, x2: Any) -> Tensor:
    """The rest of a division; between the jumps its derivative by x1 is 1."""
    x1, x2 = lift(x1), lift(x2)
    a, b = x1.data, x2.data

    def vjp(g: Array, outs: Any) -> Any:
        g2 = unbroadcast(g * -np.floor_divide(a, b), b.shape) if x2.requires_grad else None
        return unbroadcast(g, a.shape) if x1.requires_grad else None, g2

    return record(np.remainder(a, b), (x1, x2), vjp)


@implements(np.power)
def power(x1: Any, x2: Any) -> Tensor:
    """x1 ** x2; the derivative by x2 counts as 0 where x1 is 0."""
    x1, x2 = lift(x1), lift(x2)
    a, b = x1.data, x2.data
    y = a**b  # unlike np.power, the operator squares and takes roots where b is such a number

    def vjp(g: Array, outs: Any) -> Any:
        g2 = unbroadcast(g * y * _finite_log(a), b.shape) if x2.requires_grad else None
        if not x1.requires_grad:
            return None, g2
        return unbroadcast(np.multiply(g, _power_derivative(a, b), out=g), a.shape, outs[0]), g2

    return record(y, (x1, x2), vjp)


def _power_derivative(a: Array, b: Any) -> Any:
    """b a^(b - 1), which is 0 for b = 0 whatever a is."""
    if isinstance(b, (int, float)):
        return b * a ** (b - 1) if b else 0.0
    return b * a ** np.where(b == 0, 1, b - 1)


def _finite_log(a: Any) -> Any:
    if isinstance(a, (int, float)):
        return math.log(a) if a > 0 else math.nan if a else 0.0
    return np.log(np.where(a == 0, 1, a))


def _extremum(
    function: Callable[..., Any], beats: Callable[..., Any], ties: Callable[..., Any]
) -> None:
    """`maximum` or `minimum`. Where both are equal, each gets half of the gradient.

    A "not a number" in the first operand counts as a win of the second.
    """

    def apply(x1: Any, x2: Any) -> Tensor:
        x1, x2 = lift(x1), lift(x2)
        a, b = x1.data, x2.data

        def vjp(g: Array, outs: Any) -> Any:
            share = np.equal(a, b).astype(g.dtype)
            share *= -0.5
            share += 1
            g = np.multiply(g, share, out=g)
            g1 = None
            if x1.requires_grad:
                g1 = unbroadcast(keep_where(g, ties(a, b)), a.shape, outs[0])
            if not x2.requires_grad:
                return g1, None
            lost = np.logical_not(beats(a, b))
            return g1, unbroadcast(keep_where(g, lost, out=g), b.shape, outs[1])

        return record(function(a, b), (x1, x2), vjp)

    apply.__name__ = function.__name__
    implements(function)(apply)


_extremum(np.maximum, np.greater, np.greater_equal)
_extremum(np.minimum, np.less, np.less_equal)


@implements(np.logaddexp)
def logaddexp(x1: Any, x2: Any) -> Tensor:
    x1, x2 = lift(x1), lift(x2)
    a, b = x1.data, x2.data
    y = np.logaddexp(a, b)
    top = np.where(y == -np.inf, 0, y)  # of two that are -inf none has a share

    def vjp(g: Array, outs: Any) -> Any:
        g2 = unbroadcast(g * np.exp(b - top), b.shape) if x2.requires_grad else None
        return unbroadcast(g * np.exp(a - top), a.shape) if x1.requires_grad else None, g2

    return record(y, (x1, x2), vjp)


@implements(np.clip)
def clip(
    a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None
) -> Tensor:
    """The gradient passes where a lies within the bounds, the bounds included; they get none."""
    low, high = lift(min if a_min is None else a_min), lift(max if a_max is None else a_max)
    if low.requires_grad or high.requires_grad:
        raise TypeError(
            "the bounds of np.clip cannot have a gradient; use np.minimum(np.maximum(x, low), high)"
        )
    x = lift(a)
    data = x.data
    y = np.clip(data, low.data, high.data)

    def vjp(g: Array, outs: Any) -> Any:
        return (unbroadcast(keep_where(g, y == data, out=g), data.shape),)

    return record(y, (x,), vjp)


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """A choice between two; with `condition` alone, plain arrays of the positions that hold."""
    chosen = lift(condition).data
    if x is None and y is None:
        return np.where(chosen)
    x, y = lift(x), lift(y)
    x_shape, y_shape = np.shape(x.data), np.shape(y.data)

    def vjp(g: Array, outs: Any) -> Any:
        refused, gx, gy = np.logical_not(chosen), None, None
        if x.requires_grad:
            gx = unbroadcast(keep_where(g, np.logical_not(refused)), x_shape, outs[0])
        if y.requires_grad:
            gy = unbroadcast(keep_where(g, refused, out=g), y_shape, outs[1])
        return gx, gy

    return record(np.where(chosen, x.data, y.data), (x, y), vjp)
