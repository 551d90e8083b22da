"""Samples along an axis: their differences, values between them, filters over them."""

from __future__ import annotations

from typing import Any

import numpy as np

from .choices import where
from .joining import concatenate, pad
from .piecewise_constant import plain
from .shapes import broadcast_to, flip
from .stacking import sliding_window_view
from .tensor import Tensor, lift, lift_together
from .tensor_like import Array, TensorLike, implements


@implements(np.diff)
def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = None, append: Any = None) -> Tensor:
    """The differences of neighbours, `n` times over; gaps before and behind are filled first."""
    x = lift(a)
    if n < 0 or not x.data.shape:
        raise ValueError(f"np.diff needs an axis and n >= 0, got shape {x.data.shape}, n={n}")
    axis %= x.data.ndim
    if prepend is not None or append is not None:
        x = concatenate([*_edge(x, prepend, axis), x, *_edge(x, append, axis)], axis)
    before = (slice(None),) * axis
    for _ in range(n):
        x = x[(*before, slice(1, None))] - x[(*before, slice(None, -1))]
    return x


def _edge(x: Tensor, values: Any, axis: int) -> list[Tensor]:
    if values is None:
        return []
    _, edge = lift_together(x, values)
    if edge.data.ndim == 0:
        shape = list(x.data.shape)
        shape[axis] = 1
        edge = broadcast_to(edge, shape)
    return [edge]


@implements(np.interp)
def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None) -> Tensor:
    """Values on the lines between the points (xp, fp); the rising places `xp` get no gradient."""
    (x,) = lift_together(x)
    heights = fp if isinstance(fp, TensorLike) else np.asarray(fp, x.data.dtype, like=x.data)
    if lift(xp).requires_grad:
        raise TypeError("the places xp of np.interp cannot have a gradient")
    places: Array = np.asarray(plain(xp), x.data.dtype, like=x.data)
    last = len(places) - 1
    at = np.clip(np.searchsorted(places, x.data, side="right") - 1, 0, max(last - 1, 0))
    behind = np.minimum(at + 1, last)
    width = places[behind] - places[at]
    share = (x - places[at]) / np.where(width == 0, 1, width)
    y = heights[at] * (1 - share) + heights[behind] * share
    y = where(x.data < places[0], heights[0] if left is None else left, y)
    return where(x.data > places[last], heights[last] if right is None else right, y)


@implements(np.convolve)
def convolve(a: Any, v: Any, mode: str = "full") -> Tensor:
    """Of two vectors; 'full', 'same' or 'valid' as in NumPy."""
    a, v = lift_together(a, v)
    if a.data.ndim != 1 or v.data.ndim != 1 or mode not in ("full", "same", "valid"):
        raise ValueError(
            f"np.convolve takes two vectors and mode 'full', 'same' or 'valid'; got shapes "
            f"{a.data.shape}, {v.data.shape} and {mode!r}"
        )
    if len(v) > len(a):
        a, v = v, a
    margin = {"full": len(v) - 1, "same": len(v) // 2, "valid": 0}[mode]
    behind = len(v) - 1 - margin if mode == "same" else margin
    return sliding_window_view(pad(a, (margin, behind)), len(v)) @ flip(v)
