"""Convolution of images of any number of spatial axes, alone and in one with relu and max-pool.

A row of output is one matrix product: patches (one line for each position of each example) times
weights. Patches are gathered row by row (`patches.py`), in forward and again in backward; to keep
them would take kernel-size times the memory of the input. A column of ones among the patches makes
the bias one more line of the weights.

Backward goes by the same rows. With P the patches of a row and G its gradient, the weights get
Pᵀ G, whose line of the ones is the gradient of the bias. The inputs get the convolution of G by the
weights turned round; where windows are further apart than one cell, or a pool follows, G wᵀ for the
weights w of each tap (cell of the window), added to the cell of the image that this tap has read.

Where a max-pool follows, a row is a row of pools, and its lines are sorted by the cell of the pool
to which they belong, so that the pool is a maximum of contiguous blocks.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import repeat
from typing import Any

import numpy as np

from .at_once import by_taps, conv_at_once
from .direct_convolution import conv_relu_max
from .higher_order import by_definition
from .joining import concatenate, split
from .numerics import keep_positive
from .patches import (
    add_turn,
    arranged,
    blank_images,
    patches,
    sum_of_turns,
    turns_of,
    worth_keeping,
)
from .pooled_rows import relu_max_rows, winner_rows
from .pooling import max_pool2d, winner_dtype
from .tensor import Tensor, lift_array, record
from .tensor_like import Array
from .windows import (
    Index,
    Windows,
    axes_first,
    batch_first,
    check_images,
    contiguous,
    copy_runs,
    each_axis,
    in_memory_order_of,
    inside,
    num_spatial_axes,
    place_windows,
    unpad,
)


def conv(
    x: Any,
    w: Any,
    b: Any = None,
    strides: int | Sequence[int] = 1,
    padding: str = "valid",
    activation: str | None = None,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Tensor:
    """Convolve images with a bank of filters (cross-correlation, as in all of deep learning).

    Args:
        x: (batch, axes…, channels), with one to three spatial axes.
        w: (lengths…, channels / groups, filters).
        b: (filters,), or None.
        strides: The distance of windows along each axis, or one number for all.
        padding: 'valid', 'same' as TensorFlow pads, or 'causal' (before each axis only).
        activation: 'relu', done in place on the result, or None.
        dilation: The distance of a window's cells along each axis, or one number for all.
        groups: How many groups of channels there are, each with filters of its own.

    Returns:
        (batch, counts…, filters).
    """
    inputs = _checked(x, w, b, groups)
    if activation not in (None, "relu"):
        raise ValueError(f"activation must be 'relu' or None, got {activation!r}")
    if groups > 1:
        parts = zip(*(split(part, groups, axis=-1) for part in inputs), strict=True)
        options = strides, padding, activation, dilation
        return concatenate([_of_one_group(part, *options) for part in parts], axis=-1)
    return _of_one_group(inputs, strides, padding, activation, dilation)


def _of_one_group(
    inputs: tuple[Tensor, ...],
    strides: int | Sequence[int],
    padding: str,
    activation: str | None,
    dilation: int | Sequence[int],
) -> Tensor:
    saved = tuple([tensor.data for tensor in inputs])
    images, filters, *bias = saved
    windows = _placed(images, filters, strides, padding, dilation)
    if not isinstance(images, np.ndarray):
        return conv_at_once(windows, activation, *inputs)
    weights = _as_matrix(images, filters, *bias)
    no_pool = (1,) * len(windows.size)
    image = arranged(images, windows, weights.dtype)
    kept = worth_keeping(image)
    y = np.empty((*windows.count, len(images), filters.shape[-1]), weights.dtype, like=images)
    zeros = np.zeros_like(y[windows.rows[0]])
    for row in _products(image, weights, windows, y):
        if activation:
            np.maximum(y[row], zeros, out=y[row])  # four times faster than with the number 0

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            define = functools.partial(by_taps, windows, activation)
            return by_definition(define, g, inputs, saved)
        g_rows = _rows_through_relu(g, y) if activation else rows_of(g)
        return _gradients(g_rows, inputs, kept, windows, no_pool, outs)

    return record(batch_first(y), inputs, vjp)


def conv2d(
    x: Any,
    w: Any,
    b: Any = None,
    strides: int | Sequence[int] = (1, 1),
    padding: str = "valid",
    activation: str | None = None,
) -> Tensor:
    """`conv` of images (batch, height, width, channels)."""
    x = lift_array(x)
    check_images(x.data, 2)
    return conv(x, w, b, strides, padding, activation)


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
    saved = tuple([tensor.data for tensor in inputs])
    images, filters, *bias = saved
    check_images(images, 2)
    pool = each_axis(pool_size, 2)
    windows = _cropped(_placed(images, filters, strides, padding, 1), pool)
    if not isinstance(images, np.ndarray):
        return max_pool2d(_of_one_group(inputs, strides, padding, "relu", 1), pool)
    weights = _as_matrix(images, filters)
    biases = np.zeros(weights.shape[1], weights.dtype, like=images)
    if bias:
        biases[...] = bias[0]
    need_x = inputs[0].requires_grad
    direct = None if need_x else conv_relu_max(images, weights, biases, windows, pool)
    if direct is not None:
        y, sums_of = direct
    else:
        y, winner, kept = _pooled_by_rows(images, weights, biases, windows, pool)

    def in_two_steps(x: Tensor, w: Tensor, b: Any = None) -> Tensor:
        return max_pool2d(conv2d(x, w, b, strides, padding, "relu"), pool)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(in_two_steps, g, inputs, saved)
        if direct is not None:
            return [None, *_parameters(sums_of(g), filters, outs[1:])]
        return _gradients(_rows_through_pool(g, pool, winner), inputs, kept, windows, pool, outs)

    return record(y, inputs, vjp)


def _pooled_by_rows(
    images: Array, weights: Array, bias: Array, windows: Windows, pool: Index
) -> tuple[Array, Array, Array | None]:
    """relu(maximum + bias) of the pools, the cells that have it, and what is kept of the images."""
    rows, columns = windows.count[0] // pool[0], windows.count[1] // pool[1]
    y = np.empty((len(images), rows, columns, len(bias)), weights.dtype, like=images)
    cells = np.empty((math.prod(pool), columns, len(y), len(bias)), y.dtype, like=images)
    winner = np.empty((rows, *cells.shape[1:]), winner_dtype(pool), like=images)
    pool_row = relu_max_rows(cells, bias, y, winner)
    products = lines(cells)
    image = arranged(images, windows, weights.dtype)
    turned = turns_of(weights, windows, pool, image.shape[-1])
    for row, (of_row, turn) in enumerate(patches(image, windows, pool)):
        np.matmul(of_row[:, : len(weights)], turned[turn], out=products)
        pool_row(row)
    return y, winner, worth_keeping(image)


def _products(image: Array, weights: Array, windows: Windows, y: Array) -> Iterator[Index]:
    """Fill `y` (counts…, batch, filters) with a convolution; yields each row when it is there."""
    no_pool = (1,) * len(windows.size)
    turned = turns_of(weights, windows, no_pool, image.shape[-1])
    of_rows = patches(image, windows, no_pool)
    for row, (of_row, turn) in zip(windows.rows, of_rows, strict=True):
        np.matmul(of_row[:, : len(weights)], turned[turn], out=lines(y[row]))
        yield row


def _checked(x: Any, w: Any, b: Any, groups: int = 1) -> tuple[Tensor, ...]:
    """The inputs as tensors of shapes that go together."""
    inputs = tuple(lift_array(value) for value in ((x, w) if b is None else (x, w, b)))
    images, filters, *bias = [tensor.data.shape for tensor in inputs]
    if groups < 1 or images[-1] % groups or filters[-1] % groups:
        raise ValueError(
            f"{images[-1]} channels and {filters[-1]} filters cannot be split into {groups} groups"
        )
    fits = len(images) == len(filters) and filters[-2] * groups == images[-1]
    num_spatial_axes(inputs[0].data)
    if not fits:
        raise ValueError(
            f"x must have shape (batch, axes…, channels) and w (lengths…, channels, filters) with "
            f"as many axes and the same number of channels (of each group), got {tuple(images)} "
            f"and {tuple(filters)}"
        )
    if bias and bias[0] != filters[-1:]:
        raise ValueError(
            f"b must have one element for each filter, shape {tuple(filters[-1:])}, "
            f"got shape {tuple(bias[0])}"
        )
    return inputs


def _placed(images: Array, filters: Array, strides: Any, padding: str, dilation: Any) -> Windows:
    ndim = images.ndim - 2
    distances = each_axis(strides, ndim), padding, each_axis(dilation, ndim)
    return place_windows(images.shape[1:-1], filters.shape[:-2], *distances)


def lines(row: Array) -> Array:
    """One row of an image (columns, batch, channels) as a matrix with a line for each position."""
    return row.reshape(math.prod(row.shape[:-1]), row.shape[-1])


def rows_of(g: Array) -> Iterator[Array]:
    """The rows of an image (batch, axes…, channels), each contiguous."""
    flat = axes_first(g)
    return (contiguous(flat[row]) for row in np.ndindex(flat.shape[:-3]))


def _as_matrix(images: Array, filters: Array, *bias: Array) -> Array:
    """The weights as a matrix in the dtype of the result, the bias (if given) as its last line."""
    weights = lines(filters)
    if bias:
        weights = np.concatenate([weights, bias[0][np.newaxis]])
    return weights.astype(np.result_type(images, filters), copy=False)


def _rows_through_relu(g: Array, y: Array) -> Iterator[Array]:
    for g_row, row in zip(rows_of(g), np.ndindex(y.shape[:-3]), strict=True):
        yield keep_positive(g_row, y[row], out=g_row)


def _rows_through_pool(g: Array, pool: Index, winner: Array) -> Iterator[Array]:
    g = contiguous(g)
    cells = np.empty((pool[0] * pool[1], *winner.shape[1:]), g.dtype, like=g)
    spread_row = winner_rows(cells, g, winner)
    for row in range(len(winner)):
        spread_row(row)
        yield cells


@functools.lru_cache(maxsize=256)
def _cropped(windows: Windows, pool_size: Index) -> Windows:
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
    kept: Array | None,
    windows: Windows,
    pool: Index,
    outs: Sequence[Array | None],
) -> list[Array | None]:
    """Gradients of `inputs` from the rows of that of the result, their lines as in `patches`."""
    x, w = inputs[0].data, inputs[1].data
    need_x, need_w = inputs[0].requires_grad, any(t.requires_grad for t in inputs[1:])
    dtype = np.result_type(x, w)
    of_rows: Iterator[tuple[Array, int]] = repeat((w, 0))
    if need_w:
        of_rows = patches(arranged(x, windows, dtype) if kept is None else kept, windows, pool)
    sums: dict[int, Array] = {}
    add, finish = _way_back(x, w, windows, pool, dtype) if need_x else (None, None)
    rows_of_pools = np.ndindex(*(n // m for n, m in zip(windows.count[:-1], pool, strict=False)))
    for row, g_row, (matrix, turn) in zip(rows_of_pools, g_rows, of_rows, strict=False):
        if need_w:
            product = _product_over_lines(matrix, lines(g_row))
            add_turn(sums, turn, product)
        if add is not None:
            add(row, g_row)
    gradients = [None if finish is None else finish()]
    if not need_w:
        return gradients + [None] * len(outs[1:])
    return gradients + _parameters(sum_of_turns(sums, windows, x.shape[-1]), w, outs[1:])


def _way_back(
    x: Array, w: Array, windows: Windows, pool: Index, dtype: np.dtype
) -> tuple[Callable[[Index, Array], None], Callable[[], Array]]:
    """The way from the result's gradient to that of the images.

    Returns:
        What takes each row of pools, with its index, and what gives the gradient after the last.
    """
    if len(windows.positions) == 1 or max(*windows.strides, *pool) > 1:
        taps = as_taps(w)
        dx = np.zeros((*windows.padded, len(x), x.shape[-1]), dtype)

        def scatter_row(row: Index, g_row: Array) -> None:
            scatter(np.matmul(lines(g_row), taps), windows, row, pool, dx)

        return scatter_row, lambda: unpad(dx, x, windows)

    # A convolution of the gradient, by the filters turned round and from filters to channels.
    back = windows.backwards
    image = blank_images(back, len(x), w.shape[-1], dtype)
    rows = inside(image, back)

    def place_row(row: Index, g_row: Array) -> None:
        copy_runs(g_row, rows[row])

    def convolve() -> Array:
        spatial = tuple(range(w.ndim - 2))
        turned_round = lines(np.flip(w, spatial).swapaxes(-1, -2)).astype(dtype, copy=False)
        dx = np.empty((*windows.image, len(x), x.shape[-1]), dtype)
        for _ in _products(image, turned_round, back, dx):
            pass
        return in_memory_order_of(x, batch_first(dx))

    return place_row, convolve


def _product_over_lines(a: Array, b: Array) -> Array:
    """`a.T @ b`, perhaps as a sum of a few products of fewer lines.

    Up to a million multiplications OpenBLAS has kernels that do not copy their operands first (on
    processors with AVX-512); with so few columns they take half of the time.
    """
    num_parts = max(1, -(-a.size * b.shape[1] // 10**6))
    if num_parts == 1 or num_parts > 4 or not isinstance(a, np.ndarray):
        return np.matmul(a.T, b)
    step = -(-len(a) // num_parts)
    parts = [slice(start, start + step) for start in range(0, len(a), step)]
    return functools.reduce(operator.iadd, [np.matmul(a[part].T, b[part]) for part in parts])


def as_taps(w: Array) -> Array:
    """For each cell of a window the matrix that carries filters back to channels."""
    return w.reshape(math.prod(w.shape[:-2]), *w.shape[-2:]).transpose(0, 2, 1)


def scatter(parts: Array, windows: Windows, row: Index, pool: Index, dx: Array) -> None:
    """Add to `dx` what one row of pools contributes; `parts` has a matrix for each tap.

    Windows overlap, so that the taps of one row meet in the same cells of the image: they are added
    one tap after the other, each to cells that are all different.
    """
    *lead, last = pool
    parts = parts.reshape(len(parts), *pool, windows.count[-1] // last, *dx.shape[-2:])
    first = [n * m for n, m in zip(row, lead, strict=True)]
    for part, position in zip(parts, windows.positions, strict=True):
        for cell in np.ndindex(*lead):
            own_row = tuple([n + m for n, m in zip(first, cell, strict=True)])
            cells = windows.cells(dx, own_row, position)
            for j in range(last):
                cells[j::last] += part[(*cell, j)]


def _parameters(sums: Array, w: Array, outs: Sequence[Array | None]) -> list[Array | None]:
    """The gradients of the weights, and of the bias if there is one, from the lines of `sums`."""
    num_lines = math.prod(w.shape[:-1])
    parts = [sums[:num_lines].reshape(w.shape), sums[num_lines]]
    gradients: list[Array | None] = []
    for part, out in zip(parts, outs, strict=False):
        if out is not None:
            out[...] = part
        gradients.append(part if out is None else out)
    return gradients
