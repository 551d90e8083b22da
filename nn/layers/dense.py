"""Fully connected layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from ...autodiff import Tensor, dense
from .. import activations, regularizers
from .arguments import count, split_activation, to_dtype
from .base import Initializer, Layer, LayerOptions

_IN_PRODUCT: dict[Callable[[Any], Any], str] = {
    activations.relu: "relu",
    activations.sigmoid: "sigmoid",
    activations.tanh: "tanh",
}
"""The activations that `autodiff.dense` computes together with the product, by its names."""


class Dense(Layer):
    """`activation(inputs @ kernel + bias)` over the last axis.

    Inputs (..., d) give outputs (..., units). Weights: kernel (d, units), bias (units,).

    Args:
        units: The length of the outputs' last axis.
        activation: A name or function, see `nn.activations`; none by default.
        use_bias: Whether there is a bias.
        kernel_initializer, bias_initializer: See `nn.initializers`.
        kernel_regularizer, bias_regularizer: See `nn.regularizers`.
        **options: See `Layer`.
    """

    def __init__(
        self,
        units: int,
        activation: str | Callable[[Any], Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: str | Callable[[Any], Tensor] | None = None,
        bias_regularizer: str | Callable[[Any], Tensor] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self.units = count("units", units)
        self.activation = activations.get(activation)
        self._in_product, self._after = split_activation(self.activation, _IN_PRODUCT)
        self.use_bias = use_bias
        self._kernel_options = kernel_initializer, regularizers.get(kernel_regularizer)
        self._bias_options = bias_initializer, regularizers.get(bias_regularizer)

    def call(self, inputs: Any) -> Tensor:
        inputs = to_dtype(inputs, self.dtype)
        kernel = self.add_weight(
            "kernel", (inputs.shape[-1], self.units), None, *self._kernel_options
        )
        bias = (
            self.add_weight("bias", (self.units,), None, *self._bias_options)
            if self.use_bias
            else None
        )
        return self._after(dense(inputs, kernel, bias, self._in_product))
