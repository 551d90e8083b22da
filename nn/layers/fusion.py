"""Neighbouring layers that one function computes faster than two.

A `Sequential` asks here for every two neighbours. What is listed gives the same outputs and
gradients as the two layers one after the other, and finds the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from ...autodiff import Tensor, conv2d_relu_max_pool2d, relu
from .base import Layer
from .convolution import Conv2D
from .pooling import MaxPooling2D

Stage: TypeAlias = Callable[[Any, bool], Any]


def fuse(first: Layer, second: Layer) -> Stage | None:
    """One function `(inputs, training) -> outputs` for two layers, or None to call them in turn."""
    pair = _PAIRS.get((type(first), type(second)))
    return None if pair is None else pair(first, second)


def _convolution_and_max(convolution: Conv2D, pooling: MaxPooling2D) -> Stage | None:
    """Take the maximum before bias and relu, which do not change which value is the largest.

    Three of four values of a 2 by 2 window are then never written out, nor is their gradient. It
    holds where every value is in one window at most.
    """
    apart = pooling.strides == pooling.pool_size and pooling.padding == "valid"
    if convolution.activation is not relu or not apart:
        return None

    def stage(inputs: Any, training: bool) -> Tensor:
        return conv2d_relu_max_pool2d(
            *convolution.prepare(inputs),
            strides=convolution.strides,
            padding=convolution.padding,
            pool_size=pooling.pool_size,
        )

    return stage


_PAIRS: Mapping[tuple[type, type], Callable[[Any, Any], Stage | None]] = {
    (Conv2D, MaxPooling2D): _convolution_and_max,
}
