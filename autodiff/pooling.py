"""Max and average pooling of images, of any number of spatial axes.

Everything goes row of windows by row of windows, so that what a row touches stays in the
processor's cache. The cells of a window are first gathered into a block each: arithmetic on such
blocks is three times faster than on the interleaved cells of the image.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from ..kernels import Loop, compiled_loop
from .at_once import avg_pool_at_once, max_pool_at_once
from .higher_order import by_definition
from .numerics import keep_where
from .tensor import Tensor, lift_array, record
from .tensor_like import Array
from .windows import (
    Index,
    Windows,
    axes_first,
    batch_first,
    check_images,
    contiguous,
    each_axis,
    num_spatial_axes,
    pad,
    place_windows,
    taps,
    unpad,
)


def max_pool(
    x: Any,
    pool_size: int | Sequence[int] = 2,
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
) -> Tensor:
    """The maximum over each window of each channel; its first cell gets the gradient.

    Args:
        x: (batch, axes…, channels), with one to three spatial axes.
        pool_size: The lengths of a window, or one number for all.
        strides: The distance of windows along each axis; `pool_size` by default.
        padding: 'valid' drops windows that do not fit; 'same' pads with cells that never win.

    Returns:
        (batch, counts…, channels).
    """
    x = lift_array(x)
    images = x.data
    windows = _placed(images, pool_size, strides, padding)
    if not isinstance(images, np.ndarray):
        return max_pool_at_once(windows, x, winner_dtype(windows.size))
    padded = pad(images, windows, -np.inf, images.dtype)
    y = np.empty((*windows.count, *padded.shape[-2:]), images.dtype, like=images)
    winner = np.empty(y.shape, winner_dtype(windows.size), like=images)
    loop = _compiled("max_pool", windows, padded, winner)
    if loop is not None:
        loop(_planes(padded), _planes(y), _planes(winner), *windows.size, *windows.strides)
    else:
        _row_by_row(windows, padded, y, winner)

    def of_winners(x: Tensor) -> Any:
        chosen = batch_first(winner).astype(np.intp)[None]
        return np.take_along_axis(np.stack(taps(x, windows, -np.inf)), chosen, 0)[0]

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(of_winners, g, (x,), (images,))
        g_rows = axes_first(g)
        loop = _compiled("add_to_winner", windows, y, winner)
        if loop is not None:
            dx = np.zeros((*windows.padded, *g_rows.shape[-2:]), y.dtype)
            g_planes = _planes(contiguous(g_rows))
            loop(_planes(dx), g_planes, _planes(winner), *windows.size, *windows.strides)
            return (unpad(dx, images, windows),)
        dx = _empty_or_zeros(g, windows, images)
        parts = np.empty((len(windows.positions), *winner.shape[-3:]), g.dtype, like=g)
        for row in windows.rows:
            to_winner(g_rows[row], winner[row], parts)
            for part, position in zip(parts, windows.positions, strict=True):
                _put(part, windows, row, position, dx)
        return (unpad(dx, images, windows),)

    return record(batch_first(y), (x,), vjp)


def _row_by_row(windows: Windows, padded: Array, y: Array, winner: Array) -> None:
    """The maxima of the windows, and the cells that have them."""
    by_window = windows.view(padded)
    ndim = len(windows.size)
    lead, of_size = range(ndim - 1), range(ndim + 1, 2 * ndim + 1)
    by_cell = by_window.transpose(*lead, *of_size, ndim - 1, ndim, 2 * ndim + 1)
    cells = np.empty((len(windows.positions), *by_cell.shape[-3:]), padded.dtype, like=padded)
    for row in windows.rows:
        row_of_windows = by_cell[row]
        cells.reshape(row_of_windows.shape)[...] = row_of_windows
        max_of_cells(cells, y[row], winner[row])


def _compiled(name: str, windows: Windows, images: Array, winner: Array) -> Loop | None:
    """The loop that does it in one pass, for windows of two axes."""
    if len(windows.size) != 2 or winner.dtype != np.uint8:
        return None
    return compiled_loop(name, _planes(images), _planes(images))


def _planes(images: Array) -> Array:
    """Images (rows, columns, batch, channels) as (rows, columns, all else)."""
    return images.reshape(*images.shape[:2], math.prod(images.shape[2:]))


def avg_pool(
    x: Any,
    pool_size: int | Sequence[int] = 2,
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
) -> Tensor:
    """The mean over each window of each channel; padded cells do not count.

    Args:
        x: (batch, axes…, channels), with one to three spatial axes.
        pool_size: The lengths of a window, or one number for all.
        strides: The distance of windows along each axis; `pool_size` by default.
        padding: 'valid' or 'same'.

    Returns:
        (batch, counts…, channels).
    """
    x = lift_array(x)
    images = x.data
    windows = _placed(images, pool_size, strides, padding)
    define = partial(avg_pool_at_once, windows)
    if not isinstance(images, np.ndarray):
        return define(x)
    padded = pad(images, windows, 0, images.dtype)
    y = np.empty((*windows.count, *padded.shape[-2:]), images.dtype, like=images)
    first, *others = windows.positions
    for row in windows.rows:
        y_row = y[row]
        y_row[...] = windows.cells(padded, row, first)
        for position in others:
            y_row += windows.cells(padded, row, position)
        y_row *= _shares(windows, row, y)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(define, g, (x,), (images,))
        dx = _empty_or_zeros(g, windows, images)
        g_rows = axes_first(g)
        for row in windows.rows:
            share = g_rows[row] * _shares(windows, row, g)
            for position in windows.positions:
                _put(share, windows, row, position, dx)
        return (unpad(dx, images, windows),)

    return record(batch_first(y), (x,), vjp)


def max_pool2d(
    x: Any,
    pool_size: int | Sequence[int] = (2, 2),
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
) -> Tensor:
    """`max_pool` of images (batch, height, width, channels)."""
    x = lift_array(x)
    check_images(x.data, 2)
    return max_pool(x, pool_size, strides, padding)


def avg_pool2d(
    x: Any,
    pool_size: int | Sequence[int] = (2, 2),
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
) -> Tensor:
    """`avg_pool` of images (batch, height, width, channels)."""
    x = lift_array(x)
    check_images(x.data, 2)
    return avg_pool(x, pool_size, strides, padding)


def _placed(images: Array, pool_size: int | Sequence[int], strides: Any, padding: str) -> Windows:
    ndim = num_spatial_axes(images)
    size = each_axis(pool_size, ndim)
    distance = size if strides is None else each_axis(strides, ndim)
    return place_windows(images.shape[1:-1], size, distance, padding)


def winner_dtype(size: Index) -> np.dtype:
    """The smallest integer type for positions within a window and one mark for 'none'."""
    return np.min_scalar_type(math.prod(size))


def max_of_cells(cells: Array, y: Array, winner: Array) -> None:
    """Write the maximum of `cells` over the first axis into `y`, its first index into `winner`."""
    best = cells[0]
    winner[...] = 0
    for position in range(1, len(cells)):
        mark_where(cells[position] > best, position, winner)
        best = np.maximum(best, cells[position], out=y)
    if best is not y:
        y[...] = best


def mark_where(condition: Array, mark: int, winner: Array) -> None:
    """Write `mark` into `winner` where the condition holds; no greater one may stand there.

    Masked assignment would be ten times slower than arithmetic on bytes.
    """
    marks = condition.view(np.uint8) * winner.dtype.type(mark)
    np.maximum(winner, marks, out=winner)


def to_winner(g: Array, winner: Array, cells: Array) -> None:
    """Write the elements of `g` into those of `cells` (positions, columns, batch, channels) that
    won, and zeros into the others.
    """
    positions = np.arange(len(cells), dtype=winner.dtype, like=winner)
    keep_where(g, winner == positions.reshape(-1, 1, 1, 1), out=cells)


def _put(part: Array, windows: Windows, row: Index, position: Index, dx: Array) -> None:
    """Add one cell's part of the gradient to the padded image; see `_empty_or_zeros`."""
    cells = windows.cells(dx, row, position)
    if windows.tile:
        cells[...] = part
    else:
        np.add(cells, part, out=cells)


def _empty_or_zeros(g: Array, windows: Windows, x: Array) -> Array:
    """An axes-first buffer for the gradient of the padded images: zeros unless all is written."""
    shape = (*windows.padded, x.shape[0], x.shape[-1])
    return (np.empty if windows.tile else np.zeros)(shape, g.dtype, like=g)


def _shares(windows: Windows, row: Index, like: Array) -> Array:
    """One over the number of real cells in each window of a row, shape (columns, 1, 1)."""
    of_row = math.prod(_real_cells(windows, axis, index) for axis, index in enumerate(row))
    last = len(row)
    columns = [_real_cells(windows, last, index) for index in range(windows.count[-1])]
    shares = [[[1 / (of_row * count)]] for count in columns]
    return np.array(shares, like.dtype, like=like)


def _real_cells(windows: Windows, axis: int, index: int) -> int:
    """How many cells of a window lie inside the image along an axis."""
    first = index * windows.strides[axis] - windows.pad_before[axis]
    return min(first + windows.size[axis], windows.image[axis]) - max(first, 0)
