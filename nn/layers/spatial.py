"""What layers over spatial axes have in common: of sequences one, of images two, of volumes three.

Inputs are (batch, axes…, channels), or (batch, channels, axes…) where `data_format` says
"channels_first": then the channels are moved to the end and back, for everything is computed with
channels last.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Tensor
from ..arguments import check_choice, count
from .base import Layer
from .options import LayerOptions

_AXES = {1: "steps", 2: "height, width", 3: "depth, height, width"}


class SpatialLayer(Layer):
    """A layer that is told by `rank` how many spatial axes it has, and computes in `compute`."""

    rank = 2

    def __init__(self, data_format: str | None = None, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.data_format = check_data_format(data_format)

    def call(self, inputs: Any) -> Tensor:
        inputs = channels_last(self.checked(inputs), self.data_format)
        return channels_first(self.compute(inputs), self.data_format)

    def checked(self, inputs: Any) -> Tensor:
        """The inputs as a tensor of the layer's dtype and rank."""
        raise NotImplementedError

    def compute(self, inputs: Tensor) -> Tensor:
        """The outputs, of inputs with channels last."""
        raise NotImplementedError


def check_data_format(data_format: str | None) -> str:
    """Keras's default in the place of None."""
    if data_format is None:
        return "channels_last"
    return check_choice("data_format", data_format, ("channels_last", "channels_first"))


def channels_last(inputs: Any, data_format: str) -> Any:
    """A view with the channels at the end."""
    if data_format == "channels_last" or inputs.ndim < 3:
        return inputs
    return np.moveaxis(inputs, 1, -1)


def channels_first(outputs: Any, data_format: str) -> Any:
    """The way back."""
    if data_format == "channels_last" or outputs.ndim < 3:
        return outputs
    return np.moveaxis(outputs, -1, 1)


def check_spatial(layer: str, inputs: Tensor, rank: int, data_format: str) -> Tensor:
    """The inputs of the layer of that name, which must have so many spatial axes."""
    axes = _AXES[rank]
    has_last = data_format == "channels_last"
    form = f"batch, {axes}, channels" if has_last else f"batch, channels, {axes}"
    return check_rank(layer, inputs, rank + 2, form)


def check_rank(layer: str, inputs: Tensor, rank: int, form: str) -> Tensor:
    """The inputs of the layer of that name, which must have so many axes."""
    if inputs.ndim != rank:
        raise ValueError(
            f"layer {layer!r} takes inputs of rank {rank} ({form}), "
            f"it was given shape {inputs.shape}"
        )
    return inputs


def check_sequences(layer: str, sequences: Tensor) -> None:
    """Refuse what is no (batch, steps, features), or has no step to compute outputs of."""
    check_rank(layer, sequences, 3, "batch, steps, features")
    if sequences.shape[1] == 0:
        raise ValueError(
            f"layer {layer!r} takes sequences of at least one step, it was given shape "
            f"{sequences.shape}; leave them out, or pad them and mask the padding"
        )


def numbers(argument: str, value: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """A positive number for each spatial axis, from as many or from one for all."""
    given = (value,) * rank if isinstance(value, (int, np.integer)) else tuple(value)
    if len(given) != rank:
        many = "one positive integer" if rank == 1 else f"one or {rank} positive integers"
        raise ValueError(f"{argument} must be {many}, it is {value!r}")
    try:
        return tuple(count(argument, n) for n in given)
    except ValueError:
        many = "a positive integer" if rank == 1 else f"one or {rank} positive integers"
        raise ValueError(f"{argument} must be {many}, it is {value!r}") from None
