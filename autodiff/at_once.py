"""Convolution and pooling of all windows at once, for devices on which launches are what costs.

On the host images are gone through row by row, so that what a row touches stays in the cache. On a
GPU that would be some hundred short kernels. There a convolution is one matrix product, of a matrix
with a line for each window, which one copy of a view makes, and the filters. The way back to the
images is a convolution as well: of the gradient, with as many zeros between and around its elements
as it takes, by the filters turned round (Dumoulin and Visin, 2016, arXiv:1603.07285). That is what
a transposed convolution computes.

A pool takes each cell of all windows together, a strided slice of the whole batch (see `taps`), and
goes over several of them in one kernel.
"""

from __future__ import annotations

import functools
import math
import operator
from functools import partial
from typing import Any

import numpy as np

from .activations import relu
from .arithmetic import sum_of_rows
from .creation import filled
from .dense import finish_at_once, through_at_once
from .fusion import fused, library
from .higher_order import by_definition
from .indexing import place
from .linear_algebra import as_rows, product
from .tensor import Tensor, record
from .tensor_like import Array
from .windows import Windows, tap_index, taps

_CELLS = 16
"""The most cells that one kernel goes over: what a kernel takes for arguments is at most 4 KiB."""


def conv_at_once(
    windows: Windows, activation: str | None, x: Tensor, w: Tensor, *b: Tensor
) -> Tensor:
    """A convolution as one product of windows (a line for each) and filters, with bias and relu."""
    inputs, saved = (x, w, *b), (x.data, w.data, *[bias.data for bias in b])
    images, filters = x.data, w.data
    num_filters = filters.shape[-1]
    lines = _lines(_padded(images, windows), windows)
    y = product(lines, as_rows(filters))
    finish_at_once(activation, y, *saved[2:])

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(partial(by_taps, windows, activation), g, inputs, saved)
        g = through_at_once(activation, as_rows(g), y)
        gradients: list[Array | None] = [None] * len(inputs)
        if w.requires_grad:
            gradients[1] = _filters_gradient(lines, g, filters, outs[1])
        if b and b[0].requires_grad:
            gradients[2] = sum_of_rows(g, outs[2])
        if x.requires_grad:
            images_of_g = g.reshape(len(images), *windows.count, num_filters)
            gradients[0] = _inputs_gradient(images_of_g, filters, windows)
        return gradients

    return record(y.reshape(len(images), *windows.count, num_filters), inputs, vjp)


def by_taps(windows: Windows, activation: str | None, x: Tensor, w: Tensor, *b: Tensor) -> Any:
    """The convolution as a sum of products, one for each cell of the window."""
    parts = zip(taps(x, windows, 0), windows.positions, strict=True)
    y = functools.reduce(operator.add, (tap @ w[position] for tap, position in parts), *b)
    return relu(y) if activation else y


def conv_transpose_at_once(windows: Windows, x: Tensor, w: Tensor) -> Tensor:
    """What a convolution by `w` with these windows gives its inputs, for `x` as the gradient."""
    images, filters = x.data, w.data

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            define = partial(conv_transpose_by_taps, windows)
            return by_definition(define, g, (x, w), (images, filters))
        lines = _lines(_padded(g, windows), windows)
        gradients: list[Array | None] = [None, None]
        if x.requires_grad:
            gradients[0] = product(lines, as_rows(filters)).reshape(images.shape)
        if w.requires_grad:
            gradients[1] = _filters_gradient(lines, as_rows(images), filters, outs[1])
        return gradients

    return record(_inputs_gradient(images, filters, windows), (x, w), vjp)


def conv_transpose_by_taps(windows: Windows, x: Tensor, w: Tensor) -> Any:
    """The same as a sum, to which each cell of the window adds what it has read."""
    shape = (len(x.data), *windows.padded, w.data.shape[-2])
    whole: Any = sum(
        place(x @ w[position].T, tap_index(windows, position), shape)
        for position in windows.positions
    )
    return _without_padding(whole, windows)


def _padded(images: Array, windows: Windows, fill: float = 0) -> Array:
    if windows.padded == windows.image:
        return images
    shape = (len(images), *windows.padded, images.shape[-1])
    padded = filled(shape, fill, images.dtype, images)
    _without_padding(padded, windows)[...] = images
    return padded


def _without_padding(padded: Any, windows: Windows) -> Any:
    sides = zip(windows.pad_before, windows.image, strict=True)
    return padded[(slice(None), *[slice(before, before + n) for before, n in sides])]


def _lines(padded: Array, windows: Windows) -> Array:
    """(batch · windows, cells · channels): what each window sees; one copy, or a view of 1 x 1."""
    of_batch, *along, of_channels = padded.strides
    apart = [step * n for step, n in zip(windows.strides, along, strict=True)]
    within = [step * n for step, n in zip(windows.dilation, along, strict=True)]
    batch, channels = len(padded), padded.shape[-1]
    view = library(padded).lib.stride_tricks.as_strided(
        padded,
        (batch, *windows.count, *windows.size, channels),
        (of_batch, *apart, *within, of_channels),
    )
    return view.reshape(batch * math.prod(windows.count), math.prod(windows.size) * channels)


