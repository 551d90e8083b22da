"""The table that drives the tests, `cases.py` fills it: functions with inputs to try them on."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import paceline.autodiff as ad
from paceline.autodiff import Tensor, lift


class Case(NamedTuple):
    """A function and float64 inputs around which it is smooth."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[np.ndarray, ...]


CASES: list[Case] = []


def case(name: str, function: Callable[..., Any], *shapes: Any, **interval: float) -> None:
    """Enter a function, with an input for each shape (or each array) given."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    low, high = interval.get("low", -2.0), interval.get("high", 2.0)
    inputs = tuple(
        shape if isinstance(shape, np.ndarray) else rng.uniform(low, high, shape)
        for shape in shapes
    )
    CASES.append(Case(name, function, inputs))


def ints(values: Any, like: Any) -> Any:
    """Whole numbers beside the data of a tensor, on its device."""
    return np.asarray(np.array(values, np.int64), like=lift(like).data)


def constant(values: Any, like: Any) -> Any:
    """Numbers of the dtype of a tensor, on its device."""
    data = lift(like).data
    return np.asarray(np.array(values, data.dtype), like=data)


def spaced(*shape: int) -> np.ndarray:
    """Numbers that are far from equal and from zero, in a random order."""
    size = int(np.prod(shape))
    return np.random.default_rng(size).permutation(np.linspace(-1.9, 2.0, size)).reshape(shape)


def leaves_of(case: Case, dtype: Any = np.float64, array: Callable[..., Any] = np.asarray) -> list:
    """A leaf for each input, from arrays that `array` makes."""
    return [Tensor(array(x.astype(dtype)), requires_grad=True) for x in case.inputs]


def weighted_sum(y: Any) -> Tensor:
    """A scalar to which the elements of y contribute in different measure."""
    y = lift(y)
    weights = np.cos(np.arange(y.size).reshape(y.shape) + 0.3)
    return np.sum(y * constant(weights, y))


def dense_array(gradient: Any) -> Any:
    """A gradient as a whole array in host memory."""
    if isinstance(gradient, ad.IndexedSlices):
        gradient = gradient.to_dense()
    if isinstance(gradient, Tensor):
        gradient = gradient.data
    return gradient if isinstance(gradient, np.ndarray) else gradient.get()
