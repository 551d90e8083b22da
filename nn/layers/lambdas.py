"""Functions as layers, and two that scale or mark what they are given."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import numpy as np

from ...autodiff import Tensor
from ..masks import masked
from ..policies import to_floats
from .base import Layer
from .options import LayerOptions


class Lambda(Layer):
    """A function of tensors as a layer; it must have no weights.

    Args:
        function: Of the inputs; one with arguments `training` or `mask` gets these as well.
        mask: The mask of the outputs, or a function of inputs and their mask; by default none.
        arguments: Keywords for the function.
        **options: See `Layer`.
    """

    supports_masking = True

    def __init__(
        self,
        function: Callable[..., Any],
        mask: Any = None,
        arguments: Mapping[str, Any] | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        self.function = function
        self.arguments = dict(arguments or {})
        self._mask = mask
        self._takes = _names_of_arguments(function)

    def call(self, inputs: Any, training: bool = False, mask: Any = None) -> Any:
        offered = {"training": training, "mask": mask}
        taken = {name: value for name, value in offered.items() if name in self._takes}
        return self.function(inputs, **{**taken, **self.arguments})

    def compute_mask(self, inputs: Any, mask: Any = None) -> Any:
        """What the argument `mask` says."""
        return self._mask(inputs, mask) if callable(self._mask) else self._mask


class Rescaling(Layer):
    """`inputs · scale + offset`: Rescaling(1 / 255) for bytes as shares of one."""

    supports_masking = True

    def __init__(self, scale: Any, offset: Any = 0.0, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.scale = scale
        self.offset = offset

    def call(self, inputs: Any) -> Tensor:
        inputs = to_floats(inputs, self.compute_dtype)
        scale = np.asarray(self.scale, inputs.dtype, like=inputs.like())
        return inputs * scale + np.asarray(self.offset, inputs.dtype, like=inputs.like())


class Masking(Layer):
    """A mask for the steps of sequences: those count that have a feature other than `mask_value`.

    The features of the others become zeros.
    """

    supports_masking = True

    def __init__(self, mask_value: float = 0.0, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.mask_value = mask_value

    def call(self, inputs: Any) -> Any:
        inputs = to_floats(inputs, self.compute_dtype)
        counts = np.any(inputs != self.mask_value, axis=-1)
        return masked(inputs * counts[..., np.newaxis].astype(inputs.dtype), counts)


def _names_of_arguments(function: Callable[..., Any]) -> frozenset[str]:
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # a function of NumPy, say
        return frozenset()
