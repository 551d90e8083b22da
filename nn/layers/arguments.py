"""What layers make of their inputs and arguments, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...autodiff import Tensor, lift
from .. import activations


def to_dtype(inputs: Any, dtype: np.dtype) -> Tensor:
    """`inputs` as a tensor of `dtype`, through which a gradient flows back."""
    tensor = lift(inputs)
    return tensor if tensor.data.dtype == dtype else tensor.astype(dtype)


def to_floats(inputs: Any, dtype: np.dtype) -> Tensor:
    """`inputs` as a tensor of floats: floats as they are, anything else converted to `dtype`."""
    tensor = lift(inputs)
    return tensor if tensor.data.dtype.kind == "f" else tensor.astype(dtype)


def split_activation(
    activation: Callable[[Any], Any], in_product: dict[Callable[[Any], Any], str]
) -> tuple[str | None, Callable[[Any], Any]]:
    """What to compute together with a product, by name, and what to apply after it."""
    name = in_product.get(activation)
    return (None, activation) if name is None else (name, activations.linear)


def check_rank(layer: str, inputs: Tensor, rank: int, axes: str) -> None:
    """Refuse inputs of the layer of that name that do not have `rank` axes, called `axes`."""
    if inputs.data.ndim != rank:
        raise ValueError(
            f"layer {layer!r} takes inputs of rank {rank} ({axes}), "
            f"it was given shape {inputs.data.shape}"
        )


def check_channels_last(layer: str, data_format: str | None) -> None:
    """Refuse a `data_format` that is not Keras's default."""
    if data_format not in (None, "channels_last"):
        raise ValueError(
            f"{layer} takes data_format='channels_last' only, not {data_format!r}; "
            f"move the channels with np.transpose(images, (0, 2, 3, 1))"
        )


def pair(argument: str, value: int | Sequence[int]) -> tuple[int, int]:
    """Two positive numbers, for height and width, from one or two."""
    numbers = (value, value) if isinstance(value, (int, np.integer)) else tuple(value)
    if len(numbers) == 2:
        height, width = numbers
        whole = isinstance(height, (int, np.integer)) and isinstance(width, (int, np.integer))
        if whole and height > 0 and width > 0:
            return int(height), int(width)
    raise ValueError(f"{argument} must be one or two positive integers, it is {value!r}")


def count(argument: str, value: Any) -> int:
    """A number of something, at least one.

    Raises:
        ValueError: It is none; 2.5 and True are none either.
    """
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < 1:
        raise ValueError(f"{argument} must be a positive integer, it is {value!r}")
    return int(value)


def check_padding(padding: str) -> str:
    """The padding in lower case, which must be "valid" or "same"."""
    if padding.lower() not in ("valid", "same"):
        raise ValueError(f"padding must be 'valid' or 'same', it is {padding!r}")
    return padding.lower()
