"""Normalization by mean and variance as one operation."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import numpy as np

from .arithmetic import unbroadcast
from .fusion import fused
from .higher_order import by_definition
from .numerics import narrowed, total, widened
from .tensor import Tensor, lift_array, record
from .tensor_like import Array


def normalize(
    x: Any, axes: tuple[int, ...], epsilon: float, gamma: Any = None, beta: Any = None
) -> tuple[Tensor, Array, Array]:
    """`gamma · (x - mean) / √(variance + epsilon) + beta`, of mean and variance over `axes`.

    Ioffe and Szegedy (2015) and Ba et al. (2016) have the gradients. The variance is that of the
    numbers themselves: divided by their number.

    Args:
        x: Floats.
        axes: From 0.
        epsilon: Added to the variance.
        gamma, beta: Broadcast to x; None for 1 and 0.

    Returns:
        What is normalized, and the mean and the variance as arrays with axes of length 1.
    """
    x = lift_array(x)
    a = widened(x.data)
    inputs: tuple[Tensor, ...] = (x,)
    saved: tuple[Array, ...] = (x.data,)
    for weight in (gamma, beta):
        if weight is not None:
            inputs += (lift_array(weight),)
            saved += (inputs[-1].data,)
    has_gamma, has_beta = gamma is not None, beta is not None
    if not isinstance(a, np.ndarray):
        return _at_once(a, inputs, saved, axes, epsilon, has_gamma, has_beta)
    sums = total(a, axes, keepdims=True)
    count = a.size / sums.size if sums.size else 1.0
    mean = sums / count
    centered = a - mean
    variance = total(np.square(centered), axes, keepdims=True) / count
    inverse = 1.0 / np.sqrt(variance + epsilon)
    y = centered * (inverse * saved[1] if has_gamma else inverse)
    if has_beta:
        shift = saved[-1]
        y = np.add(y, shift, out=y if shift.shape == y.shape[-1:] else None)

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            define = partial(_by_parts, axes, epsilon, has_gamma, has_beta)
            return by_definition(define, g, inputs, saved)
        g, normal = widened(g), centered * inverse
        gradients: list[Array | None] = [None]
        if has_gamma:
            gradients.append(unbroadcast(g * normal, saved[1].shape, outs[1]))
        if has_beta:
            gradients.append(unbroadcast(g, saved[-1].shape, outs[-1]))
        if x.requires_grad:
            h = unbroadcast(g * saved[1] if has_gamma else g, a.shape)
            # From each element's own part goes what moves the mean, and what moves the variance.
            along = total(h * normal, axes, keepdims=True) / count
            dx = h - total(h, axes, keepdims=True) / count
            np.multiply(normal, along, out=normal)
            dx -= normal
            dx *= inverse
            gradients[0] = dx
        return gradients

    return record(narrowed(y, x.data), inputs, vjp), mean, variance


def _at_once(
    a: Array,
    inputs: tuple[Tensor, ...],
    saved: tuple[Array, ...],
    axes: tuple[int, ...],
    epsilon: float,
    has_gamma: bool,
    has_beta: bool,
) -> tuple[Tensor, Array, Array]:
    """The same on a GPU: sums, and one kernel for all that lies between two of them."""
    sums = total(a, axes, keepdims=True)
    count = float(a.size / sums.size) if sums.size else 1.0
    squares = total(fused(_squares_around, a, sums, numbers=(count,)), axes, keepdims=True)
    mean, variance, inverse = fused(_moments, sums, squares, numbers=(count, epsilon))
    y = fused(_scaled_by(has_gamma, has_beta), a, mean, inverse, *saved[1:], numbers=())

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            define = partial(_by_parts, axes, epsilon, has_gamma, has_beta)
            return by_definition(define, g, inputs, saved)
        g = widened(g)
        products = fused(_times_normal, g, a, mean, inverse, numbers=())
        gradients: list[Array | None] = [None]
        if has_gamma:
            gradients.append(unbroadcast(products, saved[1].shape, outs[1]))
        if has_beta:
            gradients.append(unbroadcast(g, saved[-1].shape, outs[-1]))
        if inputs[0].requires_grad:
            if has_gamma:
                g, products = fused(_both_times, g, products, saved[1], numbers=())
            g, products = unbroadcast(g, a.shape), unbroadcast(products, a.shape)
            parts = [total(part, axes, keepdims=True) for part in (g, products)]
            gradients[0] = fused(_back, g, a, mean, inverse, *parts, numbers=(count,))
        return gradients

    return record(narrowed(y, saved[0]), inputs, vjp), mean, variance


def _squares_around(a: Any, sums: Any, count: float) -> Any:
    return np.square(a - sums / count)


def _moments(sums: Any, squares: Any, count: float, epsilon: float) -> tuple[Any, Any, Any]:
    variance = squares / count
    return sums / count, variance, 1.0 / np.sqrt(variance + epsilon)


@cache
def _scaled_by(has_gamma: bool, has_beta: bool) -> Any:
    def scaled(a: Any, mean: Any, inverse: Any, *weights: Any) -> Any:
        y = (a - mean) * (inverse * weights[0] if has_gamma else inverse)
        return y + weights[-1] if has_beta else y

    return scaled


def _times_normal(g: Any, a: Any, mean: Any, inverse: Any) -> Any:
    return g * ((a - mean) * inverse)


def _both_times(g: Any, products: Any, gamma: Any) -> tuple[Any, Any]:
    return g * gamma, products * gamma


def _back(
    g: Any, a: Any, mean: Any, inverse: Any, of_g: Any, of_products: Any, count: float
) -> Any:
    """Less, of each element's own part, what moves the mean, and what moves the variance."""
    return (g - of_g / count - (a - mean) * inverse * (of_products / count)) * inverse


def _by_parts(
    axes: tuple[int, ...], epsilon: float, has_gamma: bool, has_beta: bool, x: Any, *weights: Any
) -> Any:
    centered = x - x.mean(axis=axes, keepdims=True)
    variance = np.square(centered).mean(axis=axes, keepdims=True)
    factor = 1.0 / np.sqrt(variance + epsilon)
    if has_gamma:
        factor = factor * weights[0]
    y = centered * factor
    return y + weights[-1] if has_beta else y
