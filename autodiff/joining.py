"""Arrays put together, taken apart, padded and repeated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from .indexing import getitem, take
from .numerics import total
from .shapes import ravel
from .tensor import Tensor, lift, record
from .tensor_like import Array, implements


@implements(np.concatenate)
def concatenate(arrays: Sequence[Any], axis: int | None = 0) -> Tensor:
    if axis is None:
        arrays, axis = [ravel(array) for array in arrays], 0
    along = axis
    tensors = tuple(lift(array) for array in arrays)

    def vjp(g: Array, outs: Any) -> Any:
        before = (slice(None),) * (along % g.ndim)
        parts, start = [], 0
        for tensor in tensors:
            stop = start + tensor.data.shape[along]
            parts.append(g[(*before, slice(start, stop))])
            start = stop
        return parts

    return record(np.concatenate([tensor.data for tensor in tensors], axis), tensors, vjp)


@implements(np.stack)
def stack(arrays: Sequence[Any], axis: int = 0) -> Tensor:
    tensors = tuple(lift(array) for array in arrays)
    return record(
        np.stack([tensor.data for tensor in tensors], axis),
        tensors,
        lambda g, outs: list(np.moveaxis(g, axis, 0)),
    )


@implements(np.array_split)
def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    x = lift(ary)
    length = x.data.shape[axis]
    if isinstance(indices_or_sections, (int, np.integer)):
        small, num_large = divmod(length, int(indices_or_sections))
        sizes = [small + (i < num_large) for i in range(int(indices_or_sections))]
        bounds = [0, *np.cumsum(sizes).tolist()]
    else:
        bounds = [0, *indices_or_sections, length]
    before = (slice(None),) * (axis % x.data.ndim)
    return [getitem(x, (*before, slice(start, stop))) for start, stop in itertools.pairwise(bounds)]


@implements(np.split)
def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> list[Tensor]:
    x = lift(ary)
    if isinstance(indices_or_sections, (int, np.integer)):
        length = x.data.shape[axis]
        if length % indices_or_sections:
            raise ValueError(
                f"np.split cannot cut an axis of length {length} into {indices_or_sections} equal "
                f"parts; use np.array_split, or give the positions of the cuts"
            )
    return array_split(x, indices_or_sections, axis)


@implements(np.pad)
def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Tensor:
    """Only mode 'constant'; the padding itself gets no gradient."""
    if mode != "constant":
        raise ValueError(
            f"np.pad of a tensor has mode='constant' only, not {mode!r}; build other borders with "
            f"np.concatenate of slices"
        )
    x = lift(array)
    shape = x.data.shape
    if isinstance(pad_width, dict):  # axis → widths
        given = {axis % len(shape): width for axis, width in pad_width.items()}
        pad_width = [np.broadcast_to(given.get(i, 0), 2).tolist() for i in range(len(shape))]
    widths = np.broadcast_to(np.asarray(pad_width), (len(shape), 2))
    inside = tuple(slice(before, before + n) for (before, _), n in zip(widths, shape, strict=True))
    y = np.pad(x.data, pad_width, mode="constant", constant_values=constant_values)
    return record(y, (x,), lambda g, outs: (g[inside],))


@implements(np.tile)
def tile(A: Any, reps: Any) -> Tensor:  # noqa: N803 (NumPy's name)
    x = lift(A)
    repeats = (reps,) if isinstance(reps, (int, np.integer)) else tuple(reps)
    ndim = max(len(repeats), x.data.ndim)
    repeats = (1,) * (ndim - len(repeats)) + repeats
    shape = (1,) * (ndim - x.data.ndim) + x.data.shape
    blocks = [n for pair in zip(repeats, shape, strict=True) for n in pair]

    def vjp(g: Array, outs: Any) -> Any:
        sum_of_blocks = total(g.reshape(blocks), tuple(range(0, 2 * ndim, 2)))
        return (sum_of_blocks.reshape(x.data.shape),)

    return record(np.tile(x.data, reps), (x,), vjp)


@implements(np.repeat)
def repeat(a: Any, repeats: Any, axis: int | None = None) -> Tensor:
    x = lift(a)
    if axis is None or x.data.ndim == 0:
        x, axis = ravel(x), 0
    along = axis % x.data.ndim
    if not isinstance(repeats, (int, np.integer)):
        return take(x, np.repeat(np.arange(x.data.shape[along]), repeats), along)
    shape = x.data.shape

    def vjp(g: Array, outs: Any) -> Any:
        blocks = (*shape[: along + 1], int(repeats), *shape[along + 1 :])
        return (total(g.reshape(blocks), along + 1),)

    return record(x.data.repeat(repeats, axis), (x,), vjp)
