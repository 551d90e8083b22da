"""Convolution and pooling of all windows at once, for devices on which launches are what costs.

On the host images are gone through row by row, so that what a row touches stays in the cache. On a
GPU that would be some hundred short kernels. There the cells of all windows are taken together:
each is a strided slice of the whole batch (see `taps`), and one matrix product, or one maximum,
goes over them.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from .creation import filled
from .dense import dense
from .higher_order import by_definition
from .joining import concatenate
from .numerics import keep_where
from .shapes import reshape
from .tensor import Tensor, record
from .tensor_like import Array
from .windows import Windows, tap_index, taps


def conv_at_once(
    windows: Windows, activation: str | None, x: Tensor, w: Tensor, b: Tensor | None = None
) -> Tensor:
    """A convolution as one product of patches (a line for each window) and weights."""
    patches = concatenate(taps(x, windows, 0), axis=-1)
    weights = reshape(w, (math.prod(w.data.shape[:-1]), w.data.shape[-1]))
    return dense(patches, weights, b, activation)


def max_pool_at_once(windows: Windows, x: Tensor) -> Tensor:
    """The maximum over each window; its first cell gets the gradient."""
    images = x.data
    cells = np.stack(taps(images, windows, -np.inf))
    winner = cells.argmax(axis=0)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(lambda x: _of_winners(windows, winner, x), g, (x,), (images,))
        padded = np.zeros((len(images), *windows.padded, images.shape[-1]), g.dtype, like=g)
        for place, position in enumerate(windows.positions):
            padded[tap_index(windows, position)] += keep_where(g, winner == place)
        return (_without_padding(padded, windows),)

    return record(cells.max(axis=0), (x,), vjp)


def _of_winners(windows: Windows, winner: Array, x: Tensor) -> Any:
    return np.take_along_axis(np.stack(taps(x, windows, -np.inf)), winner[None], 0)[0]


def _without_padding(padded: Array, windows: Windows) -> Array:
    sides = zip(windows.pad_before, windows.image, strict=True)
    return padded[(slice(None), *[slice(before, before + n) for before, n in sides])]


def avg_pool_at_once(windows: Windows, x: Tensor) -> Any:
    """The mean over each window, whose padded cells do not count."""
    total = functools.reduce(np.add, taps(x, windows, 0))
    if windows.padded == windows.image:
        return total * (1 / len(windows.positions))
    is_real = filled((1, *windows.image, 1), 1, x.data.dtype, x.data)
    return total / functools.reduce(np.add, taps(is_real, windows, 0))
