"""Functions of one array, element by element, and of two arrays that are broadcast."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from .creation import filled
from .numerics import keep_where, sum_dtype, total
from .tensor import Tensor, lift, operand, record
from .tensor_like import Array, implements


def unbroadcast(gradient: Array, shape: tuple[int, ...], out: Array | None = None) -> Array:
    """Sum a gradient over the axes along which an array of `shape` was broadcast.

    Where `shape` only lacks leading axes, as a bias does, the sum goes into `out` if there is one.
    """
    if gradient.shape == shape:
        return gradient
    if type(gradient) is Tensor:
        leading = tuple(range(gradient.ndim - len(shape)))
        ones = tuple(i - len(shape) for i, n in enumerate(shape) if n == 1)
        return total(gradient, (*leading, *ones), keepdims=True).reshape(shape)
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
    ones = filled(len(matrix), 1, matrix.dtype, matrix)
    return np.matmul(ones, matrix) if out is None else np.matmul(ones, matrix, out=out)


def _unary(function: Callable[..., Any], carry: Callable[[Array, Array, Array], Array]) -> None:
    """Enter a function y = f(x) by `carry(g, x, y)`, which gives g f'(x) and may overwrite g."""

    def apply(x: Any) -> Tensor:
        x = lift(x)
        a = x.data
        y = function(a)

        def vjp(g: Array, outs: Any) -> Any:
            if type(g) is Tensor:
                u = operand(g, x, a)
                return (carry(g, u, apply(u)),)
            return (carry(g, a, y),)

        return record(y, (x,), vjp)

    apply.__name__ = function.__name__
    implements(function)(apply)


def times(g: Array, factor: Any) -> Array:
    """g times a factor, in the memory of g."""
    g *= factor
    return g


def _over(g: Array, divisor: Any) -> Array:
    g /= divisor
    return g


def _times(derivative: Callable[[Array, Array], Any]) -> Callable[[Array, Array, Array], Array]:
    return lambda g, x, y: times(g, derivative(x, y))


