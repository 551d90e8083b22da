"""A fully connected layer as one operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .activations import logistic, rectified, relu, sigmoid
from .arithmetic import sum_of_rows
from .fusion import fused
from .higher_order import by_definition
from .linear_algebra import as_rows, product, product_with_transposed
from .numerics import keep_positive
from .tensor import Tensor, lift_array, record
from .tensor_like import Array

# name: (y = f(y) in place, g = g f'(x) in place, with f' computed from y = f(x))
ACTIVATIONS: dict[str, tuple[Callable[[Array], Any], Callable[[Array, Array], Any]]] = {
    "relu": (
        lambda y: rectified(y, out=y),
        lambda g, y: keep_positive(g, y, out=g),
    ),
    "tanh": (
        lambda y: np.tanh(y, out=y),
        lambda g, y: np.multiply(g, 1 - y * y, out=g),
    ),
    "sigmoid": (
        lambda y: logistic(y, out=y),
        lambda g, y: np.multiply(g, y * (1 - y), out=g),
    ),
}

# The same for what becomes one kernel: y = f(y), and g f'(x).
_OF_ARRAYS: dict[str, tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]] = {
    "relu": (lambda y: np.maximum(y, 0), lambda g, y: np.where(y > 0, g, 0)),
    "tanh": (np.tanh, lambda g, y: g * (1 - y * y)),
    "sigmoid": (logistic, lambda g, y: g * (y * (1 - y))),
}

PLAIN: dict[str, Callable[[Any], Any]] = {"relu": relu, "tanh": np.tanh, "sigmoid": sigmoid}


def dense(x: Any, w: Any, b: Any = None, activation: str | None = None) -> Tensor:
    """activation(x @ w + b), with everything after the product done in place.

    Args:
        x: (..., num_inputs).
        w: (num_inputs, num_outputs).
        b: (num_outputs,), or None.
        activation: 'relu', 'tanh', 'sigmoid', or None.

    Returns:
        (..., num_outputs).
    """
    if activation is not None and activation not in ACTIVATIONS:
        raise ValueError(
            f"activation must be None or one of {', '.join(sorted(ACTIVATIONS))}, got "
            f"{activation!r}; apply any other function to the result"
        )
    x, w = lift_array(x), lift_array(w)
    a, weights = x.data, w.data
    inputs: tuple[Tensor, ...] = x, w
    if b is not None:
        b = lift_array(b)
        inputs, bias = (x, w, b), b.data
    _check_shapes(a.shape, weights.shape, None if b is None else bias.shape)
    rows = as_rows(a)
    y = product(rows, weights)
    if not isinstance(y, np.ndarray):
        finish_at_once(activation, y, *([] if b is None else [bias]))
    else:
        if b is not None:
            y += bias
        if activation is not None:
            ACTIVATIONS[activation][0](y)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            saved = (a, weights) if b is None else (a, weights, bias)
            return by_definition(partial(_plain_dense, activation), g, inputs, saved)
        g = as_rows(g)
        if not isinstance(g, np.ndarray):
            g = through_at_once(activation, g, y)
        elif activation is not None:
            ACTIVATIONS[activation][1](g, y)
        dx = dw = db = None
        if w.requires_grad:
            dw = product(rows.T, g, outs[1])
        if b is not None and b.requires_grad:
            db = sum_of_rows(g, outs[2])
        if x.requires_grad:
            dx = product_with_transposed(g, weights, outs[0] if a.ndim == 2 else None)
            if a.ndim != 2:
                dx = dx.reshape(a.shape)
        return (dx, dw) if b is None else (dx, dw, db)

    return record(y if a.ndim == 2 else y.reshape(*a.shape[:-1], y.shape[1]), inputs, vjp)


def finish_at_once(activation: str | None, y: Array, *bias: Array) -> None:
    """Add a bias and apply an activation in one kernel, in place."""

    def finish(y: Any, *bias: Any) -> None:
        for b in bias:
            y += b
        if activation is not None:
            y[...] = _OF_ARRAYS[activation][0](y)

    if bias or activation is not None:
        fused(finish, y, *bias)


def through_at_once(activation: str | None, g: Array, y: Array) -> Array:
    """The gradient before an activation that gave y, in one kernel."""
    return g if activation is None else fused(_OF_ARRAYS[activation][1], g, y)


def _plain_dense(activation: str | None, x: Tensor, w: Tensor, *b: Tensor) -> Any:
    y = x @ w
    for bias in b:
        y = y + bias
    return PLAIN[activation](y) if activation is not None else y


def _check_shapes(x: tuple[int, ...], w: tuple[int, ...], b: tuple[int, ...] | None) -> None:
    if len(w) != 2 or len(x) < 1 or x[-1] != w[0]:
        raise ValueError(
            f"dense needs x of shape (..., num_inputs) and w of shape (num_inputs, num_outputs), "
            f"got {x} and {w}"
        )
    if b is not None and b != w[1:]:
        raise ValueError(f"dense needs b of shape {w[1:]}, one for each column of w, got {b}")
