"""Stacking elements of unequal shapes: each component is padded to a common one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from . import nest


def stack_padded(elements: Sequence[Any], *, shapes: Any, values: Any) -> Any:
    """One batch of the elements, each component padded at the end of each of its axes.

    Args:
        elements: at least one.
        shapes: for each component its shape, with None or -1 for the largest in the batch; None
            for the largest of everything.
        values: for each component what it is padded with, or one value for all of them; None pads
            with zeros and empty text.

    Raises:
        ValueError: an element is larger than its shape, or has another rank or dtype.
    """
    first = elements[0]
    components = zip(
        nest.paths(first, "element"),
        zip(*[nest.leaves_in_order_of(first, element) for element in elements], strict=True),
        _for_each_leaf(first, shapes, "padded_shapes", shared=False),
        _for_each_leaf(first, values, "padding_values", shared=True),
        strict=True,
    )
    stacked = [_stack(path, leaves, shape, value) for path, leaves, shape, value in components]
    return nest.repacked(first, stacked)


def _for_each_leaf(element: Any, given: Any, name: str, *, shared: bool) -> list[Any]:
    """What is `given` for each leaf of the element; a tuple beside a leaf is itself a value."""
    steps = nest.steps_into(element)
    if steps is None:
        return [given]
    if given is None or (shared and nest.steps_into(given) is None):
        return [given] * len(nest.flatten(element))
    own = dict(nest.steps_into(given) or [])
    if own.keys() != dict(steps).keys():
        raise ValueError(
            f"{name} must have the structure of an element, whose parts are "
            f"{', '.join(step for step, _ in steps)}, got {given!r}."
        )
    follow = partial(_for_each_leaf, name=name, shared=shared)
    return [leaf for step, child in steps for leaf in follow(child, own[step])]


def _stack(path: str, leaves: Sequence[Any], shape: Any, value: Any) -> Any:
    if all(leaf is None for leaf in leaves):
        return None
    arrays = [np.asarray(leaf) for leaf in leaves]
    dtype = np.result_type(*{array.dtype for array in arrays})
    for index, array in enumerate(arrays):
        if array.dtype.kind != arrays[0].dtype.kind or array.ndim != arrays[0].ndim:
            raise ValueError(
                f"padded_batch cannot stack {path}: the first is {_described(arrays[0])}, number "
                f"{index} is {_described(array)}. Only sizes may differ."
            )
    target = _target_shape(path, arrays, shape)
    fill = _default_fill(dtype) if value is None else value
    batch = np.full((len(arrays), *target), fill, dtype)
    for row, array in zip(batch, arrays, strict=True) if target else ():
        row[tuple(slice(size) for size in array.shape)] = array
    if not target:
        batch[:] = arrays
    return batch


def _target_shape(path: str, arrays: Sequence[np.ndarray], shape: Any) -> tuple[int, ...]:
    largest = tuple(max(sizes) for sizes in zip(*[a.shape for a in arrays], strict=True))
    if shape is None:
        return largest
    wanted = tuple(
        size if size not in (None, -1) else most for size, most in _pairs(shape, largest)
    )
    if len(tuple(shape)) != len(largest) or any(
        w < m for w, m in zip(wanted, largest, strict=True)
    ):
        raise ValueError(
            f"padded_shapes must hold every element, got {tuple(shape)} for {path}, which comes up "
            f"to {largest}. Give larger sizes, or None for the largest of each batch."
        )
    return wanted


def _pairs(shape: Any, largest: tuple[int, ...]) -> Any:
    return zip(tuple(shape), largest, strict=False)


def _default_fill(dtype: np.dtype[Any]) -> Any:
    return dtype.type()


def _described(array: np.ndarray) -> str:
    return f"{array.dtype} of rank {array.ndim}"
