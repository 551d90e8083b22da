"""Activation functions, and the error function behind `gelu`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arithmetic import times
from .fusion import fused
from .higher_order import by_definition
from .numerics import keep_positive, keep_where, total, widened
from .special import erf as _erf
from .tensor import Tensor, lift_array, operand, record
from .tensor_like import Array

_SHORT = 1 << 12


def erf(x: Any) -> Tensor:
    """The error function, to about 1e-15 in float64 and 4e-7 in float32."""
    x = lift_array(x)
    a = x.data

    def vjp(g: Array, outs: Any) -> Any:
        return (times(g, _exp_of_square(-1, operand(g, x, a)) * (2 / math.sqrt(math.pi))),)

    return record(_erf(a), (x,), vjp)


def _exp_of_square(scale: float, a: Array) -> Array:
    """exp(scale a²): a square overflows to the infinity that gives the right 0."""
    with np.errstate(over="ignore"):
        return np.exp(scale * a * a)


def sigmoid(x: Any) -> Tensor:
    """1 / (1 + exp(-x))."""
    x = lift_array(x)
    a = x.data
    y = logistic(a)

    def vjp(g: Array, outs: Any) -> Any:
        s = sigmoid(operand(g, x, a)) if type(g) is Tensor else y
        return (times(g, s * (1 - s)),)

    return record(y, (x,), vjp)


def logistic(a: Array, out: Array | None = None) -> Array:
    """The logistic function of an array: exp overflows to the infinity that gives the right 0."""
    with np.errstate(over="ignore"):
        y = np.exp(np.negative(a, out=out), out=out)
    y += 1
    return np.divide(1, y, out=out)


def relu(
    x: Any, negative_slope: float = 0.0, max_value: float | None = None, threshold: float = 0.0
) -> Tensor:
    """max(x, 0), with derivative 0 at 0; and Keras's options.

    Args:
        x: Any shape.
        negative_slope: Up to `threshold` the result is `negative_slope * (x - threshold)`.
        max_value: What the result does not exceed.
        threshold: Above it x passes; from 0 on.
    """
    x = lift_array(x)
    a = x.data
    if negative_slope or threshold or max_value is not None:
        return _bent(x, negative_slope, max_value, threshold)
    y = rectified(a)
    return record(y, (x,), lambda g, outs: (keep_positive(g, y, out=g),))


def rectified(a: Array, out: Array | None = None) -> Array:
    """max(a, 0) of an array."""
    # A clip takes half as long as np.maximum with a number, but longer to begin; and it would make
    # floats of whole numbers.
    if a.size > _SHORT and a.dtype.kind == "f":
        return a.clip(0, np.inf, out=out)
    return np.maximum(a, 0, out=out)


def _bent(x: Tensor, slope: float, most: float | None, threshold: float) -> Tensor:
    a = x.data
    passes = a > threshold
    y = np.where(passes, a, slope * (a - threshold)).astype(a.dtype, copy=False)

    def vjp(g: Array, outs: Any) -> Any:
        g = np.where(passes, g, slope * g)
        return (g if most is None else keep_where(g, a < most, out=g),)

    y = y if most is None else np.minimum(y, most).astype(a.dtype, copy=False)
    return record(y, (x,), vjp)


def leaky_relu(x: Any, negative_slope: float = 0.2) -> Tensor:
    """x where it is positive, else negative_slope * x."""
    x = lift_array(x)
    a = x.data

    def vjp(g: Array, outs: Any) -> Any:
        return (np.where(a > 0, g, negative_slope * g),)

    return record(np.where(a > 0, a, negative_slope * a).astype(a.dtype, copy=False), (x,), vjp)


def elu(x: Any, alpha: float = 1.0) -> Tensor:
    """x where it is positive, else alpha * (exp(x) - 1)."""
    x = lift_array(x)
    a = x.data
    below = alpha * np.expm1(np.minimum(a, 0))

    def vjp(g: Array, outs: Any) -> Any:
        slope = below
        if type(g) is Tensor:
            slope = alpha * np.expm1(np.minimum(operand(g, x, a), 0))
        return (times(g, np.where(a > 0, 1, slope + alpha)),)

    return record(np.where(a > 0, a, below).astype(a.dtype, copy=False), (x,), vjp)


def softplus(x: Any) -> Tensor:
    """log(1 + exp(x)), without overflow."""
    x = lift_array(x)
    a = x.data
    # log(1 + exp(a)) = a + log(1 + exp(-a)): of the two forms the one whose exp is at most 1.
    y = np.log1p(np.exp(-np.absolute(a))) + np.maximum(a, 0)

    def vjp(g: Array, outs: Any) -> Any:
        return (times(g, sigmoid(operand(g, x, a)) if type(g) is Tensor else logistic(a)),)

    return record(y, (x,), vjp)


def silu(x: Any) -> Tensor:
    """x * sigmoid(x), also known as swish."""
    x = lift_array(x)
    a = x.data
    s = logistic(a)

    def vjp(g: Array, outs: Any) -> Any:
        u, share = a, s
        if type(g) is Tensor:
            u = operand(g, x, a)
            share = sigmoid(u)
        return (times(g, share * (1 + u * (1 - share))),)

    return record(a * s, (x,), vjp)


def gelu(x: Any, approximate: bool = False) -> Tensor:
    """x * P(X <= x) for a standard normal X (Hendrycks and Gimpel, 2016, arXiv:1606.08415).

    Args:
        x: Any shape.
        approximate: Use the paper's tanh approximation in place of the error function.
    """
    x = lift_array(x)
    a = x.data
    if not isinstance(a, np.ndarray):
        return _gelu_at_once(x, approximate)
    if approximate:
        share, slope = _tanh_share(a)
    else:
        share = 0.5 * (1 + _erf(a * math.sqrt(0.5)))
        slope = None

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(lambda x: _plain_gelu(x, approximate), g, (x,), (a,))
        density = _exp_of_square(-0.5, a) / math.sqrt(2 * math.pi) if slope is None else slope
        return (times(g, share + a * density),)

    # Of bfloat16 the share is float32.
    return record((a * share).astype(a.dtype, copy=False), (x,), vjp)


def _gelu_at_once(x: Tensor, approximate: bool) -> Tensor:
    """The same on a GPU: one kernel there, which gives the slope as well, and one back."""
    a = x.data

    def of_elements(a: Any) -> Any:
        if approximate:
            share, density = _tanh_share(a)
        else:
            share = 0.5 * (1 + _erf(a * math.sqrt(0.5)))
            density = _exp_of_square(-0.5, a) / math.sqrt(2 * math.pi)
        return a * share, share + a * density

    # CuPy clips no bfloat16, of which the host makes float32 here as well.
    y, slope = fused(of_elements, a if a.dtype.kind == "f" else widened(a))

    def vjp(g: Array, outs: Any) -> Any:
        if type(g) is Tensor:
            return by_definition(lambda x: _plain_gelu(x, approximate), g, (x,), (a,))
        return (times(g, slope),)

    return record(y.astype(a.dtype, copy=False), (x,), vjp)


def _plain_gelu(x: Tensor, approximate: bool) -> Any:
    share = _tanh_share(x)[0] if approximate else 0.5 * (1 + erf(x * math.sqrt(0.5)))
    return x * share


def _tanh_share(a: Array) -> tuple[Array, Array]:
    """The tanh approximation of the normal distribution function, and its derivative."""
    scale, cubic = math.sqrt(2 / math.pi), 0.044715
    a = np.clip(a, -8, 8)  # beyond, the shares are 0 and 1 in any precision; float16 would overflow
    square = a * a
    t = np.tanh(scale * a * (1 + cubic * square))
    return 0.5 * (1 + t), 0.5 * scale * (1 - t * t) * (1 + 3 * cubic * square)


def _below_zero(a: Array, axis: int | tuple[int, ...]) -> Array:
    """Logits less the largest of them."""
    largest = a.max(axis=axis, keepdims=True)
    if a.dtype.itemsize > 2:
        return a - largest
    with np.errstate(over="ignore"):  # float16 ends at 65504: what is below it is as good as -inf
        return a - largest


def softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Tensor:
    """exp(x), scaled to sum to 1 along `axis`."""
    x = lift_array(x)
    a = x.data
    y = np.exp(_below_zero(a, axis))  # a shift cancels; none overflows
    y /= total(y, axis, keepdims=True)

    def vjp(g: Array, outs: Any) -> Any:  # y (g - Σ g y)
        shares = softmax(operand(g, x, a), axis) if type(g) is Tensor else y
        g *= shares
        g -= shares * total(g, axis, keepdims=True)
        return (g,)

    return record(y, (x,), vjp)


def log_softmax(x: Any, axis: int | tuple[int, ...] = -1) -> Tensor:
    """log(softmax(x)), exact also where softmax(x) is too small to be a number."""
    x = lift_array(x)
    # Not log(softmax): the logarithm is taken of the sum alone, which is at least exp(0).
    a = x.data
    shifted = _below_zero(a, axis)
    shares = np.exp(shifted)
    y = shifted - np.log(total(shares, axis, keepdims=True)).astype(shares.dtype, copy=False)

    def vjp(g: Array, outs: Any) -> Any:
        shares = softmax(operand(g, x, a), axis) if type(g) is Tensor else np.exp(y)
        g -= shares * total(g, axis, keepdims=True)
        return (g,)

    return record(y, (x,), vjp)
