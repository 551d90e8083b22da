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
    relu,
    sigmoid,
    silu,
    softmax,
    softplus,
)
from .arguments import meaning_of

__all__ = [
    "elu",
    "gelu",
    "get",
    "leaky_relu",
    "linear",
    "relu",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "swish",
    "tanh",
]

swish = silu


def linear(x: Any) -> Tensor:
    """`x` itself."""
    return lift(x)


def tanh(x: Any) -> Any:
    """The hyperbolic tangent."""
    return np.tanh(lift(x))


_FUNCTIONS = (elu, gelu, leaky_relu, linear, relu, sigmoid, silu, softmax, softplus, tanh)
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
