"""Convolutions of sequences, images and volumes: batch, spatial axes, channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

from ...autodiff import Tensor, conv, conv_transpose, depthwise_conv
from ...strategies import Variable
from .. import activations
from ..arguments import check_choice, count
from ..policies import to_dtype
from .dense import KernelLayer
from .options import Constraint, Initializer, LayerOptions, Regularizer, WeightOf, weight_options
from .spatial import channels_first, channels_last, check_data_format, check_spatial, numbers

Numbers = int | Sequence[int]


class _Windowed(KernelLayer):
    """What layers have in common whose kernel moves over the inputs."""

    rank = 2
    paddings: tuple[str, ...] = ("valid", "same")

    def place(
        self,
        kernel_size: Numbers,
        strides: Numbers,
        padding: str,
        data_format: str | None,
        dilation_rate: Numbers,
    ) -> None:
        """Note how the kernel moves."""
        self.kernel_size = numbers("kernel_size", kernel_size, self.rank)
        self.strides = numbers("strides", strides, self.rank)
        self.padding = check_choice("padding", padding.lower(), self.paddings)
        self.data_format = check_data_format(data_format)
        self.dilation_rate = numbers("dilation_rate", dilation_rate, self.rank)

    def to_images(self, inputs: Any) -> Tensor:
        """The inputs in the layer's dtype, of the right rank, with channels last."""
        images = to_dtype(inputs, self.compute_dtype)
        check_spatial(self.name, images, self.rank, self.data_format)
        return channels_last(images, self.data_format)

    def finished(self, outputs: Tensor) -> Tensor:
        """The layer's outputs: its activation, and the channels where they belong."""
        return channels_first(self.activated(outputs), self.data_format)


