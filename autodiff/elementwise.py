"""Elementwise functions of one array."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .numerics import keep_where
from .tensor import Array, Tensor, implements, lift, record


def _elementwise(
    function: Callable[..., Any], carry: Callable[[Array, Array, Array], Array]
) -> None:
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


_elementwise(np.negative, lambda g, x, y: np.negative(g, out=g))
_elementwise(np.positive, lambda g, x, y: g)
_elementwise(np.absolute, lambda g, x, y: keep_where(np.copysign(1, x) * g, x != 0))
_elementwise(np.square, _times(lambda x, y: 2 * x))
_elementwise(np.sqrt, lambda g, x, y: np.divide(g, 2 * y, out=g))
_elementwise(np.cbrt, lambda g, x, y: np.divide(g, 3 * y * y, out=g))
_elementwise(np.reciprocal, _times(lambda x, y: -y * y))
_elementwise(np.exp, lambda g, x, y: np.multiply(g, y, out=g))
_elementwise(np.exp2, _times(lambda x, y: math.log(2) * y))
_elementwise(np.expm1, _times(lambda x, y: y + 1))
_elementwise(np.log, lambda g, x, y: np.divide(g, x, out=g))
_elementwise(np.log2, lambda g, x, y: np.divide(g, math.log(2) * x, out=g))
_elementwise(np.log10, lambda g, x, y: np.divide(g, math.log(10) * x, out=g))
_elementwise(np.log1p, lambda g, x, y: np.divide(g, 1 + x, out=g))
_elementwise(np.sin, _times(lambda x, y: np.cos(x)))
_elementwise(np.cos, _times(lambda x, y: -np.sin(x)))
_elementwise(np.tan, _times(lambda x, y: 1 + y * y))
_elementwise(np.arcsin, lambda g, x, y: np.divide(g, np.sqrt(1 - x * x), out=g))
_elementwise(np.arccos, lambda g, x, y: np.divide(g, -np.sqrt(1 - x * x), out=g))
_elementwise(np.arctan, lambda g, x, y: np.divide(g, 1 + x * x, out=g))
_elementwise(np.sinh, _times(lambda x, y: np.cosh(x)))
_elementwise(np.cosh, _times(lambda x, y: np.sinh(x)))
_elementwise(np.tanh, _times(lambda x, y: 1 - y * y))
_elementwise(np.arcsinh, lambda g, x, y: np.divide(g, np.sqrt(x * x + 1), out=g))
_elementwise(np.arccosh, lambda g, x, y: np.divide(g, np.sqrt(x * x - 1), out=g))
_elementwise(np.arctanh, lambda g, x, y: np.divide(g, 1 - x * x, out=g))
