"""The largest value or the mean of windows, or of all positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Tensor, avg_pool, max_pool
from ..arguments import check_choice
from ..masks import beside
from ..policies import to_floats
from .options import LayerOptions
from .spatial import SpatialLayer, check_spatial, numbers

Numbers = int | Sequence[int]


class _Pooling(SpatialLayer):
    """Windows that move over the inputs."""

    def __init__(
        self,
        pool_size: Numbers = 2,
        strides: Numbers | None = None,
        padding: str = "valid",
        data_format: str | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format, **options)
        self.pool_size = numbers("pool_size", pool_size, self.rank)
        self.strides = self.pool_size if strides is None else numbers("strides", strides, self.rank)
        self.padding = check_choice("padding", padding.lower(), ("valid", "same"))

    @property
    def is_plain(self) -> bool:
        """Whether channels come last."""
        return self.data_format == "channels_last"

    def checked(self, inputs: Any) -> Tensor:
        images = to_floats(inputs, self.compute_dtype)
        return check_spatial(self.name, images, self.rank, self.data_format)


class _MaxPooling(_Pooling):
    def compute(self, inputs: Tensor) -> Tensor:
        return max_pool(inputs, self.pool_size, self.strides, self.padding)


class _AveragePooling(_Pooling):
    def compute(self, inputs: Tensor) -> Tensor:
        return avg_pool(inputs, self.pool_size, self.strides, self.padding)


class MaxPooling1D(_MaxPooling):
    """The largest value in each window of steps; for the arguments see `MaxPooling2D`."""

    rank = 1


class MaxPooling2D(_MaxPooling):
    """The largest value in each window, for every channel on its own.

    Args:
        pool_size: Height and width of the window, or one number for both.
        strides: How far it moves; by default its own size, so that windows do not overlap.
        padding: "valid" or "same"; padding is never the largest value.
        data_format: "channels_last" or "channels_first".
        **options: See `Layer`.
    """


class MaxPooling3D(_MaxPooling):
    """The largest value in each window of volumes; for the arguments see `MaxPooling2D`."""

    rank = 3


class AveragePooling1D(_AveragePooling):
    """The mean of each window of steps; for the arguments see `MaxPooling2D`."""

    rank = 1


class AveragePooling2D(_AveragePooling):
    """The mean of each window, for every channel on its own; arguments as in `MaxPooling2D`.

    Padding does not count into the mean.
    """


class AveragePooling3D(_AveragePooling):
    """The mean of each window of volumes; for the arguments see `MaxPooling2D`."""

    rank = 3


class _GlobalPooling(SpatialLayer):
    """One value for each channel of each example.

    Args:
        data_format: "channels_last" or "channels_first".
        keepdims: Whether the spatial axes stay, with length 1.
        **options: See `Layer`.
    """

    def __init__(
        self,
        data_format: str | None = None,
        keepdims: bool = False,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format, **options)
        self.keepdims = keepdims

    def checked(self, inputs: Any) -> Tensor:
        images = to_floats(inputs, self.compute_dtype)
        return check_spatial(self.name, images, self.rank, self.data_format)

    @property
    def axes(self) -> tuple[int, ...]:
        return tuple(range(1, self.rank + 1))


class _GlobalMaxPooling(_GlobalPooling):
    def compute(self, inputs: Tensor) -> Tensor:
        return inputs.max(axis=self.axes, keepdims=self.keepdims)


class _GlobalAveragePooling(_GlobalPooling):
    def compute(self, inputs: Tensor) -> Tensor:
        return inputs.mean(axis=self.axes, keepdims=self.keepdims)


class GlobalMaxPooling1D(_GlobalMaxPooling):
    """The largest value of each channel over all steps: (batch, steps, d) gives (batch, d)."""

    rank = 1


class GlobalMaxPooling2D(_GlobalMaxPooling):
    """The largest value of each channel over all pixels."""


class GlobalMaxPooling3D(_GlobalMaxPooling):
    """The largest value of each channel over all cells of a volume."""

    rank = 3


class GlobalAveragePooling1D(_GlobalAveragePooling):
    """The mean of each channel over all steps, or those that a mask says count.

    (batch, steps, d) gives (batch, d).
    """

    rank = 1
    supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Tensor:
        if mask is None:
            return super().call(inputs)
        axis = 1 if self.data_format == "channels_last" else 2
        inputs = self.checked(inputs)
        counts = beside(mask, inputs, inputs.dtype)
        weights = np.expand_dims(counts, 3 - axis)
        total = (inputs * weights).sum(axis=axis, keepdims=self.keepdims)
        num_steps = weights.sum(axis=axis, keepdims=self.keepdims)
        return total / np.maximum(num_steps, 1)  # zeros where no step counts

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """None: there are no steps any more."""
        return None


class GlobalAveragePooling2D(_GlobalAveragePooling):
    """The mean of each channel over all pixels."""


class GlobalAveragePooling3D(_GlobalAveragePooling):
    """The mean of each channel over all cells of a volume."""

    rank = 3


MaxPool1D, MaxPool2D, MaxPool3D = MaxPooling1D, MaxPooling2D, MaxPooling3D
AvgPool1D, AvgPool2D, AvgPool3D = AveragePooling1D, AveragePooling2D, AveragePooling3D
GlobalMaxPool1D, GlobalMaxPool2D = GlobalMaxPooling1D, GlobalMaxPooling2D
GlobalAvgPool1D, GlobalAvgPool2D = GlobalAveragePooling1D, GlobalAveragePooling2D
