"""Choices between values: by a condition, by bounds, by what is a number at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .arithmetic import unbroadcast
from .numerics import keep_where
from .tensor import Tensor, lift, lift_together, record
from .tensor_like import Array, implements


@implements(np.clip)
def clip(
    a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None
) -> Tensor:
    """The gradient passes where a lies within the bounds, the bounds included; they get none."""
    low, high = lift(min if a_min is None else a_min), lift(max if a_max is None else a_max)
    if low.requires_grad or high.requires_grad:
        raise TypeError(
            "the bounds of np.clip cannot have a gradient; use np.minimum(np.maximum(x, low), high)"
        )
    x = lift(a)
    data = x.data
    y = np.clip(data, low.data, high.data)

    def vjp(g: Array, outs: Any) -> Any:
        return (unbroadcast(keep_where(g, y == data, out=g), data.shape),)

    return record(y, (x,), vjp)


@implements(np.where)
def where(condition: Any, x: Any = None, y: Any = None) -> Any:
    """A choice between two; with `condition` alone, plain arrays of the positions that hold."""
    chosen = lift(condition).data
    if x is None and y is None:
        return np.where(chosen)
    x, y = lift(x), lift(y)
    x_shape, y_shape = np.shape(x.data), np.shape(y.data)

    def vjp(g: Array, outs: Any) -> Any:
        refused, gx, gy = np.logical_not(chosen), None, None
        if x.requires_grad:
            gx = unbroadcast(keep_where(g, np.logical_not(refused)), x_shape, outs[0])
        if y.requires_grad:
            gy = unbroadcast(keep_where(g, refused, out=g), y_shape, outs[1])
        return gx, gy

    return record(np.where(chosen, x.data, y.data), (x, y), vjp)


@implements(np.select)
def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Tensor:
    """The first choice whose condition holds."""
    if len(condlist) != len(choicelist) or not condlist:
        raise ValueError(
            f"np.select takes a choice for each condition, at least one; got {len(condlist)} "
            f"conditions and {len(choicelist)} choices"
        )
    chosen = lift(default)
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        chosen = where(condition, choice, chosen)
    return chosen


@implements(np.nan_to_num)
def nan_to_num(
    x: Any,
    copy: bool = True,
    nan: float = 0.0,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """What is replaced has no gradient."""
    if not copy:
        raise TypeError("np.nan_to_num of a tensor gives a new one; leave copy=False away")
    (x,) = lift_together(x)
    data = x.data
    limits = np.finfo(data.dtype)
    y = where(np.isnan(data), nan, x)
    y = where(data == np.inf, float(limits.max) if posinf is None else posinf, y)
    return where(data == -np.inf, float(limits.min) if neginf is None else neginf, y)
