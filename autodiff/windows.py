"""Sliding windows over images: where they lie, and the memory layout in which they are cheap.

Users see images as (batch, height, width, channels). Inside, the memory of an image is ordered
height, width, batch, channels: one position of every example lies together, so that a step of a
window over a row of images is one contiguous block. NumPy's elementwise functions keep the order of
memory, hence whole chains of layers keep this one without a copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from .tensor_like import Array

_HEIGHT_FIRST = (1, 2, 0, 3)
_BATCH_FIRST = (2, 0, 1, 3)


@dataclass(frozen=True)
class Windows:
    """Where windows lie along height and width; each pair is (vertical, horizontal)."""

    size: tuple[int, int]
    strides: tuple[int, int]
    image: tuple[int, int]
    count: tuple[int, int]
    pad_before: tuple[int, int]
    pad_after: tuple[int, int]

    @property
    def padded(self) -> tuple[int, int]:
        (height, width), (top, left), (bottom, right) = self.image, self.pad_before, self.pad_after
        return top + height + bottom, left + width + right

    @property
    def tile(self) -> bool:
        """Whether the windows cover every cell of the padded image exactly once."""
        covered = tuple(n * s for n, s in zip(self.count, self.strides, strict=True))
        return self.size == self.strides and covered == self.padded

    @property
    def positions(self) -> list[tuple[int, int]]:
        """The cells of a window, row by row."""
        return list(product(range(self.size[0]), range(self.size[1])))

    def view(self, padded: Array) -> Array:
        """All windows of a height-first image, (rows, columns, batch, *size, channels), no copy."""
        views = np.lib.stride_tricks.sliding_window_view(padded, self.size, axis=(0, 1))
        (rows, columns), (sh, sw) = self.count, self.strides
        # Cut to the count: a pool may have left the last windows out that would fit.
        return views[::sh, ::sw][:rows, :columns].transpose(0, 1, 2, 4, 5, 3)

    def cells(self, padded: Array, row: int, p: int, q: int) -> Array:
        """Cell (p, q) of all windows of one row, as a view of the padded height-first image."""
        sh, sw = self.strides
        return padded[row * sh + p, q : q + sw * (self.count[1] - 1) + 1 : sw]


def pair(value: int | Sequence[int]) -> tuple[int, int]:
    """The vertical and the horizontal of two numbers, from both or from one for both."""
    numbers = (value, value) if isinstance(value, (int, np.integer)) else tuple(value)
    if len(numbers) != 2 or not all(isinstance(n, (int, np.integer)) for n in numbers):
        raise ValueError(
            f"the size and the strides of windows are one or two whole numbers, got {value!r}"
        )
    return int(numbers[0]), int(numbers[1])


def place_windows(
    images: Array, size: Sequence[int], strides: Sequence[int], padding: str
) -> Windows:
    """Place windows over images of shape (batch, height, width, channels).

    Padding 'same' follows TensorFlow: ceil(length / stride) windows, and where the number of padded
    cells is odd the additional one comes after the image.
    """
    if images.ndim != 4:
        raise ValueError(
            f"x must have shape (batch, height, width, channels), got {tuple(images.shape)}; "
            f"add a channel axis with x[..., np.newaxis]"
        )
    if min(*size, *strides) < 1:
        raise ValueError(f"window {tuple(size)} and strides {tuple(strides)} must be at least 1")
    image = images.shape[1:3]
    placed = [_along_axis(*axis, padding) for axis in zip(image, size, strides, strict=True)]
    if min(count for count, _, _ in placed) < 1:
        raise ValueError(
            f"a window of {tuple(size)} does not fit into an image of {tuple(image)}; "
            f"use a smaller window or padding='same'"
        )
    count, before, after = zip(*placed, strict=True)
    return Windows((size[0], size[1]), (strides[0], strides[1]), image, count, before, after)


def _along_axis(length: int, size: int, stride: int, padding: str) -> tuple[int, int, int]:
    """Number of windows, padding before, padding after."""
    if padding == "valid":
        return (length - size) // stride + 1, 0, 0
    if padding == "same":
        count = -(-length // stride)
        total = max((count - 1) * stride + size - length, 0)
        return count, total // 2, total - total // 2
    raise ValueError(f"padding must be 'valid' or 'same', got {padding!r}")


def height_first(images: Array) -> Array:
    """The view (height, width, batch, channels) of (batch, height, width, channels)."""
    return images.transpose(_HEIGHT_FIRST)


def batch_first(images: Array) -> Array:
    """The view (batch, height, width, channels) of (height, width, batch, channels)."""
    return images.transpose(_BATCH_FIRST)


def pad(images: Array, windows: Windows, fill: float, dtype: np.dtype) -> Array:
    """The images height-first, padded and contiguous; a copy only where that takes one."""
    source = height_first(images)
    if windows.padded == windows.image and source.flags.c_contiguous and source.dtype == dtype:
        return source
    padded = np.empty(windows.padded + source.shape[2:], dtype, like=images)
    if windows.padded != windows.image:
        padded[...] = fill
    _inside(padded, windows)[...] = source
    return padded


def unpad(gradient: Array, images: Array, windows: Windows) -> Array:
    """A gradient of `pad(images, ...)` as one of `images`, in their memory order."""
    inside = batch_first(_inside(gradient, windows))
    if windows.padded == windows.image and height_first(images).flags.c_contiguous:
        return inside
    result = np.empty_like(images, dtype=gradient.dtype)
    result[...] = inside
    return result


def _inside(padded: Array, windows: Windows) -> Array:
    (height, width), (top, left) = windows.image, windows.pad_before
    return padded[top : top + height, left : left + width]


def contiguous(array: Array) -> Array:
    """The array in C order: itself where it is so already, else a copy.

    Where the elements of the last axis lie together, each such run is copied as one large element,
    in about half of NumPy's time for runs of 32 floats.
    """
    if array.flags.c_contiguous:
        return array
    if not isinstance(array, np.ndarray) or array.strides[-1] != array.itemsize or not array.size:
        return array.copy(order="C")
    run = np.dtype((np.void, array.shape[-1] * array.itemsize))
    ordered = np.empty(array.shape, array.dtype)
    np.copyto(ordered.view(run), array.view(run))
    return ordered
