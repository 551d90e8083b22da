"""`tf.keras.backend`: what scripts ask of it."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from .arrays import cast, concat, expand_dims, reshape, shape, squeeze, transpose
from .conversion import plain
from .random import normal, uniform

__all__ = [
    "cast",
    "cast_to_floatx",
    "clear_session",
    "concatenate",
    "epsilon",
    "expand_dims",
    "floatx",
    "get_value",
    "image_data_format",
    "int_shape",
    "random_normal",
    "random_uniform",
    "reshape",
    "set_learning_phase",
    "set_value",
    "shape",
    "squeeze",
    "transpose",
]

concatenate = concat
random_normal = normal
random_uniform = uniform


def clear_session() -> None:
    """Nothing: there is no graph that would be kept. `tf.random.set_seed` counts names anew."""


def set_learning_phase(value: Any) -> None:
    """Nothing but a note: `fit` and `evaluate` say themselves whether they train."""
    logging.getLogger("paceline").info(
        "set_learning_phase has no effect: pass training=... where a model is called."
    )


def epsilon() -> float:
    """A small number, against division by zero."""
    return 1e-7


def floatx() -> str:
    """The dtype of weights."""
    return "float32"


def image_data_format() -> str:
    """Images are (batch, height, width, channels)."""
    return "channels_last"


def cast_to_floatx(x: Any) -> np.ndarray:
    """An array of float32."""
    return plain(x).astype(np.float32)


def int_shape(x: Any) -> tuple[int, ...]:
    """The shape."""
    return tuple(x.shape)


def get_value(x: Any) -> Any:
    """The value as an array."""
    value = np.asarray(x)
    return value[()] if value.ndim == 0 else value


def set_value(x: Any, value: Any) -> None:
    """Assign to a variable."""
    x.assign(np.asarray(value, x.dtype))
