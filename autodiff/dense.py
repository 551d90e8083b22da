"""A fully connected layer as one operation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from .activations import logistic, relu, sigmoid
from .arithmetic import sum_of_rows
from .higher_order import by_definition
from .linear_algebra import as_rows, product, product_with_transposed
from .numerics import keep_positive
from .tensor import Tensor, lift_array, record
from .tensor_like import Array

# name: (y = f(y) in place, g = g f'(x) in place, with f' computed from y = f(x))
ACTIVATIONS: dict[str, tuple[Callable[[Array], Any], Callable[[Array, Array], Any]]] = {
    "relu": (
        lambda y: y.clip(0, np.inf, out=y),  # in half the time of np.maximum with a number
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
    inputs: tuple[Tensor, ...] = (x, w) if b is None else (x, w, lift_array(b))
    _check_shapes(inputs)
    a, weights = x.data, w.data
    rows = as_rows(a)
    y = product(rows, weights)
    if b is not None:
        bias = inputs[2].data
        y += bias
    if activation is not None:
        ACTIVATIONS[activation][0](y)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            saved = (a, weights) if b is None else (a, weights, bias)
            return by_definition(partial(_plain_dense, activation), g, inputs, saved)
        g = as_rows(g)
        if activation is not None:
            ACTIVATIONS[activation][1](g, y)
        gradients: list[Array | None] = [None] * len(inputs)
        if w.requires_grad:
            gradients[1] = product(rows.T, g, outs[1])
        if len(inputs) == 3 and inputs[2].requires_grad:
            gradients[2] = sum_of_rows(g, outs[2])
        if x.requires_grad:
            dx = product_with_transposed(g, weights, outs[0] if a.ndim == 2 else None)
            gradients[0] = dx.reshape(a.shape)
        return gradients

    return record(y if a.ndim == 2 else y.reshape(*a.shape[:-1], y.shape[1]), inputs, vjp)


def _plain_dense(activation: str | None, x: Tensor, w: Tensor, *b: Tensor) -> Any:
    y = x @ w
    for bias in b:
        y = y + bias
    return PLAIN[activation](y) if activation is not None else y


def _check_shapes(inputs: tuple[Tensor, ...]) -> None:
    x, w = inputs[0].data.shape, inputs[1].data.shape
    if len(w) != 2 or len(x) < 1 or x[-1] != w[0]:
        raise ValueError(
            f"dense needs x of shape (..., num_inputs) and w of shape (num_inputs, num_outputs), "
            f"got {x} and {w}"
        )
    if len(inputs) == 3 and inputs[2].data.shape != w[1:]:
        raise ValueError(
            f"dense needs b of shape {w[1:]}, one for each column of w, got {inputs[2].data.shape}"
        )
