"""Pooling of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from ...autodiff import Tensor, avg_pool2d, max_pool2d
from .arguments import check_channels_last, check_padding, check_rank, pair, to_floats
from .base import Layer, LayerOptions


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
        self.padding = check_padding(padding)

    def prepare(self, inputs: Any) -> Tensor:
        """The inputs as floats of the right rank."""
        inputs = to_floats(inputs, self.dtype)
        check_rank(self.name, inputs, 4, "batch, height, width, channels")
        return inputs


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
        return max_pool2d(self.prepare(inputs), self.pool_size, self.strides, self.padding)


class AveragePooling2D(_Pooling2D):
    """The mean of each window, for every channel on its own.

    Args:
        pool_size: Height and width of the window, or one number for both.
        strides: How far it moves; by default its own size, so that windows do not overlap.
        padding: "valid" or "same"; padding does not count into the mean.
        data_format: Only channels last is supported.
        **options: See `Layer`.
    """

    def call(self, inputs: Any) -> Tensor:
        return avg_pool2d(self.prepare(inputs), self.pool_size, self.strides, self.padding)
