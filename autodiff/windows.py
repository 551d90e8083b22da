"""Sliding windows over images: where they lie, and the memory layout in which they are cheap.

An image here has any number of spatial axes: a sequence has one, a volume three. Users see
(batch, axes…, channels). Inside, the memory is ordered axes…, batch, channels: one position of
every example lies together, so that a step of a window along the last axis is one contiguous block.
NumPy's elementwise functions keep the order of memory, hence whole chains of layers keep this one
without a copy.

A *row* of windows are those along the last axis; it has an index for each of the axes before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import product
from typing import Any

import numpy as np

from .tensor_like import Array

Index = tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """Where windows lie; each tuple has a number for every spatial axis.

    Attributes:
        size: How many cells a window has.
        strides: The distance of neighbouring windows.
        dilation: The distance of neighbouring cells of a window.
        image: Lengths of the image.
        count: How many windows there are.
        pad_before, pad_after: How many cells are put around the image.
    """

    size: Index
    strides: Index
    dilation: Index
    image: Index
    count: Index
    pad_before: Index
    pad_after: Index

    @cached_property
    def padded(self) -> Index:
        sides = zip(self.pad_before, self.image, self.pad_after, strict=True)
        return tuple([before + length + after for before, length, after in sides])

    @cached_property
    def tile(self) -> bool:
        """Whether the windows cover every cell of the padded image exactly once."""
        covered = tuple(n * s for n, s in zip(self.count, self.strides, strict=True))
        return self.size == self.strides and set(self.dilation) == {1} and covered == self.padded

    @cached_property
    def positions(self) -> list[Index]:
        """The cells of a window, row by row."""
        return list(product(*map(range, self.size)))

    @cached_property
    def rows(self) -> list[Index]:
        """The rows of windows."""
        return list(product(*map(range, self.count[:-1])))

    @cached_property
    def backwards(self) -> Windows:
        """The windows, one cell apart, of the convolution from results back to images.

        Only of windows that are themselves one cell apart.
        """
        extents = [(n - 1) * step + 1 for n, step in zip(self.size, self.dilation, strict=True)]
        before = [n - 1 - pad for n, pad in zip(extents, self.pad_before, strict=True)]
        axes = zip(self.image, extents, self.count, before, strict=True)
        after = [length + n - 1 - count - pad for length, n, count, pad in axes]
        return replace(
            self, image=self.count, count=self.image, pad_before=(*before,), pad_after=(*after,)
        )

    def view(self, padded: Array) -> Array:
        """All windows of an image, (*count, batch, *size, channels), without a copy."""
        ndim = len(self.size)
        extents = tuple(
            [(n - 1) * step + 1 for n, step in zip(self.size, self.dilation, strict=True)]
        )
        views: Array = np.lib.stride_tricks.sliding_window_view(
            padded, extents, axis=tuple(range(ndim))
        )
        # Cut to the count: a pool may have left the last windows out that would fit.
        apart = [
            slice(None, n * step, step) for n, step in zip(self.count, self.strides, strict=True)
        ]
        cells = [slice(None, None, step) for step in self.dilation]
        views = views[(*apart, slice(None), slice(None), *cells)]
        return views.transpose(*range(ndim + 1), *range(ndim + 2, 2 * ndim + 2), ndim + 1)

    def cells(self, padded: Array, row: Index, position: Index) -> Array:
        """The cell at `position` of all windows of one row, as a view of the padded image."""
        starts = [p * step for p, step in zip(position, self.dilation, strict=True)]
        *lead, first = starts
        at = [n * s + start for n, s, start in zip(row, self.strides, lead, strict=False)]
        stride = self.strides[-1]
        return padded[(*at, slice(first, first + stride * (self.count[-1] - 1) + 1, stride))]


def each_axis(value: int | Sequence[int], ndim: int) -> Index:
    """A number for each spatial axis, from as many or from one for all."""
    numbers = (value,) * ndim if isinstance(value, (int, np.integer)) else tuple(value)
    if len(numbers) != ndim or not all(isinstance(n, (int, np.integer)) for n in numbers):
        many = "one whole number" if ndim == 1 else f"one or {_NUMBERS[ndim]} whole numbers"
        raise ValueError(f"the size and the strides of windows are {many}, got {value!r}")
    return tuple([int(n) for n in numbers])


_NUMBERS = {2: "two", 3: "three"}
_AXES = {1: "steps", 2: "height, width", 3: "depth, height, width"}


def num_spatial_axes(images: Array) -> int:
    """How many axes an image has between batch and channels: one to three."""
    if images.ndim - 2 not in _AXES:
        raise ValueError(
            f"x must have shape (batch, axes…, channels) with one to three spatial axes, got "
            f"{tuple(images.shape)}; add a channel axis with x[..., np.newaxis]"
        )
    return images.ndim - 2


def check_images(images: Array, ndim: int) -> None:
    """Refuse what has not so many spatial axes."""
    if images.ndim != ndim + 2:
        raise ValueError(
            f"x must have shape (batch, {_AXES[ndim]}, channels), got {tuple(images.shape)}; "
            f"add a channel axis with x[..., np.newaxis]"
        )


def place_windows(
    image: Sequence[int],
    size: Sequence[int],
    strides: Sequence[int],
    padding: str,
    dilation: Sequence[int] = (),
) -> Windows:
    """Place windows over an image.

    Padding 'same' follows TensorFlow: ceil(length / stride) windows, and where the number of padded
    cells is odd the additional one comes after the image. 'causal' pads before it only, so that no
    window reaches beyond its own place.

    Args:
        image: Lengths of the spatial axes.
        size, strides, dilation: Of the windows; no dilation is 1 everywhere.
        padding: 'valid', 'same' or 'causal'.
    """
    return _placed(tuple(image), tuple(size), tuple(strides), padding, tuple(dilation))


@lru_cache(maxsize=256)
def _placed(image: Index, size: Index, strides: Index, padding: str, dilation: Index) -> Windows:
    """The same windows for each batch of a layer: they remember what follows from them."""
    dilation = dilation or (1,) * len(size)
    if min(*size, *strides, *dilation) < 1:
        raise ValueError(f"window {size} and strides {strides} must be at least 1")
    extents = [(n - 1) * step + 1 for n, step in zip(size, dilation, strict=True)]
    placed = [_along_axis(*axis, padding) for axis in zip(image, extents, strides, strict=True)]
    if min(count for count, _, _ in placed) < 1:
        raise ValueError(
            f"a window of {tuple(extents)} does not fit into an image of {image}; "
            f"use a smaller window or padding='same'"
        )
    count, before, after = zip(*placed, strict=True)
    return Windows(size, strides, dilation, image, count, before, after)


def _along_axis(length: int, extent: int, stride: int, padding: str) -> tuple[int, int, int]:
    """Number of windows, padding before, padding after."""
    if padding == "valid":
        return (length - extent) // stride + 1, 0, 0
    count = -(-length // stride)
    if padding == "same":
        total = max((count - 1) * stride + extent - length, 0)
        return count, total // 2, total - total // 2
    if padding == "causal":
        return count, extent - 1, 0
    raise ValueError(f"padding must be 'valid', 'same' or 'causal', got {padding!r}")


def axes_first(images: Array) -> Array:
    """The view (axes…, batch, channels) of (batch, axes…, channels)."""
    last = images.ndim - 1
    return images.transpose(*range(1, last), 0, last)


def batch_first(images: Array) -> Array:
    """The view (batch, axes…, channels) of (axes…, batch, channels)."""
    last = images.ndim - 1
    return images.transpose(last - 1, *range(last - 1), last)


def pad(images: Array, windows: Windows, fill: float, dtype: np.dtype) -> Array:
    """The images axes-first, padded and contiguous; a copy only where that takes one."""
    source = axes_first(images)
    if windows.padded == windows.image and source.flags.c_contiguous and source.dtype == dtype:
        return source
    padded = np.empty(windows.padded + source.shape[-2:], dtype, like=images)
    if windows.padded != windows.image:
        padded[...] = fill
    copy_runs(source, inside(padded, windows))
    return padded


def tap_index(windows: Windows, position: Index) -> tuple[slice, ...]:
    """Where a cell of all windows lies in a padded image (batch, axes…, channels)."""
    axes = zip(position, windows.dilation, windows.strides, windows.count, strict=True)
    along = [slice(p * d, p * d + s * (n - 1) + 1, s) for p, d, s, n in axes]
    return slice(None), *along


def taps(images: Any, windows: Windows, fill: float) -> list[Any]:
    """For each cell of a window that of all windows, (batch, counts…, channels); of a tensor, too.

    Operations on images are defined by them; on arrays they go by rows, which is faster.
    """
    sides = zip(windows.pad_before, windows.pad_after, strict=True)
    is_padded = windows.padded != windows.image
    padded = np.pad(images, ((0, 0), *sides, (0, 0)), constant_values=fill) if is_padded else images
    return [padded[tap_index(windows, position)] for position in windows.positions]


def unpad(gradient: Array, images: Array, windows: Windows) -> Array:
    """A gradient of `pad(images, ...)` as one of `images`, in their memory order."""
    return in_memory_order_of(images, batch_first(inside(gradient, windows)))


def in_memory_order_of(images: Array, found: Array) -> Array:
    """An array in the memory order of images of its shape; itself where that takes no copy."""
    if axes_first(images).flags.c_contiguous and axes_first(found).flags.c_contiguous:
        return found
    result = np.empty_like(images, dtype=found.dtype)
    result[...] = found
    return result


def inside(padded: Array, windows: Windows) -> Array:
    """A padded image without its padding, as a view."""
    sides = zip(windows.pad_before, windows.image, strict=True)
    return padded[tuple([slice(before, before + length) for before, length in sides])]


def contiguous(array: Array) -> Array:
    """The array in C order: itself where it is so already, else a copy."""
    if array.flags.c_contiguous:
        return array
    ordered = np.empty(array.shape, array.dtype, like=array)
    copy_runs(array, ordered)
    return ordered


def copy_runs(source: Array, target: Array) -> None:
    """Copy an array into another of its shape and dtype.

    Where in both the elements of the last axis lie together, each such run is copied as one large
    element, in about half of NumPy's time for runs of 32 floats.
    """
    source, target = as_runs(source, target)
    target[...] = source


def as_runs(source: Array, target: Array) -> tuple[Array, Array]:
    """Two arrays as `copy_runs` copies them: views of runs, or themselves."""
    size = source.itemsize
    has_runs = source.strides[-1] == target.strides[-1] == size and source.size > 0
    if not has_runs or not isinstance(source, np.ndarray):
        return source, target
    run = np.dtype((np.void, source.shape[-1] * size))
    return source.view(run), target.view(run)
