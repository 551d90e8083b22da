"""Activation functions under Keras's names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..autodiff import (
    Tensor,
    elu,
    gelu,
    leaky_relu,
    lift,
    log_softmax,
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from .arguments import meaning_of

__all__ = [
    "elu",
    "exponential",
    "gelu",
    "get",
    "hard_sigmoid",
    "leaky_relu",
    "linear",
    "log_softmax",
    "mish",
    "relu",
    "relu6",
    "selu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "softsign",
    "swish",
    "tanh",
]

swish = silu
_SELU_SCALE, _SELU_ALPHA = 1.0507009873554805, 1.6732632423543772


def relu6(x: Any) -> Tensor:
    """min(max(x, 0), 6)."""
    return relu(x, max_value=6.0)


def linear(x: Any) -> Tensor:
    """`x` itself."""
    return lift(x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return np.tanh(lift(x))


def exponential(x: Any) -> Any:
    """exp(x)."""
    return np.exp(lift(x))


def hard_sigmoid(x: Any) -> Any:
    """A line through 0.5 with slope 0.2, between 0 and 1."""
    x = lift(x)
    return _as_short(np.clip(0.2 * x + 0.5, 0.0, 1.0), x)


def softsign(x: Any) -> Any:
    """x / (1 + |x|)."""
    x = lift(x)
    return _as_short(x / (1.0 + np.absolute(x)), x)


def selu(x: Any) -> Any:
    """`elu`, scaled so that mean 0 and variance 1 are kept: Klambauer et al. (2017)."""
    x = lift(x)
    return _as_short(_SELU_SCALE * elu(x, _SELU_ALPHA), x)


def mish(x: Any) -> Any:
    """x · tanh(softplus(x)): Misra (2019)."""
    return lift(x) * np.tanh(softplus(x))


def _as_short(y: Any, x: Tensor) -> Any:
    """The result in bfloat16 where `x` is: NumPy makes it float32 beside a number."""
    dtype = x.like().dtype
    return y.astype(dtype) if dtype.name == "bfloat16" else y


_FUNCTIONS = (
    *(elu, exponential, gelu, hard_sigmoid, leaky_relu, linear, log_softmax, mish, relu, relu6),
    *(selu, sigmoid, silu, softmax, softplus, softsign, tanh),
)
_BY_NAME = {function.__name__: function for function in _FUNCTIONS} | {"swish": swish}


def get(activation: str | Callable[[Any], Any] | None) -> Callable[[Any], Any]:
    """The function that a layer's argument means; None is `linear`.

    Raises:
        ValueError: No activation has this name.
        TypeError: It is neither a name nor callable.
    """
    if activation is None:
        return linear
    allowed = "a name, a function of an array or None"
    meant: Callable[[Any], Any] = meaning_of("activation", activation, _BY_NAME, allowed)
    return meant