_unary(np.negative, lambda g, x, y: times(g, -1))
_unary(np.positive, lambda g, x, y: g)
_unary(np.absolute, lambda g, x, y: keep_where(np.copysign(1, x) * g, x != 0))
_unary(np.fabs, lambda g, x, y: keep_where(np.copysign(1, x) * g, x != 0))
_unary(np.deg2rad, _times(lambda x, y: math.pi / 180))
_unary(np.radians, _times(lambda x, y: math.pi / 180))
_unary(np.rad2deg, _times(lambda x, y: 180 / math.pi))
_unary(np.degrees, _times(lambda x, y: 180 / math.pi))
_unary(np.square, _times(lambda x, y: 2 * x))
_unary(np.sqrt, lambda g, x, y: _over(g, 2 * y))
_unary(np.cbrt, lambda g, x, y: _over(g, 3 * y * y))
_unary(np.reciprocal, _times(lambda x, y: -y * y))
_unary(np.exp, lambda g, x, y: times(g, y))
_unary(np.exp2, _times(lambda x, y: math.log(2) * y))
_unary(np.expm1, _times(lambda x, y: y + 1))
_unary(np.log, lambda g, x, y: _over(g, x))
_unary(np.log2, lambda g, x, y: _over(g, math.log(2) * x))
_unary(np.log10, lambda g, x, y: _over(g, math.log(10) * x))
_unary(np.log1p, lambda g, x, y: _over(g, 1 + x))
_unary(np.sin, _times(lambda x, y: np.cos(x)))
_unary(np.cos, _times(lambda x, y: -np.sin(x)))
_unary(np.tan, _times(lambda x, y: 1 + y * y))
_unary(np.arcsin, lambda g, x, y: _over(g, np.sqrt(1 - x * x)))
_unary(np.arccos, lambda g, x, y: _over(g, -np.sqrt(1 - x * x)))
_unary(np.arctan, lambda g, x, y: _over(g, 1 + x * x))
_unary(np.sinh, _times(lambda x, y: np.cosh(x)))
_unary(np.cosh, _times(lambda x, y: np.sinh(x)))
_unary(np.tanh, _times(lambda x, y: 1 - y * y))
_unary(np.arcsinh, lambda g, x, y: _over(g, np.sqrt(x * x + 1)))
_unary(np.arccosh, lambda g, x, y: _over(g, np.sqrt(x * x - 1)))
_unary(np.arctanh, lambda g, x, y: _over(g, 1 - x * x))


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
            u, v, w = a, b, y
            if type(g) is Tensor:
                u, v = operand(g, x1, a), operand(g, x2, b)
                w = apply(u, v)
            if x2.requires_grad:
                g2 = unbroadcast(to_second(g, u, v, w), b.shape, outs[1])
            if x1.requires_grad:
                g1 = unbroadcast(to_first(g, u, v, w), a.shape, outs[0])
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
                    g2 = (
                        -g2
                        if type(g) is Tensor
                        else np.negative(g2, out=outs[1] if for_both else g2)
                    )
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
    lambda g, a, b, y: times(g, b),
    lambda g, a, b, y: np.multiply(g, a),
)
_binary(
    np.divide,
    lambda g, a, b, y: _over(g, b),
    lambda g, a, b, y: g * y / -b,
)
_binary(  # between its jumps
    np.remainder,
    lambda g, a, b, y: g,
    lambda g, a, b, y: g * -np.floor_divide(a, b),
)
_binary(  # the derivative by b counts as 0 where a is 0
    np.power,
    lambda g, a, b, y: times(g, _power_derivative(a, b)),
    lambda g, a, b, y: g * y * _finite_log(a),
    compute=operator.pow,  # unlike np.power, it squares and takes roots where b is such a number
)
_binary(
    np.copysign,
    lambda g, a, b, y: np.copysign(1, a) * np.copysign(1, b) * g,
    lambda g, a, b, y: np.zeros_like(g),
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
_extremum(  # which "not a number" in the second operand loses, too
    np.fmax,
    lambda a, b: np.greater(a, b) | np.isnan(b),
    lambda a, b: np.greater_equal(a, b) | np.isnan(b),
)
_extremum(
    np.fmin,
    lambda a, b: np.less(a, b) | np.isnan(b),
    lambda a, b: np.less_equal(a, b) | np.isnan(b),
)
_binary(  # both derivatives count as 0 at the origin
    np.arctan2,
    lambda g, a, b, y: g * (b / _no_zero(a * a + b * b)),
    lambda g, a, b, y: g * (-a / _no_zero(a * a + b * b)),
)
_binary(
    np.hypot,
    lambda g, a, b, y: g * (a / _no_zero(y)),
    lambda g, a, b, y: g * (b / _no_zero(y)),
)


def _power_derivative(a: Array, b: Any) -> Any:
    """b a^(b - 1), which is 0 for b = 0 whatever a is."""
    if isinstance(b, (int, float)):
        return b * a ** (b - 1) if b else 0.0
    return b * a ** np.where(b == 0, 1, b - 1)


def _finite_log(a: Any) -> Any:
    if isinstance(a, (int, float)):
        return math.log(a) if a > 0 else math.nan if a else 0.0
    return np.log(np.where(a == 0, 1, a))


def _no_zero(x: Any) -> Any:
    return np.where(x == 0, 1, x)


def _share(a: Any, y: Array) -> Array:
    """exp(a) as a share of exp(y); of two numbers that are -inf none has a share."""
    return np.exp(a - np.where(y == -np.inf, 0, y))


def _halved_at_ties(g: Array, a: Any, b: Any) -> Array:
    share = np.equal(a, b).astype(g.dtype)
    share *= -0.5
    share += 1
    return g * share
