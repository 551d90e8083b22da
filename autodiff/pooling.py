"""Max and average pooling of images.

Everything goes row of windows by row of windows, so that what a row touches stays in the
processor's cache. The cells of a window are first gathered into a block each: arithmetic on such
blocks is three times faster than on the interleaved cells of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .numerics import keep_where
from .tensor import Tensor, lift_array, record
from .tensor_like import Array
from .windows import Windows, batch_first, height_first, pad, pair, place_windows, unpad


def max_pool2d(
    x: Any,
    pool_size: int | Sequence[int] = (2, 2),
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
) -> Tensor:
    """The maximum over each window of each channel; its first cell gets the gradient.

    Args:
        x: (batch, height, width, channels).
        pool_size: Height and width of a window, or one number for both.
        strides: Vertical and horizontal distance of windows; `pool_size` by default.
        padding: 'valid' drops windows that do not fit; 'same' pads with cells that never win.

    Returns:
        (batch, rows, columns, channels).
    """
    x = lift_array(x)
    images = x.data
    windows = _placed(images, pool_size, strides, padding)
    by_window = windows.view(pad(images, windows, -np.inf, images.dtype))
    by_cell = by_window.transpose(0, 3, 4, 1, 2, 5)
    cells = np.empty((len(windows.positions), *by_cell.shape[3:]), images.dtype, like=images)
    y = np.empty((*windows.count, *cells.shape[2:]), images.dtype, like=images)
    winner = np.empty(y.shape, winner_dtype(windows.size), like=images)
    for row, row_of_windows in enumerate(by_cell):
        cells.reshape(row_of_windows.shape)[...] = row_of_windows
        max_of_cells(cells, y[row], winner[row])

    def vjp(g: Array, outs: Any) -> Any:
        dx = _empty_or_zeros(g, windows, images)
        parts = np.empty((len(windows.positions), *winner.shape[1:]), g.dtype, like=g)
        for row, g_row in enumerate(height_first(g)):
            to_winner(g_row, winner[row], parts)
            for part, (p, q) in zip(parts, windows.positions, strict=True):
                _put(part, windows, row, p, q, dx)
        return (unpad(dx, images, windows),)

    return record(batch_first(y), (x,), vjp)


def avg_pool2d(
    x: Any,
    pool_size: int | Sequence[int] = (2, 2),
    strides: int | Sequence[int] | None = None,
    padding: str = "valid",
) -> Tensor:
    """The mean over each window of each channel; padded cells do not count.

    Args:
        x: (batch, height, width, channels).
        pool_size: Height and width of a window, or one number for both.
        strides: Vertical and horizontal distance of windows; `pool_size` by default.
        padding: 'valid' or 'same'.

    Returns:
        (batch, rows, columns, channels).
    """
    x = lift_array(x)
    images = x.data
    windows = _placed(images, pool_size, strides, padding)
    padded = pad(images, windows, 0, images.dtype)
    y = np.empty((*windows.count, *padded.shape[2:]), images.dtype, like=images)
    for row, y_row in enumerate(y):
        y_row[...] = windows.cells(padded, row, 0, 0)
        for p, q in windows.positions[1:]:
            y_row += windows.cells(padded, row, p, q)
        y_row *= _shares(windows, row, y)

    def vjp(g: Array, outs: Any) -> Any:
        dx = _empty_or_zeros(g, windows, images)
        for row, g_row in enumerate(height_first(g)):
            share = g_row * _shares(windows, row, g)
            for p, q in windows.positions:
                _put(share, windows, row, p, q, dx)
        return (unpad(dx, images, windows),)

    return record(batch_first(y), (x,), vjp)


def _placed(images: Array, pool_size: int | Sequence[int], strides: Any, padding: str) -> Windows:
    size = pair(pool_size)
    return place_windows(images, size, size if strides is None else pair(strides), padding)


def winner_dtype(size: tuple[int, int]) -> np.dtype:
    """The smallest integer type for positions within a window and one mark for 'none'."""
    return np.min_scalar_type(size[0] * size[1])


def max_of_cells(cells: Array, y: Array, winner: Array) -> None:
    """Write the maximum of `cells` over the first axis into `y`, its first index into `winner`."""
    best = cells[0]
    winner[...] = 0
    for position in range(1, len(cells)):
        mark_where(cells[position] > best, position, winner)
        best = np.maximum(best, cells[position], out=y)
    if best is not y:
        y[...] = best


def max_of_scratch_cells(cells: Array, y: Array, winner: Array) -> None:
    """The same as `max_of_cells`, where `cells` may be overwritten.

    Four cells play two rounds, as in a cup: fewer passes over the bytes of `winner`, longer ones.
    """
    if len(cells) != 4:
        max_of_cells(cells, y, winner)
        return
    left, right = cells[0::2], cells[1::2]
    right_won = np.greater(right, left).view(np.uint8)
    np.maximum(left, right, out=left)
    last_pair_won = np.greater(left[1], left[0]).view(np.uint8)
    np.maximum(left[0], left[1], out=y)
    # The index is right_won[0], or right_won[1] + 2 where the second pair won: without a branch,
    # winner = right_won[0] + last_pair_won * (right_won[1] + 2 - right_won[0]).
    ahead = right_won[1] + winner.dtype.type(2)
    ahead -= right_won[0]
    ahead *= last_pair_won
    np.add(right_won[0], ahead, out=winner)


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


def _put(part: Array, windows: Windows, row: int, p: int, q: int, dx: Array) -> None:
    """Add one cell's part of the gradient to the padded image; see `_empty_or_zeros`."""
    cells = windows.cells(dx, row, p, q)
    if windows.tile:
        cells[...] = part
    else:
        np.add(cells, part, out=cells)


def _empty_or_zeros(g: Array, windows: Windows, x: Array) -> Array:
    """A height-first buffer for the gradient of the padded images: zeros unless all is written."""
    shape = (*windows.padded, x.shape[0], x.shape[3])
    return (np.empty if windows.tile else np.zeros)(shape, g.dtype, like=g)


def _shares(windows: Windows, row: int, like: Array) -> Array:
    """One over the number of real cells in each window of a row, shape (columns, 1, 1)."""
    top, left = windows.pad_before
    rows = _real_cells(row, windows.strides[0], windows.size[0], top, windows.image[0])
    columns = [
        _real_cells(column, windows.strides[1], windows.size[1], left, windows.image[1])
        for column in range(windows.count[1])
    ]
    shares = [[[1 / (rows * count)]] for count in columns]
    return np.array(shares, like.dtype, like=like)


def _real_cells(index: int, stride: int, size: int, pad_before: int, length: int) -> int:
    first = index * stride - pad_before
    return min(first + size, length) - max(first, 0)
