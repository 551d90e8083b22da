"""Selection without products by zero, and float16 summed in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..kernels import compiled_loop
from .fusion import fused
from .tensor import Tensor, record
from .tensor_like import Array

_HALF = "eE"
"""The codes of float16 and of bfloat16: quicker to compare than dtypes are."""

_BITS = {size: np.dtype(f"i{size}") for size in (2, 4, 8)}


def keep_where(values: Array, condition: Any, out: Array | None = None) -> Array:
    """`values` where the condition holds, else 0, whatever stands there.

    A gradient of infinity times a mask of 0 would be "not a number", so that one element outside a
    selection spoilt all weights before it: `sqrt(relu(x))` has an infinite slope where relu is 0.
    The mask therefore multiplies the bits as whole numbers, which is as fast as a product of floats
    and ten times faster than `np.where`. `out` may be `values` itself, or memory apart from it.
    """
    if type(values) is Tensor:
        kept = keep_where(values.data, condition)
        return record(kept, (values,), lambda g, outs: (keep_where(g, condition),))
    if not isinstance(values, (np.ndarray, np.generic)):
        if out is None:
            return fused(_or_zero, values, condition, numbers=())
        fused(_or_zero_into, out, values, condition, numbers=())
        return out
    bits = _BITS[values.dtype.itemsize]
    # As numbers first: a product with truth values is slower.
    if out is None:
        return np.multiply(values.view(bits), condition.astype(bits)).view(values.dtype)
    target = out.view(bits)
    if out is values:
        np.multiply(target, condition.astype(bits), out=target)
    else:
        target[...] = condition
        np.multiply(target, values.view(bits), out=target)
    return out


def _or_zero(values: Any, condition: Any) -> Any:
    return np.where(condition, values, 0)


def _or_zero_into(out: Any, values: Any, condition: Any) -> None:
    out[...] = np.where(condition, values, 0)


def keep_positive(g: Array, y: Array, out: Array) -> Array:
    """`g` where y is positive, else 0, in `out`: the way back through relu, whose result y is."""
    if out is g and type(g) is not Tensor and g.flags.c_contiguous and y.flags.c_contiguous:
        flat = g.reshape(-1), y.reshape(-1)
        loop = compiled_loop("keep_positive", *flat)
        if loop is not None:
            loop(*flat)
            return g
    return keep_where(g, y > 0, out=out)


def is_half(array: Array) -> bool:
    """Whether an array is of half precision."""
    return array.dtype.char in _HALF


def sum_dtype(array: Array) -> type[np.float32] | None:
    """The dtype in which to sum an array: float32 for half precision, else its own.

    float16 ends at 65504 and has 11 bits: counts of elements overflow in it, and a sum of equal
    numbers stands still after 2048 of them.
    """
    return np.float32 if array.dtype.char in _HALF else None


def widened(array: Array) -> Array:
    """Half precision as float32, in which to compute with it; anything else as it is."""
    return array.astype(np.float32) if array.dtype.char in _HALF else array


def narrowed(result: Array, array: Array) -> Array:
    """The result of a computation with `widened(array)` in the dtype that belongs to `array`."""
    return result.astype(array.dtype) if array.dtype.char in _HALF else result


def total(array: Array, axis: Any = None, keepdims: bool = False) -> Array:
    """The sum as `np.sum` gives it, of float16 in float32: for what goes on from there."""
    if type(array) is Tensor:  # sums in float32 by itself
        return array.sum(axis=axis, keepdims=keepdims)
    return array.sum(axis=axis, keepdims=keepdims, dtype=sum_dtype(array))
