"""Convolution of images, alone and in one with relu and max-pool.

A row of output is one matrix product: patches (one line for each position of each example) times
weights. Patches are gathered anew for each row, in forward and in backward, into a buffer that
stays in the processor's cache; to keep them would take kernel-size times the memory of the input.
A column of ones among the patches makes the bias one more line of the weights.

Backward goes by the same rows. With P the patches of a row and G its gradient, the weights get
Pᵀ G, whose line of the ones is the gradient of the bias. The inputs get G wᵀ for the weights w of
each tap (cell of the window), added to the cell of the image that this tap has read.

Where a max-pool follows, a row is a row of pools, and its lines are sorted by the cell of the pool
to which they belong, so that the pool is a maximum of contiguous blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np

from .numerics import keep_where
from .pooling import mark_where, max_of_scratch_cells, to_winner, winner_dtype
from .tensor import Tensor, lift_array, record
from .tensor_like import Array
from .windows import Windows, batch_first, contiguous, height_first, pad, pair, place_windows, unpad

_FEW_CHANNELS = 4


def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    strides: int | Sequence[int] = (1, 1),
    padding: str = "valid",
    activation: str | None = None,
) -> Tensor:
    """Convolve images with a bank of filters (cross-correlation, as in all of deep learning).

    Args:
        x: (batch, height, width, channels).
        w: (height, width, channels, filters).
        b: (filters,), or None.
        strides: Vertical and horizontal distance of windows, or one number for both.
        padding: 'valid', or 'same' as TensorFlow pads.
        activation: 'relu', done in place on the result, or None.

    Returns:
        (batch, rows, columns, filters).
    """
    inputs = _checked(x, w, b)
    if activation not in (None, "relu"):
        raise ValueError(f"activation must be 'relu' or None, got {activation!r}")
    images, filters, *bias = [tensor.data for tensor in inputs]
    windows = place_windows(images, filters.shape[:2], pair(strides), padding)
    weights = _as_matrix(images, filters, *bias)
    y = np.empty((*windows.count, len(images), filters.shape[3]), weights.dtype, like=images)
    zeros = np.zeros_like(y[0])
    for y_row, patches in zip(y, _patches(images, windows, weights.dtype), strict=True):
        np.matmul(patches[:, : len(weights)], weights, out=_lines(y_row))
        if activation:
            np.maximum(y_row, zeros, out=y_row)  # four times faster than with the number 0

    def vjp(g: Array, outs: Any) -> Any:
        g_rows = _rows_through_relu(g, y) if activation else map(contiguous, height_first(g))
        return _gradients(g_rows, inputs, windows, (1, 1), outs)

    return record(batch_first(y), inputs, vjp)


def conv2d_relu_max_pool2d(
    x: Any,
    w: Any,
    b: Any = None,
    strides: int | Sequence[int] = (1, 1),
    padding: str = "valid",
    pool_size: int | Sequence[int] = (2, 2),
) -> Tensor:
    """`conv2d(..., activation='relu')` and a max-pool without overlap, faster than the two apart.

    Args:
        x: (batch, height, width, channels).
        w: (height, width, channels, filters).
        b: (filters,), or None.
        strides: Vertical and horizontal distance of the convolution's windows.
        padding: Of the convolution: 'valid' or 'same'.
        pool_size: Height and width of a pool, and the distance of pools.

    Returns:
        (batch, rows, columns, filters).
    """
    inputs = _checked(x, w, b)
    images, filters, *bias = [tensor.data for tensor in inputs]
    pool = pair(pool_size)
    windows = _cropped(place_windows(images, filters.shape[:2], pair(strides), padding), pool)
    weights = _as_matrix(images, filters)
    rows, columns = windows.count[0] // pool[0], windows.count[1] // pool[1]
    y = np.empty((rows, columns, len(images), filters.shape[3]), weights.dtype, like=images)
    cells = np.empty((pool[0] * pool[1], *y.shape[1:]), y.dtype, like=images)
    winner = np.empty(y.shape, winner_dtype(pool), like=images)
    # Bias and relu rise with their argument and are the same for all cells of a pool. So they come
    # after the maximum, on a quarter of the elements, and the unpooled image never exists whole.
    # As whole rows they are added and compared several times faster than broadcast.
    bias_row, zeros = np.zeros_like(y[0]), np.zeros_like(y[0])
    if bias:
        bias_row[...] = bias[0]
    for row, patches in enumerate(_patches(images, windows, weights.dtype, pool)):
        np.matmul(patches[:, : len(weights)], weights, out=_lines(cells))
        max_of_scratch_cells(cells, y[row], winner[row])
        np.add(y[row], bias_row, out=y[row])
        np.maximum(y[row], zeros, out=y[row])
        # Where relu let nothing through, no cell gets a gradient: none has this number.
        mark_where(y[row] <= 0, len(cells), winner[row])

    def vjp(g: Array, outs: Any) -> Any:
        return _gradients(_rows_through_pool(g, pool, winner), inputs, windows, pool, outs)

    return record(batch_first(y), inputs, vjp)


def _checked(x: Any, w: Any, b: Any) -> tuple[Tensor, ...]:
    """The inputs as tensors of shapes that go together."""
    inputs = tuple(lift_array(value) for value in ((x, w) if b is None else (x, w, b)))
    images, filters, *bias = [tensor.data.shape for tensor in inputs]
    if len(filters) != 4 or len(images) != 4 or filters[2] != images[3]:
        raise ValueError(
            f"x must have shape (batch, height, width, channels) and w (height, width, channels, "
            f"filters) with the same number of channels, got {tuple(images)} and {tuple(filters)}"
        )
    if bias and bias[0] != filters[3:]:
        raise ValueError(
            f"b must have one element for each filter, shape {tuple(filters[3:])}, "
            f"got shape {tuple(bias[0])}"
        )
    return inputs


def _lines(row: Array) -> Array:
    """One row of an image (columns, batch, channels) as a matrix with a line for each position."""
    return row.reshape(math.prod(row.shape[:-1]), row.shape[-1])


def _as_matrix(images: Array, filters: Array, *bias: Array) -> Array:
    """The weights as a matrix in the dtype of the result, the bias (if given) as its last line."""
    weights = filters.reshape(-1, filters.shape[3])
    if bias:
        weights = np.concatenate([weights, bias[0][np.newaxis]])
    return weights.astype(np.result_type(images, filters), copy=False)


def _patches(
    x: Array, windows: Windows, dtype: np.dtype, pool: tuple[int, int] = (1, 1)
) -> Iterator[Array]:
    """For each row of pools the matrix of the patches of its windows; all of them in one buffer.

    The matrix has a line for each cell of a pool, column of pools, and example, in this order. Its
    columns are the inputs of a patch, ones, and zeros up to a multiple of four, the unit of the
    matrix product's inner kernel.
    """
    batch, channels = x.shape[0], x.shape[3]
    padded = pad(x, windows, 0, dtype)
    num_inputs = windows.size[0] * windows.size[1] * channels
    shape = (num_inputs + 4 - num_inputs % 4, pool[0] * windows.count[1] * batch)
    if channels <= _FEW_CHANNELS:
        # Runs of so few numbers are slow to copy. With the channels outermost in the image and the
        # matrix ordered column by column, a column is a few copies as long as the batch.
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


def _rows_through_relu(g: Array, y: Array) -> Iterator[Array]:
    g_rows = height_first(g)
    buffer = np.empty(g_rows.shape[1:], g.dtype, like=g)
    for g_row, y_row in zip(g_rows, y, strict=True):
        yield keep_where(g_row, y_row > 0, out=buffer)


def _rows_through_pool(g: Array, pool: tuple[int, int], winner: Array) -> Iterator[Array]:
    cells = np.empty((pool[0] * pool[1], *winner.shape[1:]), g.dtype, like=g)
    for g_row, winner_row in zip(height_first(g), winner, strict=True):
        to_winner(contiguous(g_row), winner_row, cells)
        yield cells


def _cropped(windows: Windows, pool_size: tuple[int, int]) -> Windows:
    """The windows without the last rows and columns that no pool takes in."""
    (rows, columns), (height, width) = windows.count, pool_size
    if not (0 < height <= rows and 0 < width <= columns):
        raise ValueError(
            f"pool_size {pool_size} must be at least 1 and fit into the convolution's "
            f"{rows} x {columns} results"
        )
    return replace(windows, count=(rows - rows % height, columns - columns % width))


def _gradients(
    g_rows: Iterator[Array],
    inputs: tuple[Tensor, ...],
    windows: Windows,
    pool: tuple[int, int],
    outs: Sequence[Array | None],
) -> list[Array | None]:
    """Gradients of `inputs` from the rows of that of the result, their lines as in `_patches`."""
    x, w = inputs[0].data, inputs[1].data
    need_x, need_w = inputs[0].requires_grad, any(t.requires_grad for t in inputs[1:])
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
    gradients = [unpad(dx, x, windows) if need_x else None]
    return gradients + (_parameters(sums, w, outs[1:]) if need_w else [None] * len(outs[1:]))


def _scatter(parts: Array, windows: Windows, row: int, pool: tuple[int, int], dx: Array) -> None:
    """Add to `dx` what one row of pools contributes; `parts` has a matrix for each tap.

    Windows overlap, so that the taps of one row meet in the same cells of the image: they are added
    one tap after the other, each to cells that are all different.
    """
    (height, width), columns = pool, windows.count[1] // pool[1]
    parts = parts.reshape(len(parts), height, width, columns, *dx.shape[2:])
    for part, (p, q) in zip(parts, windows.positions, strict=True):
        for i in range(height):
            cells = windows.cells(dx, row * height + i, p, q)
            for j in range(width):
                cells[j::width] += part[i, j]


def _parameters(sums: Array, w: Array, outs: Sequence[Array | None]) -> list[Array | None]:
    """The gradients of the weights, and of the bias if there is one, from the lines of `sums`."""
    num_lines = w.size // w.shape[3]
    parts = [sums[:num_lines].reshape(w.shape), sums[num_lines]]
    gradients: list[Array | None] = []
    for part, out in zip(parts, outs, strict=False):
        if out is not None:
            out[...] = part
        gradients.append(part if out is None else out)
    return gradients
