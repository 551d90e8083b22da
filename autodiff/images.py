"""Convolution and pooling of images as differentiable operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import convolution, pooling
from .tensor import Array, Tensor, lift_array, record
from .windows import pair


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
    inputs = _lifted(x, w, b)
    y, saved = convolution.conv2d(
        *_arrays(inputs), strides=pair(strides), padding=padding, activation=activation
    )
    return _record(y, inputs, convolution.conv2d_gradients, saved)


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
    inputs = _lifted(x, w, b)
    y, saved = convolution.conv2d_relu_max_pool2d(
        *_arrays(inputs), strides=pair(strides), padding=padding, pool_size=pair(pool_size)
    )
    return _record(y, inputs, convolution.conv2d_relu_max_pool2d_gradients, saved)


def _lifted(x: Any, w: Any, b: Any) -> tuple[Tensor, ...]:
    return (
        (lift_array(x), lift_array(w))
        if b is None
        else (lift_array(x), lift_array(w), lift_array(b))
    )


def _arrays(inputs: tuple[Tensor, ...]) -> list[Array]:
    return [tensor.data for tensor in inputs]


def _record(
    y: Array,
    inputs: tuple[Tensor, ...],
    gradients: Callable[..., convolution.ConvGradients],
    saved: Any,
) -> Tensor:
    def vjp(g: Array, outs: Any) -> Any:
        x, *parameters = [tensor.requires_grad for tensor in inputs]
        _, out_w, out_b = (*outs, None)[:3]
        parts = gradients(g, saved, need_x=x, need_w=any(parameters), out_w=out_w, out_b=out_b)
        return parts[: len(inputs)]

    return record(y, inputs, vjp)


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
    size = pair(pool_size)
    apart = size if strides is None else pair(strides)
    y, saved = pooling.max_pool2d(x.data, size, apart, padding)
    return record(y, (x,), lambda g, outs: (pooling.max_pool2d_gradient(g, saved),))


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
    size = pair(pool_size)
    apart = size if strides is None else pair(strides)
    y, saved = pooling.avg_pool2d(x.data, size, apart, padding)
    return record(y, (x,), lambda g, outs: (pooling.avg_pool2d_gradient(g, saved),))
