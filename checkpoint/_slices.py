"""Parts of a tensor: where each lies in the whole, and which of them a reader needs."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

Shape = tuple[int, ...]
Region = tuple[slice, ...]
Index = slice | tuple[slice, ...]


@final
@dataclass(frozen=True, eq=False)
class TensorSlice:
    """A part of a partitioned tensor, as one of its writers holds it.

    Args:
        array: the part.
        start: where it begins in the whole, one index an axis.
        full_shape: the shape of the whole.

    Raises:
        ValueError: the part does not lie within the whole.
    """

    array: np.ndarray
    start: Shape
    full_shape: Shape

    def __post_init__(self) -> None:
        object.__setattr__(self, "start", tuple(map(operator.index, self.start)))
        object.__setattr__(self, "full_shape", tuple(map(operator.index, self.full_shape)))
        if not lies_within(self.start, np.shape(self.array), self.full_shape):
            raise ValueError(
                f"a slice of shape {np.shape(self.array)} that starts at {self.start} does not "
                f"lie within full_shape {self.full_shape}; give one start an axis"
            )


def lies_within(start: Shape, shape: Shape, full_shape: Shape) -> bool:
    """Whether the part is a part of the whole."""
    return len(start) == len(shape) == len(full_shape) and all(
        first >= 0 and first + length <= full
        for first, length, full in zip(start, shape, full_shape, strict=True)
    )


def slice_key(name: str, start: Shape, shape: Shape, full_shape: Shape) -> str:
    """What a slice is called in its shard: a whole tensor by its name, a part as in NumPy."""
    if shape == full_shape:
        return name
    return f"{name}[{', '.join(f'{a}:{a + n}' for a, n in zip(start, shape, strict=True))}]"


def tiling_problem(parts: Sequence[tuple[Shape, Shape]], full_shape: Shape) -> str | None:
    """What is wrong with (start, shape) parts that should make up a whole, each place once."""
    for start, shape in parts:
        if not lies_within(start, shape, full_shape):
            return f"the slice of shape {shape} at {start} does not lie within {full_shape}"
    overlapping = _overlap(parts)
    if overlapping is not None:
        return f"two slices overlap, one at {overlapping[0]} and one at {overlapping[1]}"
    found, expected = sum(math.prod(shape) for _, shape in parts), math.prod(full_shape)
    if found != expected or not parts:
        return f"its slices hold {found} of its {expected} elements"
    return None


def _overlap(parts: Sequence[tuple[Shape, Shape]]) -> tuple[Shape, Shape] | None:
    filled = [(start, shape) for start, shape in parts if 0 not in shape]
    if len(filled) < 2:
        return None
    starts = np.array([start for start, _ in filled], np.int64).reshape(len(filled), -1)
    stops = starts + np.array([shape for _, shape in filled], np.int64).reshape(starts.shape)
    for i in range(1, len(filled)):
        common = (starts[i] < stops[:i]) & (starts[:i] < stops[i])
        hit = common.all(axis=1)
        if hit.any():
            return filled[int(hit.argmax())][0], filled[i][0]
    return None


def region_of(index: Index, shape: Shape) -> Region:
    """The region that NumPy's basic slices pick from a tensor, one slice an axis, none open.

    Raises:
        ValueError: more slices than axes, or a step other than 1.
        TypeError: something that is not a slice.
    """
    slices = index if isinstance(index, tuple) else (index,)
    for given in slices:
        if not isinstance(given, slice):
            raise TypeError(f"a region is made of slices, such as numpy.s_[10:20]; got {given!r}")
        if given.step not in (None, 1):
            raise ValueError(f"a region's slices have step 1; got {given!r}: pick after reading")
    if len(slices) > len(shape):
        raise ValueError(f"a region of {len(slices)} slices of a tensor of shape {shape}")
    slices += (slice(None),) * (len(shape) - len(slices))
    bounds = [given.indices(length) for given, length in zip(slices, shape, strict=True)]
    return tuple(slice(first, max(first, last)) for first, last, _ in bounds)


def shape_of(region: Region) -> Shape:
    """The shape of what a region picks."""
    return tuple(part.stop - part.start for part in region)


def common_region(region: Region, start: Shape, shape: Shape) -> Region | None:
    """The part of a region that lies in a slice, in the whole's indices; None if nothing does."""
    common = tuple(
        slice(max(part.start, first), min(part.stop, first + length))
        for part, first, length in zip(region, start, shape, strict=True)
    )
    return None if any(part.start >= part.stop for part in common) else common


def shifted(region: Region, origin: Sequence[int]) -> Region:
    """The region in indices that count from `origin`."""
    return tuple(
        slice(part.start - first, part.stop - first)
        for part, first in zip(region, origin, strict=True)
    )
