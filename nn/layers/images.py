"""Convolution and pooling of images: batch, height, width, channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ...autodiff import Tensor, avg_pool2d, conv2d, max_pool2d
from ...strategies import Variable
from .. import activations
from ..arguments import check_channels_last, check_choice, count, pair
from .base import Initializer, Layer, LayerOptions, Regularizer, to_dtype, to_floats
from .dense import KernelLayer

_PADDINGS = ("valid", "same")


class Conv2D(KernelLayer):
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

    computes = (activations.relu,)

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
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        initializers = kernel_initializer, bias_initializer
        penalties = kernel_regularizer, bias_regularizer
        super().__init__(activation, use_bias, *initializers, *penalties, **options)
        check_channels_last("Conv2D", data_format)
        if pair("dilation_rate", dilation_rate) != (1, 1) or groups != 1:
            raise ValueError(
                f"Conv2D supports dilation_rate=1 and groups=1 only, "
                f"not {dilation_rate!r} and {groups!r}"
            )
        self.filters = count("filters", filters)
        self.kernel_size = pair("kernel_size", kernel_size)
        self.strides = pair("strides", strides)
        self.padding = check_choice("padding", padding.lower(), _PADDINGS)

    def prepare(self, inputs: Any) -> tuple[Tensor, Variable, Variable | None]:
        """The inputs in the layer's dtype, the kernel and the bias."""
        inputs = _checked(self.name, to_dtype(inputs, self.dtype))
        return inputs, *self.kernel_and_bias(*self.kernel_size, inputs.shape[-1], self.filters)

    def call(self, inputs: Any) -> Tensor:
        arguments = (*self.prepare(inputs), self.strides, self.padding, self.computed)
        return self.activated(conv2d(*arguments))


class _Pooling2D(Layer):
    """What the pooling layers have in common: windows that move over an image."""

    def __init__(
        self,
        pool_size: int | Sequence[int] = (2, 2),
        strides: int | Sequence[int] | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        check_channels_last("pooling", data_format)
        self.pool_size = pair("pool_size", pool_size)
        self.strides = self.pool_size if strides is None else pair("strides", strides)
        self.padding = check_choice("padding", padding.lower(), _PADDINGS)

    def prepare(self, inputs: Any) -> tuple[Tensor, tuple[int, int], tuple[int, int], str]:
        """The inputs as floats of the right rank, and how the windows lie."""
        inputs = _checked(self.name, to_floats(inputs, self.dtype))
        return inputs, self.pool_size, self.strides, self.padding


class MaxPooling2D(_Pooling2D):
    """The largest value in each window, for every channel on its own.

    Args:
        pool_size: Height and width of the window, or one number for both.
        strides: How far it moves; by default its own size, so that windows do not overlap.
        padding: "valid" or "same"; padding is never the largest value.
        data_format: Only channels last is supported.
        **options: See `Layer`.
    """

    def call(self, inputs: Any) -> Tensor:
        return max_pool2d(*self.prepare(inputs))


class AveragePooling2D(_Pooling2D):
    """The mean of each window, for every channel on its own; arguments as in `MaxPooling2D`.

    Padding does not count into the mean.
    """

    def call(self, inputs: Any) -> Tensor:
        return avg_pool2d(*self.prepare(inputs))


def _checked(layer: str, inputs: Tensor) -> Tensor:
    """The inputs of the layer of that name, which must be images."""
    if inputs.data.ndim != 4:
        raise ValueError(
            f"layer {layer!r} takes inputs of rank 4 (batch, height, width, channels), "
            f"it was given shape {inputs.data.shape}"
        )
    return inputs
