"""Functions of one array, element by element, and of two arrays that are broadcast."""

from __future__ import annotations

import math
import operator
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


def _unary(function: Callable[..., Any], carry: Callable[[Array, Array, Array], Array]) -> None:
    """Enter a function y = f(x) by `carry(g, x, y)`, which gives g f'(x) and may overwrite g."""

    def apply(x: Any) -> Tensor:
        x = lift(x)
        a = x.data
        y = function(a)
        return record(y, (x,), lambda g, outs: (carry(g, a, y),))

    apply.__name__ = function.__name__
    implements(function)(apply)


def _times(derivative: Callable[[Array, Array], Any]) -> Callable[[Array, Array, Array], Array]:
    return lambda g, x, y: np.multiply(g, derivative(x, y), out=g)


_unary(np.negative, lambda g, x, y: np.negative(g, out=g))
_unary(np.positive, lambda g, x, y: g)
_unary(np.absolute, lambda g, x, y: keep_where(np.copysign(1, x) * g, x != 0))
_unary(np.square, _times(lambda x, y: 2 * x))
_unary(np.sqrt, lambda g, x, y: np.divide(g, 2 * y, out=g))
_unary(np.cbrt, lambda g, x, y: np.divide(g, 3 * y * y, out=g))
_unary(np.reciprocal, _times(lambda x, y: -y * y))
_unary(np.exp, lambda g, x, y: np.multiply(g, y, out=g))
_unary(np.exp2, _times(lambda x, y: math.log(2) * y))
_unary(np.expm1, _times(lambda x, y: y + 1))
_unary(np.log, lambda g, x, y: np.divide(g, x, out=g))
_unary(np.log2, lambda g, x, y: np.divide(g, math.log(2) * x, out=g))
_unary(np.log10, lambda g, x, y: np.divide(g, math.log(10) * x, out=g))
_unary(np.log1p, lambda g, x, y: np.divide(g, 1 + x, out=g))
_unary(np.sin, _times(lambda x, y: np.cos(x)))
_unary(np.cos, _times(lambda x, y: -np.sin(x)))
_unary(np.tan, _times(lambda x, y: 1 + y * y))
_unary(np.arcsin, lambda g, x, y: np.divide(g, np.sqrt(1 - x * x), out=g))
_unary(np.arccos, lambda g, x, y: np.divide(g, -np.sqrt(1 - x * x), out=g))
_unary(np.arctan, lambda g, x, y: np.divide(g, 1 + x * x, out=g))
_unary(np.sinh, _times(lambda x, y: np.cosh(x)))
_unary(np.cosh, _times(lambda x, y: np.sinh(x)))
_unary(np.tanh, _times(lambda x, y: 1 - y * y))
_unary(np.arcsinh, lambda g, x, y: np.divide(g, np.sqrt(x * x + 1), out=g))
_unary(np.arccosh, lambda g, x, y: np.divide(g, np.sqrt(x * x - 1), out=g))
_unary(np.arctanh, lambda g, x, y: np.divide(g, 1 - x * x, out=g))


def _binary(
    function: Callable[..., Any],
    to_first: Callable[[Array, Any, Any, Array], Array],
    to_second: Callable[[Array, Any, Any, Array], Array],
    compute: Callable[[Any, Any], Any] | None = None,
) -> Callable[..., Any]:
    """Enter a function y = f(a, b) by what carries a gradient to each of a and b.

    `to_first(g, a, b, y)` gives the derivative by a, times g. It comes last and may overwrite g,
    which `to_second` leaves alone. `compute` gives y, if not `function`.
    """

    def apply(x1: Any, x2: Any) -> Tensor:
        x1, x2 = lift(x1), lift(x2)
        a, b = x1.data, x2.data
        y = (compute or function)(a, b)

        def vjp(g: Array, outs: Any) -> Any:
            g1 = g2 = None
            if x2.requires_grad:
                g2 = unbroadcast(to_second(g, a, b, y), b.shape, outs[1])
            if x1.requires_grad:
                g1 = unbroadcast(to_first(g, a, b, y), a.shape, outs[0])
            return g1, g2

        return record(y, (x1, x2), vjp)

    apply.__name__ = function.__name__
    implements(function)(apply)
    return apply


