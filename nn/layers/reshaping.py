"""Layers that give the same elements in another shape or order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import lift
from ..arguments import count
from .base import Layer
from .options import LayerOptions
from .spatial import channels_last, check_data_format, check_rank


class Flatten(Layer):
    """All axes but the batch in one: (n, a, b, c) gives (n, a·b·c), and (n,) gives (n, 1).

    Args:
        data_format: With "channels_first" the channels are moved to the end before, so that weights
            behind it fit both.
        **options: See `Layer`.
    """

    def __init__(self, data_format: str | None = None, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.data_format = check_data_format(data_format)

    def call(self, inputs: Any) -> Any:
        inputs = lift(inputs)
        inputs = channels_last(inputs, self.data_format)
        return inputs.reshape(inputs.shape[0], math.prod(inputs.shape[1:]))


class Reshape(Layer):
    """The elements of each example in another shape.

    Args:
        target_shape: Of one example; one length may be -1, which is found.
        **options: See `Layer`.
    """

    def __init__(self, target_shape: Sequence[int], **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.target_shape = tuple(target_shape)
        if sum(n == -1 for n in self.target_shape) > 1 or any(n < -1 for n in self.target_shape):
            raise ValueError(
                f"target_shape must have lengths, of which one may be -1, it is {target_shape!r}"
            )

    def call(self, inputs: Any) -> Any:
        inputs = lift(inputs)
        # Not by -1, which means nothing where there are no examples.
        size, known = math.prod(inputs.shape[1:]), math.prod(n for n in self.target_shape if n > 0)
        missing = size // max(known, 1)
        shape = tuple(missing if n == -1 else n for n in self.target_shape)
        if math.prod(shape) != size:
            raise ValueError(
                f"layer {self.name!r} cannot give examples of shape {inputs.shape[1:]} the shape "
                f"{self.target_shape}: {size} elements do not fit"
            )
        return inputs.reshape(inputs.shape[0], *shape)


class Permute(Layer):
    """The axes of each example in another order.

    Args:
        dims: The axes, from 1 (0 is the batch): (2, 1) swaps the two of a matrix.
        **options: See `Layer`.
    """

    def __init__(self, dims: Sequence[int], **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.dims = tuple(dims)
        if sorted(self.dims) != list(range(1, len(self.dims) + 1)):
            raise ValueError(f"dims must hold each of 1 … {len(self.dims)} once, it is {dims!r}")

    def call(self, inputs: Any) -> Any:
        return np.transpose(lift(inputs), (0, *self.dims))


class RepeatVector(Layer):
    """Each vector `n` times: (batch, d) gives (batch, n, d)."""

    def __init__(self, n: int, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        self.n = count("n", n)

    def call(self, inputs: Any) -> Any:
        inputs = check_rank(self.name, lift(inputs), 2, "batch, features")
        return np.repeat(np.expand_dims(inputs, 1), self.n, axis=1)
