"""Convolution with bias, relu and max-pool in one compiled pass, where a pool takes few products.

A matrix product of nine weights, as in the first layer of images of one channel, spends more time
on what surrounds it than on multiplying: gathering patches, writing the cells of all pools and
reading them again. Here the sums of a pool stay in registers from the first product to the maximum,
for as many filters at a time as a vector register holds. The images lie as the user sees them. All
of it is one call that does not hold the GIL, so that replicas of one process do not wait for each
other.

Forward gives the numbers of the matrix product, as each sum has its order. The gradients of weights
are sums over all pools, in another order than those of the product: they differ in the last digits.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..kernels import compiled_loop
from .tensor_like import Array
from .windows import Index, Windows

_MOST_PRODUCTS = 36
"""Of a pool, as of nine weights and four cells: more than that the compiler does not write out."""
_LANES = 8
"""Filters are taken so many at a time, and at least twice."""


def conv_relu_max(
    images: Array, weights: Array, bias: Array, windows: Windows, pool: Index
) -> tuple[Array, Callable[[Array], Array]] | None:
    """relu(maximum over pools of the convolution + bias); None: no loop does it.

    Args:
        images: (batch, height, width, channels).
        weights: (height * width * channels of a window, filters), of the result's dtype.
        bias: (filters,), likewise.
        windows: Where the windows lie, no more than there are cells in all pools.
        pool: Height and width of a pool.

    Returns:
        The result (batch, rows, columns, filters), and the function that takes its gradient to that
        of the weights, with that of the bias as one more line.
    """
    few = len(weights) * math.prod(pool) <= _MOST_PRODUCTS
    if not few or len(bias) < 2 * _LANES or len(bias) % _LANES:
        return None
    counts = [n // m for n, m in zip(windows.count, pool, strict=True)]
    y = np.empty((len(images), *counts, len(bias)), weights.dtype)
    constants = (*windows.size, images.shape[3], *windows.strides, *pool, len(bias))
    forward = compiled_loop("conv_relu_max", y, bias, constants=constants)
    backward = compiled_loop("conv_from_winner", y, bias, bias, constants=constants)
    if forward is None or backward is None:
        return None
    source = _padded(images, windows, y.dtype)
    winner = np.empty(y.shape, np.uint8)
    forward(y, source, np.ascontiguousarray(weights).reshape(-1), bias, winner)

    def sums_of(g: Array) -> Array:
        sums, part = np.zeros((2, len(weights) + 1, len(bias)), y.dtype)
        g = np.require(g, y.dtype, ("C", "W"))
        backward(g, source, sums.reshape(-1), part.reshape(-1), winner)
        return sums

    return y, sums_of


def _padded(images: Array, windows: Windows, dtype: np.dtype) -> Array:
    """The images with zeros around them, (batch, height, width, channels), contiguous."""
    if windows.padded == windows.image:
        return np.ascontiguousarray(images, dtype)
    padded = np.zeros((len(images), *windows.padded, images.shape[3]), dtype)
    top, left = windows.pad_before
    height, width = windows.image
    padded[:, top : top + height, left : left + width] = images
    return padded
