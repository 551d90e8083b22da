"""Convolution of every channel on its own.

A matrix product of one column would be slow. Instead each cell of the windows is multiplied by its
weight and added up, for a row of windows and all channels at once, as in average pooling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .convolution import rows_of
from .higher_order import by_definition
from .joining import repeat
from .numerics import widened
from .shapes import reshape
from .tensor import Tensor, lift_array, record
from .tensor_like import Array
from .windows import batch_first, each_axis, num_spatial_axes, pad, place_windows, taps, unpad


def depthwise_conv(
    x: Any,
    w: Any,
    strides: int | Sequence[int] = 1,
    padding: str = "valid",
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """Convolve each channel with filters of its own.

    Args:
        x: (batch, axes…, channels), with one to three spatial axes.
        w: (lengths…, channels, multiplier).
        strides, padding, dilation: As in `conv`.

    Returns:
        (batch, counts…, channels · multiplier), the filters of a channel side by side.
    """
    x, w = lift_array(x), lift_array(w)
    ndim, shape = num_spatial_axes(x.data), w.data.shape
    if len(shape) != ndim + 2 or shape[-2] != x.data.shape[-1]:
        raise ValueError(
            f"x must have shape (batch, axes…, channels) and w (lengths…, channels, multiplier) "
            f"with the same number of channels, got {x.data.shape} and {shape}"
        )
    if shape[-1] > 1:
        x = repeat(x, shape[-1], axis=-1)
    return _one_filter_each(x, reshape(w, (*shape[:ndim], -1)), strides, padding, dilation)


def _one_filter_each(x: Tensor, w: Tensor, strides: Any, padding: str, dilation: Any) -> Tensor:
    """The same with w (lengths…, channels)."""
    images, filters = x.data, w.data
    ndim = filters.ndim - 1
    distances = each_axis(strides, ndim), padding, each_axis(dilation, ndim)
    windows = place_windows(images.shape[1:-1], filters.shape[:-1], *distances)

    def of_taps(x: Tensor, w: Tensor) -> Any:
        parts = zip(taps(x, windows, 0), windows.positions, strict=True)
        return sum(tap * w[position] for tap, position in parts)

    if not isinstance(images, np.ndarray):  # where launches are what costs
        return of_taps(x, w)
    dtype = np.result_type(images, filters)
    padded = pad(images, windows, 0, dtype)
    y = np.zeros((*windows.count, *padded.shape[-2:]), dtype, like=images)
    for row in windows.rows:
        y_row = y[row]
        for position in windows.positions:
            y_row += windows.cells(padded, row, position) * filters[position]

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(of_taps, g, (x, w), (images, filters))
        dx = np.zeros(padded.shape, dtype, like=g)
        dw = np.zeros(filters.shape, dtype, like=g)
        for row, g_row in zip(windows.rows, rows_of(g), strict=True):
            for position in windows.positions:
                cells = windows.cells(padded, row, position)
                dw[position] += np.einsum("cbk,cbk->k", widened(cells), widened(g_row))
                windows.cells(dx, row, position)[...] += g_row * filters[position]
        return unpad(dx, images, windows), dw

    return record(batch_first(y), (x, w), vjp)
