"""Convolutions of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ...autodiff import Tensor, conv2d
from ...strategies import Variable
from .. import activations, regularizers
from .arguments import (
    check_channels_last,
    check_padding,
    check_rank,
    count,
    pair,
    split_activation,
    to_dtype,
)
from .base import Initializer, Layer, LayerOptions

_IN_PRODUCT: dict[Callable[[Any], Any], str] = {activations.relu: "relu"}
"""The activations that `autodiff.conv2d` computes together with the product, by its names."""


class Conv2D(Layer):
    """`activation(conv2d(inputs, kernel) + bias)`.

    Inputs (batch, height, width, channels) give outputs (batch, rows, columns, filters). Weights:
    kernel (kernel height, kernel width, channels, filters), bias (filters,).

    Args:
        filters: The number of output channels.
        kernel_size: Height and width of the window, or one number for both.
        strides: How far the window moves, vertically and horizontally, or one number for both.
        padding: "valid" takes windows that lie inside the image, "same" pads it with zeros so that
            there is a window around every pixel (every stride-th one).
        data_format, dilation_rate, groups: Only Keras's defaults are supported.
        activation: A name or function, see `nn.activations`; none by default.
        use_bias: Whether there is a bias.
        kernel_initializer, bias_initializer: See `nn.initializers`.
        kernel_regularizer, bias_regularizer: See `nn.regularizers`.
        **options: See `Layer`.
    """

    def __init__(
        self,
        filters: int,
        kernel_size: int | Sequence[int],
        strides: int | Sequence[int] = (1, 1),
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: int | Sequence[int] = (1, 1),
        groups: int = 1,
        activation: str | Callable[[Any], Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: str | Callable[[Any], Tensor] | None = None,
        bias_regularizer: str | Callable[[Any], Tensor] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        check_channels_last("Conv2D", data_format)
        if pair("dilation_rate", dilation_rate) != (1, 1) or groups != 1:
            raise ValueError(
                f"Conv2D supports dilation_rate=1 and groups=1 only, "
                f"not {dilation_rate!r} and {groups!r}"
            )
        self.filters = count("filters", filters)
        self.kernel_size = pair("kernel_size", kernel_size)
        self.strides = pair("strides", strides)
        self.padding = check_padding(padding)
        self.activation = activations.get(activation)
        self._in_product, self._after = split_activation(self.activation, _IN_PRODUCT)
        self.use_bias = use_bias
        self._kernel_options = kernel_initializer, regularizers.get(kernel_regularizer)
        self._bias_options = bias_initializer, regularizers.get(bias_regularizer)

    def prepare(self, inputs: Any) -> tuple[Tensor, Variable, Variable | None]:
        """The inputs in the layer's dtype, the kernel and the bias."""
        inputs = to_dtype(inputs, self.dtype)
        check_rank(self.name, inputs, 4, "batch, height, width, channels")
        shape = (*self.kernel_size, inputs.shape[-1], self.filters)
        kernel = self.add_weight("kernel", shape, None, *self._kernel_options)
        bias = (
            self.add_weight("bias", (self.filters,), None, *self._bias_options)
            if self.use_bias
            else None
        )
        return inputs, kernel, bias

    def call(self, inputs: Any) -> Tensor:
        inputs, kernel, bias = self.prepare(inputs)
        outputs = conv2d(
            inputs,
            kernel,
            bias,
            strides=self.strides,
            padding=self.padding,
            activation=self._in_product,
        )
        return self._after(outputs)
