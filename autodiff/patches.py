"""The patches of images that a convolution multiplies, a row of windows at a time.

A patch is what one window sees. The patches of a row lie in one matrix, with a line for each window
of each example, in a buffer that stays in the processor's cache. Of three rows of the image that a
row of patches reads, the next one reads two again: they stay where they are in the buffer, and the
weights are turned to fit.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Iterator

import numpy as np

from .tensor_like import Array
from .windows import Index, Windows, axes_first, copy_runs, inside, pad

_FEW_CHANNELS = 4


def arranged(x: Array, windows: Windows, dtype: np.dtype) -> Array:
    """The images as `patches` takes them: a padded view (axes…, batch, channels)."""
    batch, channels = x.shape[0], x.shape[-1]
    if channels > _FEW_CHANNELS:
        return pad(x, windows, 0, dtype)
    image = blank_images(windows, batch, channels, dtype)
    inside(image, windows)[...] = axes_first(x)
    return image


def blank_images(windows: Windows, batch: int, channels: int, dtype: np.dtype) -> Array:
    """Padded images of zeros, laid out as `patches` takes them."""
    if channels > _FEW_CHANNELS:
        return np.zeros((*windows.padded, batch, channels), dtype)
    # Runs of so few numbers are slow to copy: the channels lie outermost.
    return np.moveaxis(np.zeros((channels, *windows.padded, batch), dtype), 0, -1)


def worth_keeping(image: Array) -> Array | None:
    """The arranged image, for backward, if it is small beside the results; else None."""
    return image if image.shape[-1] <= _FEW_CHANNELS else None


def patches(image: Array, windows: Windows, pool: Index) -> Iterator[tuple[Array, int]]:
    """For each row of pools the matrix of the patches of its windows; all of them in one buffer.

    The matrix has a line for each cell of a pool, column of pools, and example, in this order. Its
    columns are the inputs of a patch, ones, and zeros up to a multiple of four, the unit of the
    matrix product's inner kernel.

    Rows of windows overlap, so that most of what a row of patches holds is in the one before: it
    stays where it is, and what is new is written over what is no longer needed. The rows of a patch
    are then in another order, turned by a number that is yielded with the matrix; `turns_of` has
    the weights in this order.

    Args:
        image: What `arranged` gives.
        windows: Where the windows lie.
        pool: The lengths of a pool.
    """
    batch, channels = image.shape[-2:]
    num_inputs = math.prod(windows.size) * channels
    num_lines = math.prod(pool[:-1]) * windows.count[-1] * batch
    shape = (num_inputs + 4 - num_inputs % 4, num_lines)
    if channels <= _FEW_CHANNELS:  # column by column: each is a few copies as long as the batch
        matrix, copy = np.zeros(shape, image.dtype, like=image).T, _assign
    else:
        matrix, copy = np.zeros(shape[::-1], image.dtype, like=image), copy_runs
    by_cell = _by_cell_of_pool(windows.view(image), windows.count, pool)
    num_rows = len(pool) - 1
    matrix[:, num_inputs] = 1
    filled = matrix[:, :num_inputs].reshape(by_cell.shape[num_rows:])
    step = _step(windows, pool)
    for row in np.ndindex(by_cell.shape[:num_rows]):
        if step == 0 or row[-1] == 0:
            copy(by_cell[row], filled)
            yield matrix, 0
            continue
        size = windows.size[-2]
        turn = row[-1] * step % size
        for new in range(size - step, size):
            copy(by_cell[row][..., new, :, :], filled[..., (turn + new) % size, :, :])
        yield matrix, turn


def _step(windows: Windows, pool: Index) -> int:
    """The number of rows of the image that are new in each row of patches; 0 if all are copied.

    With a pool of two rows a third of them would be old: turning the weights costs as much.
    """
    if len(pool) == 1 or pool[-2] > 1 or windows.dilation[-2] > 1:
        return 0
    return windows.strides[-2] if windows.strides[-2] < windows.size[-2] else 0


def turns_of(weights: Array, windows: Windows, pool: Index, num_channels: int) -> list[Array]:
    """The weights, a line for each input of a patch, for each turn of the patch's rows."""
    if not _step(windows, pool):
        return [weights]
    return [turn_rows(weights, windows, num_channels, turn) for turn in range(windows.size[-2])]


def turn_rows(weights: Array, windows: Windows, num_channels: int, turn: int) -> Array:
    """Weights for patches whose rows are turned; lines behind those of the inputs stay there."""
    if turn == 0:
        return weights
    num_inputs = math.prod(windows.size) * num_channels
    by_cell = weights[:num_inputs].reshape(*windows.size, num_channels, -1)
    result = weights.copy()
    result[:num_inputs] = np.roll(by_cell, turn, len(windows.size) - 2).reshape(num_inputs, -1)
    return result


def add_turn(sums: dict[int, Array], turn: int, product: Array) -> None:
    """Add gradients of weights to those that were found by patches of the same turn."""
    if turn in sums:
        sums[turn] += product
    else:
        sums[turn] = product


def sum_of_turns(sums: dict[int, Array], windows: Windows, num_channels: int) -> Array:
    """The sum of gradients of weights, found by patches of different turns, in their own order."""
    in_order = [turn_rows(part, windows, num_channels, -turn) for turn, part in sums.items()]
    return functools.reduce(operator.iadd, in_order)


def _assign(source: Array, target: Array) -> None:
    target[...] = source


def _by_cell_of_pool(by_window: Array, count: Index, pool: Index) -> Array:
    """(*count, batch, *size, channels) as (rows of pools…, *pool, columns of pools, batch, …)."""
    ndim = len(count)
    apart = [n for pair in zip(count, pool, strict=True) for n in (pair[0] // pair[1], pair[1])]
    by_pool = by_window.reshape(*apart, *by_window.shape[ndim:])
    order = [*range(0, 2 * ndim - 2, 2), *range(1, 2 * ndim, 2), 2 * ndim - 2]
    return by_pool.transpose(*order, *range(2 * ndim, by_pool.ndim))