def _sum(function: Callable[..., Any], negate: bool) -> None:
    """`add` or `subtract`, where the gradient itself is that of both operands."""

    def apply(x1: Any, x2: Any) -> Tensor:
        x1, x2 = lift(x1), lift(x2)

        def vjp(g: Array, outs: Any) -> Any:
            g1 = g2 = None
            if x2.requires_grad:
                g2 = unbroadcast(g, x2.data.shape, outs[1])
                for_both = g2 is g and x1.requires_grad  # but no memory may go out twice
                if negate:
                    g2 = np.negative(g2, out=outs[1] if for_both else g2)
                elif for_both:
                    g2 = g.copy()
            if x1.requires_grad:
                g1 = unbroadcast(g, x1.data.shape, outs[0])
            return g1, g2

        return record(function(x1.data, x2.data), (x1, x2), vjp)

    apply.__name__ = function.__name__
    implements(function)(apply)


_sum(np.add, negate=False)
_sum(np.subtract, negate=True)
multiply = _binary(
    np.multiply,
    lambda g, a, b, y: np.multiply(g, b, out=g),
    lambda g, a, b, y: np.multiply(g, a),
)
_binary(
    np.divide,
    lambda g, a, b, y: np.divide(g, b, out=g),
    lambda g, a, b, y: g * y / -b,
)
_binary(  # between its jumps
    np.remainder,
    lambda g, a, b, y: g,
    lambda g, a, b, y: g * -np.floor_divide(a, b),
)
_binary(  # the derivative by b counts as 0 where a is 0
    np.power,
    lambda g, a, b, y: np.multiply(g, _power_derivative(a, b), out=g),
    lambda g, a, b, y: g * y * _finite_log(a),
    compute=operator.pow,  # unlike np.power, it squares and takes roots where b is such a number
)
_binary(
    np.logaddexp,
    lambda g, a, b, y: g * _share(a, y),
    lambda g, a, b, y: g * _share(b, y),
)


def _extremum(
    function: Callable[..., Any], beats: Callable[..., Any], ties: Callable[..., Any]
) -> None:
    """`maximum` or `minimum`. Where both are equal, each gets half of the gradient.

    A "not a number" in the first operand neither beats nor ties: it counts as a win of the second.
    """
    _binary(
        function,
        lambda g, a, b, y: keep_where(_halved_at_ties(g, a, b), ties(a, b)),
        lambda g, a, b, y: keep_where(_halved_at_ties(g, a, b), np.logical_not(beats(a, b))),
    )


_extremum(np.maximum, np.greater, np.greater_equal)
_extremum(np.minimum, np.less, np.less_equal)


def _power_derivative(a: Array, b: Any) -> Any:
    """b a^(b - 1), which is 0 for b = 0 whatever a is."""
    if isinstance(b, (int, float)):
        return b * a ** (b - 1) if b else 0.0
    return b * a ** np.where(b == 0, 1, b - 1)


def _finite_log(a: Any) -> Any:
    if isinstance(a, (int, float)):
        return math.log(a) if a > 0 else math.nan if a else 0.0
    return np.log(np.where(a == 0, 1, a))


def _share(a: Any, y: Array) -> Array:
    """exp(a) as a share of exp(y); of two numbers that are -inf none has a share."""
    return np.exp(a - np.where(y == -np.inf, 0, y))


def _halved_at_ties(g: Array, a: Any, b: Any) -> Array:
    share = np.equal(a, b).astype(g.dtype)
    share *= -0.5
    share += 1
    return g * share


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
