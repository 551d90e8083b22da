"""Convolution of images, forward and gradients, on plain NumPy or CuPy arrays.

A row of output is one matrix product: patches (one line for each position of each example) times
weights. Patches are gathered anew for each row, in forward and in backward, into a buffer that
stays in the processor's cache; to keep them would take kernel-size times the memory of the input.
A column of ones among the patches makes the bias one more line of the weights.

Where a max-pool follows, a row is a row of pools, and its lines are sorted by the cell of the pool
to which they belong, so that the pool is a maximum of contiguous blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import NamedTuple

import numpy as np

from .memory import contiguous
from .numerics import keep_where
from .pooling import mark_where, max_of_scratch_cells, to_winner, winner_dtype
from .tensor import Array
from .windows import Windows, batch_first, height_first, pad, place_windows, unpad

_FEW_CHANNELS = 4


class ConvSaved(NamedTuple):
    """What the gradients of a convolution need.

    Attributes:
        x: The input.
        w: The weights.
        windows: Where the windows lie.
        y: The result, if it went through relu, else None.
    """

    x: Array
    w: Array
    windows: Windows
    y: Array | None


class ConvPoolSaved(NamedTuple):
    """What the gradients of convolution, relu and max-pool in one need.

    Attributes:
        x: The input.
        w: The weights.
        windows: Where those windows of the convolution lie that are pooled.
        pool_size: Height and width of a pool.
        winner: Position of each pool's maximum, height-first; the number of positions where relu
            let nothing through.
    """

    x: Array
    w: Array
    windows: Windows
    pool_size: tuple[int, int]
    winner: Array


class ConvGradients(NamedTuple):
    """Gradients of the input, the weights and the bias; None where not asked for."""

    x: Array | None
    w: Array | None
    b: Array | None


def conv2d(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    strides: Sequence[int] = (1, 1),
    padding: str = "valid",
    activation: str | None = None,
) -> tuple[Array, ConvSaved]:
    """Convolve images with a bank of filters (cross-correlation, as in all of deep learning).

    Args:
        x: Images of shape (batch, height, width, channels), in any memory order.
        w: Filters of shape (height, width, channels, filters), float.
        b: Bias of shape (filters,), or None.
        strides: Vertical and horizontal distance of windows.
        padding: 'valid', or 'same' as TensorFlow pads.
        activation: 'relu' or None.

    Returns:
        The result (batch, rows, columns, filters), and what `conv2d_gradients` needs.
    """
    _check(x, w, b)
    if activation not in (None, "relu"):
        raise ValueError(f"activation must be 'relu' or None, got {activation!r}")
    windows = place_windows(x, w.shape[:2], strides, padding)
    weights = _with_bias(w, b, np.result_type(x, w))
    y = np.empty((*windows.count, x.shape[0], w.shape[3]), weights.dtype, like=x)
    zeros = np.zeros_like(y[0])
    for y_row, patches in zip(y, _patches(x, windows, weights.dtype), strict=True):
        np.matmul(patches[:, : len(weights)], weights, out=_lines(y_row))
        if activation:
            np.maximum(y_row, zeros, out=y_row)  # four times faster than with the number 0
    return batch_first(y), ConvSaved(x, w, windows, y if activation else None)


def conv2d_gradients(
    g: Array,
    saved: ConvSaved,
    *,
    need_x: bool = True,
    need_w: bool = True,
    out_w: Array | None = None,
    out_b: Array | None = None,
) -> ConvGradients:
    """Compute the gradients of `conv2d`.

    Args:
        g: Gradient of the result, in any memory order; left as it is.
        saved: From `conv2d`.
        need_x: Whether the gradient of the input is wanted.
        need_w: Whether the gradients of weights and bias are wanted.
        out_w: Buffer of the weights' shape for their gradient, or None.
        out_b: Buffer of shape (filters,) for the gradient of the bias, or None.

    Returns:
        The gradients; that of the input is in its memory order.
    """
    x, w, windows, y = saved
    rows = _contiguous_rows(g) if y is None else _rows_through_relu(g, y)
    return _gradients(rows, x, w, windows, (1, 1), need_x, need_w, out_w, out_b)


def conv2d_relu_max_pool2d(
    x: Array,
    w: Array,
    b: Array | None = None,
    *,
    strides: Sequence[int] = (1, 1),
    padding: str = "valid",
    pool_size: Sequence[int] = (2, 2),
) -> tuple[Array, ConvPoolSaved]:
    """Compute `conv2d(..., activation='relu')` and a max-pool without overlap ('valid') in one.

    Bias and relu are monotone and the same for a whole pool, so that they can come after the
    maximum, on fewer elements; the unpooled image never exists as a whole.

    Args:
        x: Images of shape (batch, height, width, channels), in any memory order.
        w: Filters of shape (height, width, channels, filters), float.
        b: Bias of shape (filters,), or None.
        strides: Vertical and horizontal distance of the convolution's windows.
        padding: Of the convolution: 'valid' or 'same'.
        pool_size: Height and width of a pool, and the distance of pools.

    Returns:
        The result (batch, rows, columns, filters), and what `conv2d_relu_max_pool2d_gradients`
        needs.
    """
    _check(x, w, b)
    windows = _cropped(place_windows(x, w.shape[:2], strides, padding), pool_size)
    pool = (pool_size[0], pool_size[1])
    weights = _with_bias(w, None, np.result_type(x, w))
    rows, columns = windows.count[0] // pool[0], windows.count[1] // pool[1]
    y = np.empty((rows, columns, x.shape[0], w.shape[3]), weights.dtype, like=x)
    cells = np.empty((pool[0] * pool[1], *y.shape[1:]), y.dtype, like=x)
    winner = np.empty(y.shape, winner_dtype(pool), like=x)
    bias, zeros = np.zeros_like(y[0]), np.zeros_like(y[0])
    if b is not None:
        bias[...] = b
    for row, patches in enumerate(_patches(x, windows, weights.dtype, pool)):
        np.matmul(patches[:, : len(weights)], weights, out=_lines(cells))
        max_of_scratch_cells(cells, y[row], winner[row])
        np.add(y[row], bias, out=y[row])
        np.maximum(y[row], zeros, out=y[row])
        mark_where(y[row] <= 0, len(cells), winner[row])
    return batch_first(y), ConvPoolSaved(x, w, windows, pool, winner)


def conv2d_relu_max_pool2d_gradients(
    g: Array,
    saved: ConvPoolSaved,
    *,
    need_x: bool = True,
    need_w: bool = True,
    out_w: Array | None = None,
    out_b: Array | None = None,
) -> ConvGradients:
    """Compute the gradients of `conv2d_relu_max_pool2d`; arguments as for `conv2d_gradients`."""
    x, w, windows, pool, winner = saved
    rows = _rows_through_pool(g, pool, winner)
    return _gradients(rows, x, w, windows, pool, need_x, need_w, out_w, out_b)


def _check(x: Array, w: Array, b: Array | None) -> None:
    if w.ndim != 4 or x.ndim != 4 or w.shape[2] != x.shape[3]:
        raise ValueError(
            f"x must have shape (batch, height, width, channels) and w (height, width, channels, "
            f"filters) with the same number of channels, got {tuple(x.shape)} and {tuple(w.shape)}"
        )
    if b is not None and b.shape != w.shape[3:]:
        raise ValueError(
            f"b must have one element for each filter, shape {tuple(w.shape[3:])}, "
            f"got shape {tuple(b.shape)}"
        )


def _lines(row: Array) -> Array:
    """One row of an image (columns, batch, channels) as a matrix with a line for each position."""
    return row.reshape(math.prod(row.shape[:-1]), row.shape[-1])


def _with_bias(w: Array, b: Array | None, dtype: np.dtype) -> Array:
    """The weights as a matrix, the bias as its last line."""
    weights = w.reshape(-1, w.shape[3])
    if b is not None:
        weights = np.concatenate([weights, b[np.newaxis]])
    return weights.astype(dtype, copy=False)


def _patches(
    x: Array, windows: Windows, dtype: np.dtype, pool: tuple[int, int] = (1, 1)
) -> Iterator[Array]:
    """For each row of pools the matrix of the patches of its windows; all of them in one buffer.

    The matrix has a line for each cell of a pool, column of pools, and example, in this order. Its
    columns are the inputs of a patch, ones, and zeros up to a multiple of four, the unit of the
    matrix product's inner kernel. With few channels its memory is ordered column by column, which
    makes filling it a few long copies.
    """
    batch, channels = x.shape[0], x.shape[3]
    padded = pad(x, windows, 0, dtype)
    num_inputs = windows.size[0] * windows.size[1] * channels
    shape = (num_inputs + 4 - num_inputs % 4, pool[0] * windows.count[1] * batch)
    if channels <= _FEW_CHANNELS:
        padded = padded.transpose(3, 0, 1, 2).copy().transpose(1, 2, 3, 0)
        matrix = np.zeros(shape, dtype, like=x).T
    else:
        matrix = np.zeros(shape[::-1], dtype, like=x)
    (rows, columns), (height, width) = windows.count, pool
    by_pool = windows.view(padded).reshape(
        rows // height, height, columns // width, width, batch, *windows.size, channels
    )
    by_cell = by_pool.transpose(0, 1, 3, 2, 4, 5, 6, 7)
    matrix[:, num_inputs] = 1
    patches = matrix[:, :num_inputs].reshape(by_cell.shape[1:])
    for row_of_pools in by_cell:
        patches[...] = row_of_pools
        yield matrix


def _contiguous_rows(g: Array) -> Iterator[Array]:
    for g_row in height_first(g):
        yield contiguous(g_row)


def _rows_through_relu(g: Array, y: Array) -> Iterator[Array]:
    g_rows = height_first(g)
    buffer = np.empty(g_rows.shape[1:], g.dtype, like=g)
    for g_row, y_row in zip(g_rows, y, strict=True):
        yield keep_where(g_row, y_row > 0, out=buffer)


def _rows_through_pool(g: Array, pool: tuple[int, int], winner: Array) -> Iterator[Array]:
    cells = np.empty((pool[0] * pool[1], *winner.shape[1:]), g.dtype, like=g)
    for g_row, winner_row in zip(_contiguous_rows(g), winner, strict=True):
        to_winner(g_row, winner_row, cells)
        yield cells


def _cropped(windows: Windows, pool_size: Sequence[int]) -> Windows:
    """The windows without the last rows and columns that no pool takes in."""
    (rows, columns), (height, width) = windows.count, pool_size
    if min(height, width) < 1 or height > rows or width > columns:
        raise ValueError(
            f"pool_size {tuple(pool_size)} must be at least 1 and fit into the convolution's "
            f"{rows} x {columns} results"
        )
    return replace(windows, count=(rows - rows % height, columns - columns % width))


def _gradients(
    g_rows: Iterator[Array],
    x: Array,
    w: Array,
    windows: Windows,
    pool: tuple[int, int],
    need_x: bool,
    need_w: bool,
    out_w: Array | None,
    out_b: Array | None,
) -> ConvGradients:
    """Gradients from the rows of the gradient of the result, their lines sorted as `_patches`."""
    dtype = np.result_type(x, w)
    sums: Array = 0
    taps = w.reshape(-1, *w.shape[2:]).transpose(0, 2, 1)
    patches = _patches(x, windows, dtype, pool) if need_w else repeat(None)
    dx = np.zeros((*windows.padded, x.shape[0], x.shape[3]), dtype, like=x) if need_x else None
    for row, (g_row, matrix) in enumerate(zip(g_rows, patches, strict=False)):
        if need_w:
            sums += np.matmul(matrix.T, _lines(g_row))
        if need_x:
            _scatter(np.matmul(_lines(g_row), taps), windows, row, pool, dx)
    return ConvGradients(
        unpad(dx, x, windows) if need_x else None,
        *(_weight_gradients(sums, w, out_w, out_b) if need_w else (None, None)),
    )


def _scatter(parts: Array, windows: Windows, row: int, pool: tuple[int, int], dx: Array) -> None:
    """Add to `dx` what one row of pools contributes; `parts` has a matrix for each tap."""
    (height, width), columns = pool, windows.count[1] // pool[1]
    parts = parts.reshape(len(parts), height, width, columns, *dx.shape[2:])
    for part, (p, q) in zip(parts, windows.positions, strict=True):
        for i in range(height):
            cells = windows.cells(dx, row * height + i, p, q)
            for j in range(width):
                cells[j::width] += part[i, j]


def _weight_gradients(
    sums: Array, w: Array, out_w: Array | None, out_b: Array | None
) -> tuple[Array, Array]:
    """Split the gradient of the lines that `_patches` has columns for."""
    num_lines = w.size // w.shape[3]
    parts = sums[:num_lines].reshape(w.shape), sums[num_lines]
    for part, out in zip(parts, (out_w, out_b), strict=True):
        if out is not None:
            out[...] = part
    return out_w if out_w is not None else parts[0], out_b if out_b is not None else parts[1]
