"""Zeros around images, edges cut off, and images made larger; the same of sequences and volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from ...autodiff import Array, Tensor, lift
from ..arguments import check_choice
from .options import LayerOptions
from .spatial import SpatialLayer, check_spatial, numbers


class _Resizing(SpatialLayer):
    """Layers that leave values as they are, floats or not."""

    def checked(self, inputs: Any) -> Tensor:
        return check_spatial(self.name, lift(inputs), self.rank, self.data_format)


class _ZeroPadding(_Resizing):
    def __init__(
        self, padding: Any = 1, data_format: str | None = None, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(data_format, **options)
        self.padding = _sides("padding", padding, self.rank)

    def compute(self, inputs: Any) -> Any:
        return np.pad(inputs, ((0, 0), *self.padding, (0, 0)))


class ZeroPadding1D(_ZeroPadding):
    """Zeros before and behind sequences; `padding` is a number for both, or a pair."""

    rank = 1


class ZeroPadding2D(_ZeroPadding):
    """Zeros around images.

    Args:
        padding: How many: a number for all sides; or one for each axis; or a pair for each, before
            and behind.
        data_format: "channels_last" or "channels_first".
        **options: See `Layer`.
    """


class ZeroPadding3D(_ZeroPadding):
    """Zeros around volumes; for the arguments see `ZeroPadding2D`."""

    rank = 3


class _Cropping(_Resizing):
    def __init__(
        self, cropping: Any, data_format: str | None = None, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(data_format, **options)
        self.cropping = _sides("cropping", cropping, self.rank)

    def compute(self, inputs: Any) -> Any:
        lengths = inputs.shape[1:-1]
        cut = [sum(pair) for pair in self.cropping]
        if any(n < m for n, m in zip(lengths, cut, strict=True)):
            raise ValueError(
                f"layer {self.name!r} cannot cut {self.cropping} off inputs of shape {inputs.shape}"
            )
        stops = zip(self.cropping, lengths, strict=True)
        inside = tuple(slice(before, n - behind) for (before, behind), n in stops)
        return inputs[(slice(None), *inside)]


class Cropping1D(_Cropping):
    """Sequences without their first and last steps; `cropping` is a number for both, or a pair."""

    rank = 1

    def __init__(self, cropping: Any = (1, 1), **options: Unpack[LayerOptions]) -> None:
        super().__init__(cropping, **options)


class Cropping2D(_Cropping):
    """Images without their edges.

    Args:
        cropping: How much of them: a number for all sides; or one for each axis; or a pair for
            each, before and behind.
        data_format: "channels_last" or "channels_first".
        **options: See `Layer`.
    """

    def __init__(
        self,
        cropping: Any = ((0, 0), (0, 0)),
        data_format: str | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(cropping, data_format, **options)


class Cropping3D(_Cropping):
    """Volumes without their edges; for the arguments see `Cropping2D`."""

    rank = 3

    def __init__(
        self,
        cropping: Any = ((1, 1), (1, 1), (1, 1)),
        data_format: str | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(cropping, data_format, **options)


class _UpSampling(_Resizing):
    def __init__(
        self,
        size: int | Sequence[int] = 2,
        data_format: str | None = None,
        interpolation: str = "nearest",
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(data_format, **options)
        self.size = numbers("size", size, self.rank)
        self.interpolation = check_choice("interpolation", interpolation, ("nearest", "bilinear"))

    def compute(self, inputs: Any) -> Any:
        for axis, factor in enumerate(self.size, start=1):
            if factor > 1 and self.interpolation == "nearest":
                inputs = np.repeat(inputs, factor, axis)
            elif factor > 1:
                weights = _linear(inputs.shape[axis], factor).astype(inputs.dtype)
                between = np.tensordot(np.asarray(weights, like=inputs.like()), inputs, (1, axis))
                inputs = np.moveaxis(between, 0, axis)
        return inputs


class UpSampling1D(_UpSampling):
    """Each step of a sequence `size` times."""

    rank = 1

    def __init__(self, size: int = 2, **options: Unpack[LayerOptions]) -> None:
        super().__init__(size, **options)


class UpSampling2D(_UpSampling):
    """Larger images.

    Args:
        size: How many times as high and as wide, or one number for both.
        data_format: "channels_last" or "channels_first".
        interpolation: "nearest" repeats pixels, "bilinear" goes in a line from the centre of one to
            that of the next.
        **options: See `Layer`.
    """


class UpSampling3D(_UpSampling):
    """Each cell of a volume `size` times along its axes."""

    rank = 3

    def __init__(
        self,
        size: int | Sequence[int] = 2,
        data_format: str | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(size, data_format, **options)


def _linear(length: int, factor: int) -> Array:
    """The share of each of `length` numbers in each of `length * factor` between their centres."""
    places = (np.arange(length * factor) + 0.5) / factor - 0.5
    below = np.floor(places)
    weights = np.zeros((length * factor, length))
    for neighbour, share in ((below, 1 - (places - below)), (below + 1, places - below)):
        columns = np.clip(neighbour, 0, length - 1).astype(int)
        np.add.at(weights, (np.arange(length * factor), columns), share)
    return weights


def _sides(argument: str, value: Any, rank: int) -> tuple[tuple[int, int], ...]:
    """How many before and behind, for each axis."""
    given = (value,) * rank if isinstance(value, (int, np.integer)) else tuple(value)
    if rank == 1 and len(given) == 2:
        given = (given,)
    pairs = [(n, n) if isinstance(n, (int, np.integer)) else tuple(n) for n in given]
    whole = all(isinstance(n, (int, np.integer)) and n >= 0 for pair in pairs for n in pair)
    if len(pairs) != rank or not whole or any(len(pair) != 2 for pair in pairs):
        raise ValueError(
            f"{argument} must be a number, or a number or a pair for each of {rank} spatial axes, "
            f"none of them negative; it is {value!r}"
        )
    return tuple((int(before), int(behind)) for before, behind in pairs)
