"""Parts of a tensor by tables of positions, and sums of parts: what NumPy has no name for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from .creation import filled
from .indexing import getitem, place, take, take_along_axis
from .piecewise_constant import plain
from .shapes import moveaxis
from .tensor import Tensor, lift_array
from .tensor_like import Array

Reduction = Literal["sum", "mean", "max", "min", "prod"]


def gather(params: Any, indices: Any, axis: int = 0, batch_dims: int = 0) -> Tensor:
    """Elements along an axis: `np.take`, with tables of positions of their own for each example.

    Args:
        params: Any shape.
        indices: Whole numbers, (*params.shape[:batch_dims], ...).
        axis: Of `params`; not one of the first `batch_dims`, which belong to `indices`, too.
        batch_dims: How many first axes both have in common.

    Returns:
        (*params.shape[:axis], *indices.shape[batch_dims:], *params.shape[axis + 1:]).
    """
    if batch_dims == 0:
        return take(params, indices, axis)
    x = lift_array(params)
    positions = _whole_numbers("gather", indices, x.data)
    axis %= x.data.ndim
    common = x.data.shape[:batch_dims]
    if axis < batch_dims or positions.shape[:batch_dims] != common:
        raise ValueError(
            f"gather with batch_dims={batch_dims} takes an axis behind these, and indices that "
            f"begin with {common}; got axis {axis} and indices of shape {positions.shape}"
        )
    examples = [
        np.arange(n, like=x.data).reshape((-1,) + (1,) * (positions.ndim - 1 - i))
        for i, n in enumerate(common)
    ]
    between = x.data.shape[batch_dims:axis]
    found = getitem(moveaxis(x, axis, batch_dims), (*examples, positions))
    # (*common, *of the table, *between, *behind): what is between comes first again.
    start, size = positions.ndim, len(between)
    return moveaxis(found, range(start, start + size), range(batch_dims, batch_dims + size))


def gather_nd(params: Any, indices: Any) -> Tensor:
    """Elements, or whole slices, each by its coordinates.

    Args:
        params: Any shape.
        indices: Whole numbers (..., k): coordinates along the first k axes of `params`.

    Returns:
        (..., *params.shape[k:]).
    """
    x = lift_array(params)
    positions = _coordinates("gather_nd", indices, x.data, x.data.ndim)
    return getitem(x, tuple(positions))


def scatter_nd(indices: Any, updates: Any, shape: Sequence[int]) -> Tensor:
    """Zeros, to which each of `updates` is added at its coordinates.

    Args:
        indices: Whole numbers (..., k), coordinates along the first k axes of `shape`; they may
            occur more than once.
        updates: (..., *shape[k:]).
        shape: Of the result.
    """
    values, shape = lift_array(updates), tuple(int(n) for n in plain(shape))
    positions = _coordinates("scatter_nd", indices, values.data, len(shape))
    wanted = (*positions.shape[1:], *shape[len(positions) :])
    if values.data.shape != wanted:
        raise ValueError(
            f"scatter_nd into {shape} at {len(positions)} coordinates each takes updates of shape "
            f"{wanted}, got {values.data.shape}"
        )
    return place(values, tuple(positions), shape, may_repeat=True)


def segment(
    data: Any, segment_ids: Any, num_segments: int | None = None, reduction: Reduction = "sum"
) -> Tensor:
    """Rows brought together by the number of their segment.

    Args:
        data: (n, ...).
        segment_ids: n whole numbers in [0, num_segments), in any order; rows of a negative one are
            left out.
        num_segments: By default as many as the largest number asks for.
        reduction: 'sum', 'mean', 'max', 'min' or 'prod'. A segment without rows has 0, 0, the
            lowest number, the highest one, and 1.

    Returns:
        (num_segments, ...).
    """
    x = lift_array(data)
    numbers = _whole_numbers("segment", segment_ids, x.data)
    if numbers.shape != x.data.shape[:1]:
        raise ValueError(f"{x.data.shape[:1]} segment_ids are needed, got {numbers.shape}")
    if num_segments is None:
        num_segments = int(numbers.max()) + 1 if numbers.size else 0
    if numbers.size and int(numbers.max()) >= num_segments:
        raise ValueError(f"a segment has the number {int(numbers.max())} of {num_segments}")
    if reduction in ("sum", "mean"):
        if bool((numbers < 0).any()):
            kept = np.nonzero(numbers >= 0)[0]
            x, numbers = take(x, kept, 0), numbers[kept]
        sums = place(x, (numbers,), (num_segments, *x.data.shape[1:]), may_repeat=True)
        return sums if reduction == "sum" else sums / _counts(numbers, num_segments, sums)
    if reduction not in _OF_ROWS:
        raise ValueError(
            f"reduction must be 'sum', 'mean', 'max', 'min' or 'prod', not {reduction}"
        )
    function, of_none = _OF_ROWS[reduction]
    return _by_places(x, numbers, num_segments, function, of_none(x.data.dtype))


_OF_ROWS: dict[str, tuple[Callable[..., Any], Callable[..., float]]] = {
    "max": (np.max, lambda dtype: float(np.finfo(dtype).min)),
    "min": (np.min, lambda dtype: float(np.finfo(dtype).max)),
    "prod": (np.prod, lambda dtype: 1.0),
}


def _counts(numbers: Array, num_segments: int, like: Any) -> Array:
    counts = np.zeros(num_segments, like.dtype, like=like.data)
    np.add.at(counts, numbers, 1)
    return np.maximum(counts, 1).reshape((-1,) + (1,) * (like.ndim - 1))


def _by_places(
    x: Tensor, numbers: Array, num_segments: int, function: Callable[..., Any], of_none: float
) -> Any:
    """The segments as rows of one array, filled up, and reduced together."""
    kept = np.nonzero(numbers >= 0)[0]
    order = kept[np.argsort(numbers[kept], kind="stable")]
    sorted_numbers = numbers[order]
    starts = np.searchsorted(sorted_numbers, np.arange(num_segments, like=numbers))
    place_in_segment = np.arange(len(order), like=numbers) - starts[sorted_numbers]
    longest = int(place_in_segment.max()) + 1 if len(order) else 1
    table = filled((num_segments, longest), -1, np.int64, numbers)
    table[sorted_numbers, place_in_segment] = order
    is_there = (table >= 0).reshape(table.shape + (1,) * (x.data.ndim - 1))
    rows = np.where(is_there, _rows_or_none(x, table), of_none)
    return function(rows, axis=1)


def _rows_or_none(x: Tensor, table: Array) -> Any:
    if not len(x.data):
        return np.zeros((*table.shape, *x.data.shape[1:]), x.data.dtype, like=x.data)
    return take(x, np.maximum(table, 0), 0)


def top_k(x: Any, k: int = 1) -> tuple[Tensor, Array]:
    """The k largest numbers along the last axis, largest first, and their positions.

    Of equal ones the first comes first.
    """
    x = lift_array(x)
    if not x.data.ndim or not 0 <= k <= x.data.shape[-1]:
        raise ValueError(f"top_k: k={k} must be at most the length of the last axis of {x.shape}")
    length = x.data.shape[-1]
    # From the end of a rising order of the numbers turned round: so equal ones stay in order.
    rising = np.argsort(np.flip(x.data, -1), axis=-1, kind="stable")
    positions = length - 1 - np.flip(rising, -1)[..., :k]
    return take_along_axis(x, positions, -1), positions


def _whole_numbers(name: str, indices: Any, like: Array) -> Array:
    positions = plain(indices)
    if not hasattr(positions, "dtype") or isinstance(positions, np.ndarray | np.generic):
        positions = np.asarray(positions, like=like)
    if positions.size and positions.dtype.kind not in "iu":
        raise TypeError(f"{name} takes whole numbers for indices, got {positions.dtype}")
    return positions.astype(np.int64)


def _coordinates(name: str, indices: Any, like: Array, ndim: int) -> Array:
    """(k, ...): for each of k axes the positions along it."""
    positions = _whole_numbers(name, indices, like)
    if positions.ndim < 1 or positions.shape[-1] > ndim:
        raise ValueError(
            f"{name} takes indices of shape (..., k) with k <= {ndim}, got {positions.shape}"
        )
    return np.moveaxis(positions, -1, 0)
