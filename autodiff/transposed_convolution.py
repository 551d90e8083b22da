"""The reverse of a convolution: the way from its outputs back to its inputs, as a layer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from .at_once import conv_transpose_at_once, conv_transpose_by_taps
from .convolution import as_taps, lines, rows_of, scatter
from .higher_order import by_definition
from .patches import add_turn, arranged, patches, sum_of_turns, turns_of
from .tensor import Tensor, lift_array, record
from .tensor_like import Array
from .windows import (
    Windows,
    batch_first,
    each_axis,
    inside,
    num_spatial_axes,
    place_windows,
)


def conv_transpose(
    x: Any,
    w: Any,
    strides: int | Sequence[int] = 1,
    padding: str = "valid",
    output_padding: int | Sequence[int] | None = None,
    dilation: int | Sequence[int] = 1,
) -> Tensor:
    """What `conv` by `w`, of an image of the result's shape, gives its inputs as gradient of x.

    Args:
        x: (batch, axes…, channels), with one to three spatial axes.
        w: (lengths…, filters, channels).
        strides, padding, dilation: Those of the convolution; padding is 'valid' or 'same'.
        output_padding: What is added to the shortest result of which the convolution gives x,
            along each axis; None for Keras's lengths: `length * stride` for 'same', and for
            'valid' as much as the windows take.

    Returns:
        (batch, lengths…, filters).
    """
    x, w = lift_array(x), lift_array(w)
    images, filters = x.data, w.data
    windows = _placed(images, filters, strides, padding, output_padding, dilation)
    if not isinstance(images, np.ndarray):
        return conv_transpose_at_once(windows, x, w)
    num_filters = filters.shape[-2]
    dtype = np.result_type(images, filters)
    no_pool = (1,) * len(windows.size)
    matrices = as_taps(filters)
    y = np.zeros((*windows.padded, len(images), num_filters), dtype, like=images)
    for row, x_row in zip(windows.rows, rows_of(images), strict=True):
        scatter(np.matmul(lines(x_row), matrices), windows, row, no_pool, y)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            define = partial(conv_transpose_by_taps, windows)
            return by_definition(define, g, (x, w), (images, filters))
        weights = lines(filters)
        num_inputs = len(weights)
        dx = np.empty((*windows.count, len(images), images.shape[-1]), dtype, like=g)
        sums: dict[int, Array] = {}
        of_patches = patches(arranged(g, windows, dtype), windows, no_pool)
        turned = turns_of(weights, windows, no_pool, num_filters)
        of_rows = zip(windows.rows, of_patches, rows_of(images), strict=True)
        for row, (matrix, turn), x_row in of_rows:
            np.matmul(matrix[:, :num_inputs], turned[turn], out=lines(dx[row]))
            product = np.matmul(matrix[:, :num_inputs].T, lines(x_row))
            add_turn(sums, turn, product)
        dw = sum_of_turns(sums, windows, num_filters)
        return batch_first(dx), dw.reshape(filters.shape)

    return record(batch_first(inside(y, windows)), (x, w), vjp)


def _placed(
    images: Array,
    filters: Array,
    strides: int | Sequence[int],
    padding: str,
    output_padding: int | Sequence[int] | None,
    dilation: int | Sequence[int],
) -> Windows:
    """The windows of the convolution whose inputs are the result."""
    ndim = num_spatial_axes(images)
    if filters.ndim != ndim + 2 or filters.shape[-1] != images.shape[-1]:
        raise ValueError(
            f"x must have shape (batch, axes…, channels) and w (lengths…, filters, channels) with "
            f"the same number of channels, got {tuple(images.shape)} and {tuple(filters.shape)}"
        )
    strides, dilation = each_axis(strides, ndim), each_axis(dilation, ndim)
    added = (None,) * ndim if output_padding is None else each_axis(output_padding, ndim)
    size = filters.shape[:-2]
    axes = zip(images.shape[1:-1], size, strides, dilation, added, strict=True)
    lengths = [_length(*axis, padding) for axis in axes]
    windows = place_windows(lengths, size, strides, padding, dilation)
    if windows.count != images.shape[1:-1]:
        raise ValueError(
            f"output_padding {output_padding!r} must be smaller than the strides {strides}"
        )
    return windows


def _length(
    length: int, size: int, stride: int, dilation: int, added: int | None, padding: str
) -> int:
    """The length of the result along one axis, as Keras has it."""
    extent = (size - 1) * dilation + 1
    if added is None:
        return length * stride + (max(extent - stride, 0) if padding == "valid" else 0)
    cut = 2 * (extent // 2) if padding == "same" else 0
    return (length - 1) * stride + extent - cut + added
