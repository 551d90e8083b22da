"""Layers without weights that act on each example by itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

from ...autodiff import Tensor, lift
from .. import activations
from ..arguments import check_channels_last
from .base import Layer, LayerOptions, to_floats


class Flatten(Layer):
    """All axes but the batch in one: (n, a, b, c) gives (n, a·b·c), and (n,) gives (n, 1).

    Args:
        data_format: Only channels last is supported.
        **options: See `Layer`.
    """

    def __init__(self, data_format: str | None = None, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        check_channels_last("Flatten", data_format)

    def call(self, inputs: Any) -> Tensor:
        inputs = lift(inputs)
        return inputs.reshape(inputs.shape[0], math.prod(inputs.shape[1:]))


class Activation(Layer):
    """An activation function as a layer.

    Args:
        activation: A name or function, see `nn.activations`.
        **options: See `Layer`.
    """

    def __init__(
        self, activation: str | Callable[[Any], Any], **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**options)
        self.activation = activations.get(activation)

    def call(self, inputs: Any) -> Tensor:
        return self.activation(to_floats(inputs, self.dtype))
