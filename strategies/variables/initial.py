"""What variables begin with."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ...autodiff import Array, IndexedSlices, placed, placing
from ..devices.arrays import as_array

Initializer: TypeAlias = "Callable[[tuple[int, ...], np.dtype, np.random.Generator], Any]"

_BLOCK = 1 << 16
"""Elements that are drawn at a time."""


def initial_value(
    name: str,
    shape: tuple[int, ...] | None,
    dtype: Any,
    initializer: Initializer | Array | float | None,
    rng: np.random.Generator,
) -> Array:
    """What a new variable begins with.

    Args:
        name: Its name, for errors.
        shape: Needed where `initializer` is a function or None; a number fills it.
        dtype: By default that of an array given as `initializer`, else float32.
        initializer: `f(shape, dtype, rng)`, Keras's `f(shape, dtype)`, or the value itself; None
            draws from Glorot's uniform distribution for matrices and gives zeros for the rest.
    """
    if isinstance(initializer, str):
        raise TypeError(
            f"variable {name!r}: initializer must be a function or a value, got {initializer!r}; "
            f"pass paceline.nn.initializers.get({initializer!r})"
        )
    if initializer is None or callable(initializer):
        if shape is None:
            raise ValueError(
                f"variable {name!r} does not exist yet, and its shape is not given; "
                f"pass shape=(...), or an array as initializer"
            )
        dtype = np.dtype(np.float32 if dtype is None else dtype)
        draw = _default_initializer if initializer is None else initializer
        value = initial_array(call_initializer(draw, tuple(shape), dtype, rng), dtype)
    else:
        value = initial_array(initializer, dtype)
    if shape and value.shape == ():
        value = np.full_like(placed(value), value.item(), shape=tuple(shape))
    if shape is not None and value.shape != tuple(shape):
        raise ValueError(
            f"variable {name!r} is asked for with shape {tuple(shape)}, and its initializer "
            f"gives shape {value.shape}; make them equal, or leave shape out"
        )
    return value


def call_initializer(
    initializer: Callable[..., Any], shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> Any:
    """What `f(shape, dtype, rng)`, or Keras's `f(shape, dtype)`, gives."""
    if _takes_generator(initializer):
        return initializer(shape, dtype, rng)
    return initializer(shape, dtype)


def _takes_generator(initializer: Callable[..., Any]) -> bool:
    """Whether it is called as `f(shape, dtype, rng)`, and not as Keras's `f(shape, dtype)`."""
    try:
        parameters = inspect.signature(initializer).parameters.values()
    except (TypeError, ValueError):  # of functions written in C nothing may be known
        return True
    positions = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(positions) > 2 or any(p.kind is p.VAR_POSITIONAL for p in parameters)


def initial_array(value: Any, dtype: Any = None) -> Array:
    """An initial value as an array; Python's floats, also in lists, become float32."""
    with placing(None):  # it goes where the variable goes, if no checkpoint has another value
        array = as_array(value)
    if isinstance(array, IndexedSlices):
        raise TypeError("a variable cannot begin as IndexedSlices; call to_dense() on them")
    if dtype is None and array.dtype == np.float64 and not hasattr(value, "dtype"):
        dtype = np.float32
    return array if dtype is None else array.astype(dtype, copy=False)


def _default_initializer(
    shape: tuple[int, ...], dtype: np.dtype, rng: np.random.Generator
) -> np.ndarray:
    """Glorot and Bengio's (2010) uniform distribution for matrices, zeros for the rest."""
    if len(shape) < 2 or not np.issubdtype(dtype, np.floating):
        return np.zeros(shape, dtype)
    return uniform_of_variance(1 / max(1, sum(fans(shape)) / 2), shape, dtype, rng)


def uniform_of_variance(
    variance: float, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator
) -> np.ndarray:
    """Uniform around zero."""
    limit = math.sqrt(3 * variance)
    return drawn(partial(rng.uniform, -limit, limit), shape, dtype)


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """How many inputs each output of a weight of this shape has, and the reverse."""
    if not shape:
        return 1, 1
    if len(shape) == 1:
        return shape[0], shape[0]
    num_positions = math.prod(shape[:-2])
    return shape[-2] * num_positions, shape[-1] * num_positions


def drawn(draw: Callable[[int], Any], shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Numbers from `draw(how many)`, in float64, in an array of `dtype`.

    They are converted block by block: a large table is never there in float64 as well.
    """
    values = np.empty(shape, dtype)
    flat = values.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        block[...] = draw(block.size)
    return values