class _Conv(_Windowed):
    computes: tuple[Callable[..., Any], ...] = (activations.relu,)

    def __init__(
        self,
        filters: int,
        kernel_size: Numbers,
        strides: Numbers = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Numbers = 1,
        groups: int = 1,
        activation: str | Callable[[Any], Any] | None = None,
        use_bias: bool = True,
        kernel_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        kernel_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        activity_regularizer: None = None,
        kernel_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            activation,
            use_bias,
            kernel_initializer,
            bias_initializer,
            kernel_regularizer,
            bias_regularizer,
            activity_regularizer,
            kernel_constraint,
            bias_constraint,
            **options,
        )
        self.place(kernel_size, strides, padding, data_format, dilation_rate)
        self.filters = count("filters", filters)
        self.groups = count("groups", groups)
        if self.filters % self.groups:
            raise ValueError(f"filters must be a multiple of groups, they are {filters}, {groups}")

    @property
    def is_plain(self) -> bool:
        """Whether it has neither groups nor dilation, and channels last."""
        plain = self.groups == 1 and set(self.dilation_rate) == {1}
        return plain and self.data_format == "channels_last"

    def prepare(self, inputs: Any) -> tuple[Tensor, Variable, Variable | None]:
        """The inputs in the layer's dtype, channels last, the kernel and the bias."""
        images = self.to_images(inputs)
        channels = images.shape[-1]
        if channels % self.groups:
            raise ValueError(
                f"layer {self.name!r} splits channels into {self.groups} groups, its inputs have "
                f"{channels}"
            )
        shape = (*self.kernel_size, channels // self.groups, self.filters)
        return images, *self.kernel_and_bias(*shape)

    def call(self, inputs: Any) -> Tensor:
        arguments = (*self.prepare(inputs), self.strides, self.padding, self.computed)
        return self.finished(conv(*arguments, self.dilation_rate, self.groups))


class Conv1D(_Conv):
    """`activation(conv(inputs, kernel) + bias)` of sequences (batch, steps, channels).

    For the arguments see `Conv2D`. `padding="causal"` pads before the sequence only: no output
    depends on later inputs.
    """

    rank = 1
    paddings = ("valid", "same", "causal")


class Conv2D(_Conv):
    """`activation(conv2d(inputs, kernel) + bias)`.

    Inputs (batch, height, width, channels) give outputs (batch, rows, columns, filters). Weights:
    kernel (kernel height, kernel width, channels / groups, filters), bias (filters,).

    Args:
        filters: The number of output channels.
        kernel_size: Height and width of the window, or one number for both.
        strides: How far the window moves, vertically and horizontally, or one number for both.
        padding: "valid" takes windows that lie inside the image, "same" pads it with zeros so that
            there is a window around every pixel (every stride-th one).
        data_format: "channels_last", or "channels_first" for (batch, channels, height, width); the
            kernel is the same. It costs a copy each way.
        dilation_rate: The distance of the window's cells.
        groups: How many groups of channels there are, each with its own filters.
        activation: A name or function, see `nn.activations`; none by default.
        use_bias: Whether there is a bias.
        kernel_initializer, bias_initializer: See `nn.initializers`.
        kernel_regularizer, bias_regularizer: See `nn.regularizers`.
        activity_regularizer: Only None is supported.
        kernel_constraint, bias_constraint: See `nn.constraints`.
        **options: See `Layer`.
    """


class Conv3D(_Conv):
    """`activation(conv(inputs, kernel) + bias)` of volumes (batch, depth, height, width, channels).

    For the arguments see `Conv2D`.
    """

    rank = 3


class _ConvTranspose(_Conv):
    computes: tuple[Callable[..., Any], ...] = ()

    def __init__(
        self,
        filters: int,
        kernel_size: Numbers,
        strides: Numbers = 1,
        padding: str = "valid",
        output_padding: Numbers | None = None,
        data_format: str | None = None,
        dilation_rate: Numbers = 1,
        activation: str | Callable[[Any], Any] | None = None,
        use_bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation=activation,
            use_bias=use_bias,
            **options,
        )
        self.output_padding = (
            None if output_padding is None else _output_padding(output_padding, self.rank)
        )

    def call(self, inputs: Any) -> Tensor:
        images = self.to_images(inputs)
        shape = (*self.kernel_size, self.filters, images.shape[-1])
        kernel, bias = self.kernel_and_bias(*shape, units=self.filters)
        how = self.strides, self.padding, self.output_padding, self.dilation_rate
        outputs = conv_transpose(images, kernel, *how)
        return self.finished(outputs if bias is None else outputs + bias)


class Conv1DTranspose(_ConvTranspose):
    """The reverse of a `Conv1D`; for the arguments see `Conv2DTranspose`."""

    rank = 1


class Conv2DTranspose(_ConvTranspose):
    """The reverse of a `Conv2D`, from its outputs' shape to that of its inputs.

    Weights: kernel (kernel height, kernel width, filters, channels), bias (filters,).

    Args:
        output_padding: How much longer the outputs are, along each axis, than the shortest that
            fit; None for Keras's lengths, `stride` times the inputs' for padding "same".
        filters, kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            **options: See `Conv2D`.
    """


class Conv3DTranspose(_ConvTranspose):
    """The reverse of a `Conv3D`; for the arguments see `Conv2DTranspose`."""

    rank = 3


class _Depthwise(_Windowed):
    """A kernel for each channel."""

    depthwise_kernel = WeightOf()

    def __init__(
        self,
        kernel_size: Numbers,
        strides: Numbers = 1,
        padding: str = "valid",
        depth_multiplier: int = 1,
        data_format: str | None = None,
        dilation_rate: Numbers = 1,
        activation: str | Callable[[Any], Any] | None = None,
        use_bias: bool = True,
        depthwise_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        depthwise_regularizer: Regularizer = None,
        bias_regularizer: Regularizer = None,
        activity_regularizer: None = None,
        depthwise_constraint: Constraint = None,
        bias_constraint: Constraint = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(
            activation,
            use_bias,
            depthwise_initializer,
            bias_initializer,
            depthwise_regularizer,
            bias_regularizer,
            activity_regularizer,
            depthwise_constraint,
            bias_constraint,
            **options,
        )
        self.place(kernel_size, strides, padding, data_format, dilation_rate)
        self.depth_multiplier = count("depth_multiplier", depth_multiplier)

    def call(self, inputs: Any) -> Tensor:
        images = self.to_images(inputs)
        shape = (*self.kernel_size, images.shape[-1], self.depth_multiplier)
        units = images.shape[-1] * self.depth_multiplier
        kernel, bias = self.kernel_and_bias(*shape, units=units, name="depthwise_kernel")
        outputs = depthwise_conv(images, kernel, self.strides, self.padding, self.dilation_rate)
        return self.finished(outputs if bias is None else outputs + bias)


class DepthwiseConv1D(_Depthwise):
    """Each channel of sequences convolved on its own; for the arguments see `DepthwiseConv2D`."""

    rank = 1
    paddings = ("valid", "same", "causal")


class DepthwiseConv2D(_Depthwise):
    """Each channel of images convolved on its own, with `depth_multiplier` filters.

    Weights: depthwise_kernel (kernel height, kernel width, channels, depth_multiplier), bias.

    Args:
        depth_multiplier: How many outputs each channel gives.
        depthwise_initializer, depthwise_regularizer, depthwise_constraint: Of the kernel.
        kernel_size, strides, padding, data_format, dilation_rate, activation, use_bias,
            bias_initializer, bias_regularizer, activity_regularizer, bias_constraint, **options:
            See `Conv2D`.
    """


class _Separable(_Conv):
    computes: tuple[Callable[..., Any], ...] = ()
    depthwise_kernel = WeightOf()
    pointwise_kernel = WeightOf()

    def __init__(
        self,
        filters: int,
        kernel_size: Numbers,
        strides: Numbers = 1,
        padding: str = "valid",
        data_format: str | None = None,
        dilation_rate: Numbers = 1,
        depth_multiplier: int = 1,
        activation: str | Callable[[Any], Any] | None = None,
        use_bias: bool = True,
        depthwise_initializer: Initializer = "glorot_uniform",
        pointwise_initializer: Initializer = "glorot_uniform",
        bias_initializer: Initializer = "zeros",
        depthwise_regularizer: Regularizer = None,
        pointwise_regularizer: Regularizer = None,
        depthwise_constraint: Constraint = None,
        pointwise_constraint: Constraint = None,
        **options: Any,
    ) -> None:
        super().__init__(
            filters,
            kernel_size,
            strides,
            padding,
            data_format,
            dilation_rate,
            activation=activation,
            use_bias=use_bias,
            kernel_initializer=pointwise_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=pointwise_regularizer,
            kernel_constraint=pointwise_constraint,
            **options,
        )
        self.depth_multiplier = count("depth_multiplier", depth_multiplier)
        self._depthwise_options = weight_options(
            depthwise_initializer, depthwise_regularizer, depthwise_constraint
        )

    def call(self, inputs: Any) -> Tensor:
        images = self.to_images(inputs)
        shape = (*self.kernel_size, images.shape[-1], self.depth_multiplier)
        depthwise = self.add_weight("depthwise_kernel", shape, **self._depthwise_options)
        of_channels = depthwise_conv(
            images, depthwise, self.strides, self.padding, self.dilation_rate
        )
        shape = (*(1,) * self.rank, of_channels.shape[-1], self.filters)
        pointwise, bias = self.kernel_and_bias(*shape, name="pointwise_kernel")
        return self.finished(conv(of_channels, pointwise, bias))


class SeparableConv1D(_Separable):
    """A `DepthwiseConv1D`, then a product over channels; arguments as in `SeparableConv2D`."""

    rank = 1
    paddings = ("valid", "same", "causal")


class SeparableConv2D(_Separable):
    """A `DepthwiseConv2D`, and then a product over the channels of each pixel: Chollet (2017).

    Weights: depthwise_kernel (kernel height, kernel width, channels, depth_multiplier),
    pointwise_kernel (1, 1, channels · depth_multiplier, filters), bias (filters,).

    Args:
        depthwise_initializer, depthwise_regularizer, depthwise_constraint: Of the first kernel.
        pointwise_initializer, pointwise_regularizer, pointwise_constraint: Of the second.
        filters, kernel_size, strides, padding, data_format, dilation_rate, depth_multiplier,
            activation, use_bias, bias_initializer, **options: See `Conv2D`, `DepthwiseConv2D`.
    """


def _output_padding(value: Numbers, rank: int) -> tuple[int, ...]:
    given = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(given) != rank or not all(isinstance(n, int) and n >= 0 for n in given):
        raise ValueError(
            f"output_padding must be {rank} numbers from 0 on, or one, it is {value!r}"
        )
    return given