def _filters_gradient(lines: Array, g: Array, filters: Array, out: Array | None) -> Array:
    if out is None:
        return product(lines.T, g).reshape(filters.shape)
    product(lines.T, g, as_rows(out))
    return out


def _inputs_gradient(g: Array, filters: Array, windows: Windows) -> Array:
    """(batch, lengths…, channels): the convolution by the filters turned round, of `g` spread."""
    axes = range(len(windows.size))
    turned = filters[(*[slice(None, None, -1) for _ in axes],)].swapaxes(-1, -2)
    lines = _lines(_spread(g, windows), _back(windows))
    return product(lines, as_rows(turned)).reshape(len(g), *windows.image, filters.shape[-2])


def _spread(values: Array, windows: Windows, fill: float = 0) -> Array:
    """What each window has, at its place, so that `_back` windows see the windows of each cell."""
    ndim = len(windows.size)
    reach = [(n - 1) * step for n, step in zip(windows.size, windows.dilation, strict=True)]
    if not any(reach) and windows.strides == (1,) * ndim and windows.count == windows.image:
        return values
    lengths = [n + more for n, more in zip(windows.image, reach, strict=True)]
    spread = filled((len(values), *lengths, values.shape[-1]), fill, values.dtype, values)
    first = [more - before for more, before in zip(reach, windows.pad_before, strict=True)]
    axes = zip(first, windows.strides, windows.count, strict=True)
    places = [slice(start, start + step * (n - 1) + 1, step) for start, step, n in axes]
    spread[(slice(None), *places)] = values
    return spread


@functools.lru_cache(maxsize=256)
def _back(windows: Windows) -> Windows:
    """Windows over what `_spread` gives: one for each cell of the image."""
    ones = (1,) * len(windows.size)
    zeros = (0,) * len(windows.size)
    reach = [(n - 1) * step for n, step in zip(windows.size, windows.dilation, strict=True)]
    lengths = tuple([n + more for n, more in zip(windows.image, reach, strict=True)])
    return Windows(windows.size, ones, windows.dilation, lengths, windows.image, zeros, zeros)


def max_pool_at_once(windows: Windows, x: Tensor, marks: np.dtype) -> Tensor:
    """The maximum over each window; its first cell gets the gradient.

    Args:
        windows: Where the windows lie.
        x: (batch, axes…, channels).
        marks: An integer type for positions within a window and one mark for "none".
    """
    images = x.data
    padded = _padded(images, windows, -np.inf)
    cells = [padded[tap_index(windows, position)] for position in windows.positions]
    y, winner = cells[0], np.zeros(cells[0].shape, marks, like=images)
    for first in range(0, len(cells), _CELLS):
        y, winner = fused(partial(_best, first), y, winner, *cells[first : first + _CELLS])

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(partial(_of_winners, windows, winner), g, (x,), (images,))
        return (_to_winners(g, winner, windows),)

    return record(y, (x,), vjp)


def _best(first: int, best: Any, winner: Any, *cells: Any) -> tuple[Any, Any]:
    for number, cell in enumerate(cells, first):
        winner = np.where(cell > best, number, winner)
        best = np.maximum(best, cell)
    return best, winner


def _of_winners(windows: Windows, winner: Array, x: Tensor) -> Any:
    chosen = winner.astype(np.intp)[None]
    return np.take_along_axis(np.stack(taps(x, windows, -np.inf)), chosen, 0)[0]


def _to_winners(g: Array, winner: Array, windows: Windows) -> Array:
    """The gradient of the images: that of each window at the cell that won."""
    shape = (len(g), *windows.image, g.shape[-1])
    if windows.tile and windows.padded == windows.image:
        dx = np.empty(shape, g.dtype, like=g)
        cells = [dx[tap_index(windows, position)] for position in windows.positions]
        for first in range(0, len(cells), _CELLS):
            fused(partial(_put, first), g, winner, *cells[first : first + _CELLS])
        return dx
    dx = np.zeros(shape, g.dtype, like=g)
    back = _back(windows)
    spread, marks = _spread(g, windows), _spread(winner, windows, len(windows.positions))
    # The windows that see a cell of the image first are those whose last cell it is.
    at = [tap_index(back, position) for position in reversed(back.positions)]
    for first in range(0, len(at), _CELLS // 2):
        some = at[first : first + _CELLS // 2]
        pairs = [array[place] for place in some for array in (spread, marks)]
        fused(partial(_add, first), dx, *pairs)
    return dx


def _put(first: int, g: Any, winner: Any, *cells: Any) -> None:
    for number, cell in enumerate(cells, first):
        cell[...] = np.where(winner == number, g, 0)


def _add(first: int, dx: Any, *pairs: Any) -> None:
    for number, (g, winner) in enumerate(zip(pairs[::2], pairs[1::2], strict=True), first):
        dx += np.where(winner == number, g, 0)


def avg_pool_at_once(windows: Windows, x: Tensor) -> Any:
    """The mean over each window, whose padded cells do not count."""
    total = functools.reduce(np.add, taps(x, windows, 0))
    if windows.padded == windows.image:
        return total * (1 / len(windows.positions))
    is_real = filled((1, *windows.image, 1), 1, x.data.dtype, x.data)
    return total / functools.reduce(np.add, taps(is_real, windows, 0))
