"""Arrays as callers give them, and how several of them are added up."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from ...autodiff import NO_NUMBERS, Array, IndexedSlices, TensorLike, placed
from .device import Device

Summand: TypeAlias = "Array | IndexedSlices"


def as_array(value: Any) -> Summand:
    """The array behind a tensor, a variable or a number; arrays and `IndexedSlices` stay.

    Raises:
        TypeError: It is none of these.
    """
    if isinstance(value, TensorLike):
        tensor = value.tensor()
        tensor.share()
        return tensor.data
    if isinstance(value, IndexedSlices):
        rows = placed(value.values), placed(value.indices)
        return value if rows[0] is value.values else IndexedSlices(*rows, value.dense_shape)
    is_array = hasattr(value, "__array_ufunc__") and not isinstance(value, np.generic)
    array = placed(value if is_array else np.asarray(value))
    if array.dtype.kind in NO_NUMBERS:
        raise TypeError(f"a number, an array or a tensor is needed here, got {value!r}")
    return array


def summands(arrays: Sequence[Array]) -> list[Array]:
    """The replicas' arrays, of one shape, as they are added up: in the one dtype of their sum.

    Whole numbers and truth values are added in 64 bits, as `np.sum` does; floats keep their width.
    """
    shapes = [array.shape for array in arrays]
    if len(set(shapes)) > 1:
        raise ValueError(
            f"the replicas' values have different shapes {shapes} and cannot be combined element "
            f"by element; pass axis=0 to `reduce` to combine over the batch dimension as well, or "
            f"gather them"
        )
    dtype = np.result_type(*[array.dtype for array in arrays])
    if dtype.kind in "bi":
        dtype = np.dtype(np.int64)
    elif dtype.kind == "u":
        dtype = np.dtype(np.uint64)
    return [array if array.dtype == dtype else _cast(array, dtype) for array in arrays]


def _cast(array: Array, dtype: np.dtype) -> Array:
    with Device.of(array).use():
        return array.astype(dtype)


def nothing_like(value: Summand) -> Summand:
    """What adds nothing to a sum of values like this one."""
    if isinstance(value, IndexedSlices):
        return IndexedSlices(value.values[:0], value.indices[:0], value.dense_shape)
    with Device.of(value).use():  # the caller may be another replica's thread
        return np.zeros_like(value)


def no_rows(value: Summand, axis: int) -> Summand:
    """What adds nothing to a concatenation along `axis`; as it is where it has no such axis."""
    if isinstance(value, IndexedSlices) or not 0 <= axis < value.ndim:
        return value  # nobody can concatenate it: let that be the error
    return value[(slice(None),) * axis + (slice(0),)]


def moved(value: Summand, device: Device) -> Summand:
    """`value` itself where it is in the memory of `device` already, else a copy there."""
    if isinstance(value, IndexedSlices):
        values, indices = device.bring(value.values), device.bring(value.indices)
        if values is value.values and indices is value.indices:
            return value
        return IndexedSlices(values, indices, value.dense_shape)
    return device.bring(value)


def cut(array: Array, shapes: Sequence[tuple[int, ...]]) -> list[Array]:
    """Consecutive slices of a one-dimensional array, in the given shapes."""
    sizes = [math.prod(shape) for shape in shapes]
    ends = itertools.accumulate(sizes)
    return [
        array[end - size : end].reshape(shape)
        for shape, size, end in zip(shapes, sizes, ends, strict=True)
    ]


def add_up(parts: Sequence[Summand], may_repeat: bool = False) -> Summand:
    """The sum of slices and whole arrays. Without an array it is slices, with each row once.

    No part is changed.

    Args:
        parts: What to add up.
        may_repeat: Whether a row may occur more than once on a GPU: to add up its gradients is to
            wait for the number of rows.

    Raises:
        ValueError: The shapes of the parts differ.
    """
    shapes = [tuple(part.shape) for part in parts]
    if len(set(shapes)) > 1:
        raise ValueError(f"values of different shapes {shapes} cannot be added up")
    slices = [part for part in parts if isinstance(part, IndexedSlices)]
    arrays = [part for part in parts if not isinstance(part, IndexedSlices)]
    if not arrays:
        joined = _joined(slices)
        waits = not isinstance(joined.indices, np.ndarray)
        return joined if waits and may_repeat else joined.unique()
    total = arrays[0].copy()
    for array in arrays[1:]:
        total += array
    return _joined(slices).add_to(total) if slices else total


def _joined(slices: Sequence[IndexedSlices]) -> IndexedSlices:
    """All rows one after another."""
    if len(slices) == 1:
        return slices[0]
    values = np.concatenate([part.values for part in slices])
    indices = np.concatenate([part.indices for part in slices])
    return IndexedSlices(values, indices, slices[0].dense_shape)
