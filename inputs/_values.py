"""What an element of a dataset is made of: turning values into arrays, stacking, copying.

An element is a nested structure whose leaves are NumPy arrays, NumPy scalars or None. As in
tf.data, a Python list is a value (it becomes one array), not a structure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from . import nest


@final
@dataclass(frozen=True)
class ArraySpec:
    """Shape and dtype of one component of an element; None is a dimension that may vary."""

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]


def as_element(value: Any, path: str = "") -> Any:
    """Turns the leaves of `value` into arrays.

    Python floats become float32 and Python ints int64; whatever has a dtype keeps it.

    Raises:
        TypeError, ValueError: a leaf is no array of numbers or strings; the message names it.
    """
    kind = type(value)
    if kind is np.ndarray or value is None or isinstance(value, np.generic):
        return value
    if kind is tuple:
        return tuple([as_element(item, f"{path}[{i}]") for i, item in enumerate(value)])
    if isinstance(value, dict):
        result = {} if kind is dict else copy.copy(value)
        for key, item in value.items():
            result[key] = as_element(item, f"{path}[{key!r}]")
        return result
    if isinstance(value, tuple):
        steps = nest.steps_into(value) or []
        return nest.rebuild(value, [as_element(item, path + step) for step, item in steps])
    return _as_array(value, path)


def map_arrays(function: Callable[[Any], Any], element: Any) -> Any:
    """Applies `function` to every leaf that is not None."""
    kind = type(element)
    if kind is np.ndarray:
        return function(element)
    if kind is tuple:
        return tuple([map_arrays(function, item) for item in element])
    return nest.map_structure(lambda leaf: None if leaf is None else function(leaf), element)


def stack_elements(elements: Sequence[Any]) -> Any:
    """One batch of the elements: each component gets a new leading axis.

    Raises:
        ValueError: the structures, shapes or dtypes differ; the message names the component.
    """
    return nest.map_with_path(_stack, *elements)


def frozen_copy(element: Any) -> Any:
    """A copy whose arrays refuse to be written to, for elements that are handed out repeatedly."""
    return map_arrays(_frozen_array, element)


def read_only_view(array: np.ndarray) -> np.ndarray:
    """`array` without the right to change it."""
    view = array.view()
    view.flags.writeable = False
    return view


def spec_of(element: Any) -> Any:
    """The `ArraySpec` of each leaf."""
    return map_arrays(lambda leaf: ArraySpec(leaf.shape, leaf.dtype), element)


def _as_array(value: Any, path: str) -> np.ndarray:
    place = f"The component {path}" if path else "The value"
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{place} ({type(value).__name__}) cannot become an array: {error}. "
            "Give rows of equal length, or one component for each of them."
        ) from error
    if array.dtype == object:
        raise TypeError(
            f"{place} ({type(value).__name__}) is not made of numbers or strings. "
            "Give a NumPy array, a number, a string or a list of them."
        )
    if array.dtype == np.float64 and not _has_dtype(value):
        return array.astype(np.float32)
    return array


def _has_dtype(value: Any) -> bool:
    """Whether the value, or the innermost item of its lists, chose its own dtype."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return hasattr(value, "dtype")


def _stack(path: str, *leaves: Any) -> Any:
    first = leaves[0]
    if any(leaf is None for leaf in leaves):
        if all(leaf is None for leaf in leaves):
            return None
        raise _unstackable(path, "a value in one element", "None in another")
    shape, dtype = first.shape, first.dtype
    is_text = dtype.kind in "SU"
    widest = max((leaf.dtype for leaf in leaves), key=_item_bytes) if is_text else dtype
    batch = np.empty((len(leaves), *shape), widest)
    for index, leaf in enumerate(leaves):
        if leaf.shape != shape:
            raise _unstackable(path, f"shape {shape} in one", f"shape {leaf.shape} in another")
        if leaf.dtype != dtype and not (is_text and leaf.dtype.kind == dtype.kind):
            raise _unstackable(path, f"dtype {dtype} in one", f"dtype {leaf.dtype} in another")
        batch[index] = leaf
    return batch


def _item_bytes(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize


def _unstackable(path: str, first: str, other: str) -> ValueError:
    place = f"component {path}" if path else "its elements"
    return ValueError(
        f"batch cannot stack {place}: {first}, {other}. "
        "Make them alike with map() before batch(), or use batch(1)."
    )


def _frozen_array(leaf: Any) -> Any:
    array = np.array(leaf)
    array.flags.writeable = False
    return array
