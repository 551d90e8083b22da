"""What weights are held to after each update, under Keras's names.

A constraint is a callable of the weight's value, as an array, that gives the value it may have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..autodiff import Array
from .arguments import by_name, check_not_negative
from .serialization import Serializable

Axis: TypeAlias = "int | tuple[int, ...]"

_EPSILON = 1e-7
"""Keras's: added to a norm before it divides."""


@dataclass(frozen=True)
class MaxNorm(Serializable):
    """The norm along `axis` is at most `max_value`.

    Args:
        max_value: Not negative.
        axis: What to take norms along: 0 for a `Dense` kernel, whose columns belong to one unit
            each; (0, 1, 2) for a `Conv2D` kernel.
    """

    max_value: float = 2
    axis: Axis = 0

    def __post_init__(self) -> None:
        check_not_negative("max_value", self.max_value)

    def __call__(self, w: Array) -> Array:
        norms = _norms(w, self.axis)
        return w * (np.clip(norms, 0, self.max_value) / (norms + _EPSILON))


@dataclass(frozen=True)
class MinMaxNorm(Serializable):
    """The norm along `axis` is between `min_value` and `max_value`.

    Args:
        min_value, max_value: Not negative.
        rate: How far towards the nearest such norm each update goes: 1 for all the way.
        axis: See `MaxNorm`.
    """

    min_value: float = 0.0
    max_value: float = 1.0
    rate: float = 1.0
    axis: Axis = 0

    def __post_init__(self) -> None:
        check_not_negative("min_value", self.min_value)
        check_not_negative("max_value", self.max_value)

    def __call__(self, w: Array) -> Array:
        norms = _norms(w, self.axis)
        nearest = np.clip(norms, self.min_value, self.max_value)
        return w * ((self.rate * nearest + (1 - self.rate) * norms) / (norms + _EPSILON))


@dataclass(frozen=True)
class UnitNorm(Serializable):
    """The norm along `axis` is 1; see `MaxNorm`."""

    axis: Axis = 0

    def __call__(self, w: Array) -> Array:
        return w / (_norms(w, self.axis) + _EPSILON)


@dataclass(frozen=True)
class NonNeg(Serializable):
    """No element is negative."""

    def __call__(self, w: Array) -> Array:
        return np.maximum(w, 0)


def _norms(w: Array, axis: Axis) -> Array:
    return np.sqrt(np.square(w).sum(axis=axis, keepdims=True))


max_norm = MaxNorm
min_max_norm = MinMaxNorm
non_neg = NonNeg
unit_norm = UnitNorm

_BY_NAME: dict[str, Callable[[], Any]] = {
    "max_norm": MaxNorm,
    "min_max_norm": MinMaxNorm,
    "non_neg": NonNeg,
    "unit_norm": UnitNorm,
}


def get(identifier: str | Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """The constraint that a layer's argument means: a name, a callable of the weight, or none.

    Raises:
        ValueError: No constraint has this name.
        TypeError: It is neither a name nor callable.
    """
    if isinstance(identifier, str):
        return by_name("constraint", identifier, _BY_NAME)()
    if identifier is not None and not callable(identifier):
        raise TypeError(
            f"constraint must be a name, a function of an array or None, not {identifier!r}"
        )
    return identifier
