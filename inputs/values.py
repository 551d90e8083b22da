"""What an element of a dataset is made of: turning values into arrays, stacking, copying.

An element is a nested structure whose leaves are NumPy arrays, NumPy scalars or None. As in
tf.data, a Python list is a value (it becomes one array), not a structure.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from . import nest

Convert = Callable[..., Any]
"""`convert(value, path="")` makes an element of a value; errors begin their paths with `path`."""

_NUMBERS = (int, float, np.number)
_ALIKE = (
    frozenset({str, np.str_}),
    frozenset({bytes, np.bytes_}),
    frozenset({bool, np.bool_}),
)


@final
@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one array: of a component of an element, or of what a function takes.

    Args:
        shape: Its lengths; None is one that may vary, and in the place of all of them any shape.
        dtype: NumPy's, or its name.
        name: What it stands for, if that is of interest; specs of different names are equal.
        example: A batch of it, as `from_batch` keeps one; an export tries its model with that.

    Raises:
        ValueError: A length is negative.
    """

    shape: Any
    dtype: Any = np.float32
    name: str | None = field(default=None, compare=False)
    example: NDArray[Any] | None = field(default=None, compare=False, kw_only=True)

    @classmethod
    def from_batch(cls, batch: Any) -> TensorSpec:
        """The spec of which this array is a batch, of any size; it is kept as the example."""
        array = np.asarray(batch)
        if not array.ndim or not len(array):
            raise ValueError(
                f"an input is described by a TensorSpec or by a batch, an array with at least one "
                f"example along its first axis; got shape {array.shape}"
            )
        return cls((None, *array.shape[1:]), array.dtype, example=array)

    def __post_init__(self) -> None:
        lengths = None if self.shape is None else tuple(self.shape)
        if any(length is not None and length < 0 for length in lengths or ()):
            raise ValueError(f"shape must have lengths ≥ 0 or None, it is {lengths}")
        object.__setattr__(self, "shape", lengths)
        object.__setattr__(self, "dtype", np.dtype(self.dtype))

    def __repr__(self) -> str:
        named = "" if self.name is None else f", name={self.name!r}"
        return f"TensorSpec(shape={self.shape}, dtype={self.dtype}{named})"

    def has_shape(self, shape: Sequence[int]) -> bool:
        """Whether an array of this shape is one of these."""
        return self.shape is None or (
            len(shape) == len(self.shape)
            and all(want in (None, have) for want, have in zip(self.shape, shape, strict=True))
        )


@final
@dataclass(frozen=True)
class DatasetSpec:
    """A component that is a dataset itself, as in a window.

    Args:
        element_spec: The spec of its elements.
        dataset_shape: For tf.data's signature: a component is one dataset and no array of them.

    Raises:
        ValueError: `dataset_shape` has lengths.
    """

    element_spec: Any
    dataset_shape: Any = ()

    def __post_init__(self) -> None:
        lengths = tuple(self.dataset_shape or ())
        if lengths:
            raise ValueError(f"dataset_shape must be (), for one dataset, got {lengths}.")
        object.__setattr__(self, "dataset_shape", lengths)


def _conversion(as_array: Callable[[Any, str], Any]) -> Convert:
    """The function that turns the leaves of a value into arrays by `as_array`."""

    def convert(value: Any, path: str = "") -> Any:
        kind = type(value)
        if kind is np.ndarray or value is None:
            return value
        if isinstance(value, np.generic):
            if kind in (np.str_, np.bytes_):
                _require_no_nul_at_end(value, path)
            return value
        if kind is tuple:
            return tuple([convert(item, f"{path}[{i}]") for i, item in enumerate(value)])
        if isinstance(value, dict):
            result = {} if kind is dict else copy.copy(value)
            for key, item in value.items():
                result[key] = convert(item, f"{path}[{key!r}]")
            return result
        if isinstance(value, tuple):
            steps = nest.steps_into(value) or []
            return nest.rebuild(value, [convert(item, path + step) for step, item in steps])
        return as_array(value, path)

    return convert


def as_text(text: str) -> np.str_:
    """The text as NumPy's, which would lose a NUL at its end: that is refused."""
    if text.endswith("\0"):
        raise ValueError(f"{text[-20:]!r} ends with a NUL; is this text, and its encoding UTF-8?")
    return np.str_(text)


def map_arrays(function: Callable[[Any], Any], element: Any) -> Any:
    """Applies `function` to every leaf that is not None."""
    kind = type(element)
    if kind is np.ndarray:
        return function(element)
    if kind is tuple:
        return tuple([map_arrays(function, item) for item in element])
    return nest.map_structure(lambda leaf: None if leaf is None else function(leaf), element)


def rows_of(arrays: Any, rows: list[int]) -> list[Any]:
    """The elements that the given rows of the arrays make, as views."""
    kind = type(arrays)
    if kind is np.ndarray:
        return [arrays[row] for row in rows]
    if kind is tuple and arrays:
        return list(zip(*[rows_of(item, rows) for item in arrays], strict=True))
    steps = nest.steps_into(arrays)
    if not steps:
        return [arrays] * len(rows)
    columns = [rows_of(item, rows) for _, item in steps]
    return [nest.rebuild(arrays, list(items)) for items in zip(*columns, strict=True)]


def frozen_copy(element: Any) -> Any:
    """A copy whose arrays refuse to be written to, for elements that are handed out repeatedly."""
    return map_arrays(lambda leaf: read_only_view(np.array(leaf)), element)


def read_only_view(array: np.ndarray) -> np.ndarray:
    """`array` without the right to change it."""
    view = array.view()
    view.flags.writeable = False
    return view


def spec_of(element: Any) -> Any:
    """The `TensorSpec` of each leaf."""
    return map_arrays(lambda leaf: TensorSpec(leaf.shape, leaf.dtype), element)


def _as_array(value: Any, path: str) -> np.ndarray:
    place = f"The component {path}" if path else "The value"
    # A memory map is the usual subclass, and the first use of `np.ma` imports it.
    is_other_array = isinstance(value, np.ndarray) and not isinstance(value, np.memmap)
    if is_other_array and np.ma.is_masked(value):
        raise ValueError(
            f"{place} is an array with masked values, which would be taken for values. Give "
            "filled(...), or leave out the rows."
        )
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{place} ({type(value).__name__}) cannot become an array: {str(error).rstrip('.')}. "
            "Give rows of equal length, or one component for each of them."
        ) from error
    held = value
    if array.dtype.kind == "O":
        held = array.tolist()
        array = _unboxed(array, f"{place} ({type(value).__name__})")
    kind = array.dtype.kind
    if kind in "SU":
        _require_no_nul_at_end(held, path)
    if kind == "f" and array.dtype == np.float64 and not _has_dtype(value):
        return array.astype(np.float32)
    return array


def _as_exact_array(value: Any, path: str) -> np.ndarray:
    array = _as_array(value, path)
    was_cut = array.dtype == np.float32 and not _has_dtype(value)
    return np.asarray(value) if was_cut else array


as_element = _conversion(_as_array)
"""Turns the leaves of a value into arrays; a leaf that cannot be one is named in an error.

Python floats become float32 and Python ints int64; whatever has a dtype keeps it.
"""

as_exact_element = _conversion(_as_exact_array)
"""The same, with Python floats as float64: for who knows which dtype they are to get."""


def _unboxed(array: np.ndarray, place: str) -> np.ndarray:
    """Convert an array of Python's texts, bytes or numbers to the dtype that holds them.

    pandas gives such arrays for columns of texts, of categories, and of integers that may be
    missing. Texts beside something else are refused: NumPy would make the text 'nan' of a NaN.
    """
    items = array.ravel().tolist()
    kinds = {type(item) for item in items}
    are_numbers = all(issubclass(kind, _NUMBERS) and kind is not bool for kind in kinds)
    if kinds and (are_numbers or any(kinds <= alike for alike in _ALIKE)):
        found = np.array(items)
        if found.dtype.kind != "O":  # an integer beyond 64 bits stays one
            return found.reshape(array.shape)
    first = {type(item): i for i, item in reversed(list(enumerate(items)))}
    found_there = ", ".join(f"{items[i]!r:.40} at position {i}" for i in sorted(first.values()))
    raise TypeError(
        f"{place} is not made of numbers or strings alone: it holds {found_there or 'nothing'}. "
        "Give a NumPy array, a number, a string or a list of them, and fill in what is missing."
    )


def _require_no_nul_at_end(value: Any, path: str) -> None:
    if _ends_with_nul(value):
        place = f"The component {path}" if path else "The value"
        raise ValueError(
            f"{place} ends with a NUL, which NumPy's texts and bytes lose there. Give the bytes as "
            "numbers: np.frombuffer(value, np.uint8)."
        )


def _ends_with_nul(value: Any) -> bool:
    """Whether a text or bytes, or one in a list of them, ends with a NUL."""
    if isinstance(value, list | tuple):
        return any(_ends_with_nul(item) for item in value)
    if isinstance(value, bytes):
        return value.endswith(b"\0")
    return isinstance(value, str) and value.endswith("\0")


def _has_dtype(value: Any) -> bool:
    """Whether the value, or the innermost item of its lists, chose its own dtype."""
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return hasattr(value, "dtype")


def stack_elements(elements: Sequence[Any]) -> Any:
    """One batch of the elements: each component gets a new leading axis. They must be alike."""
    return nest.map_with_path(_stack, *elements)


def merged_batches(size: int, pieces: list[tuple[NDArray[np.int64], Any]]) -> Any:
    """One batch of `size` elements from several, each with the places that its elements take."""
    places = [where for where, _ in pieces]

    def merge(path: str, *parts: Any) -> Any:
        first = parts[0]
        if _all_none(path, parts):
            return None
        batch = np.empty((size, *first.shape[1:]), _common_dtype(path, parts))
        for where, part in zip(places, parts, strict=True):
            if part.shape[1:] != first.shape[1:]:
                raise _unlike_shapes(path, first.shape[1:], part.shape[1:])
            batch[where] = part
        return batch

    return nest.map_with_path(merge, *[piece for _, piece in pieces])


def _stack(path: str, *leaves: Any) -> Any:
    if _all_none(path, leaves):
        return None
    shape = leaves[0].shape
    batch = np.empty((len(leaves), *shape), _common_dtype(path, leaves))
    for index, leaf in enumerate(leaves):
        if leaf.shape != shape:
            raise _unlike_shapes(path, shape, leaf.shape, index)
        batch[index] = leaf
    return batch


def _all_none(path: str, leaves: Sequence[Any]) -> bool:
    """Whether the component is missing in all elements; an error if it is in some."""
    num_missing = sum(leaf is None for leaf in leaves)
    if 0 < num_missing < len(leaves):
        raise _unstackable(path, "a value in one element", "None in another")
    return num_missing > 0


def _common_dtype(path: str, leaves: Sequence[Any]) -> np.dtype[Any]:
    """The dtype of all leaves; of texts, the widest."""
    first = leaves[0].dtype
    if first.kind in "SU" and all(leaf.dtype.kind == first.kind for leaf in leaves):
        return max((leaf.dtype for leaf in leaves), key=attrgetter("itemsize"))
    for index, leaf in enumerate(leaves):
        if leaf.dtype != first:
            raise _unstackable(
                path,
                f"dtype {first} in the first element",
                f"dtype {leaf.dtype} in element {index}",
            )
    return first


def _unlike_shapes(path: str, first: Any, other: Any, index: int | None = None) -> ValueError:
    which = "another" if index is None else f"element {index}"
    return _unstackable(path, f"shape {first} in the first element", f"shape {other} in {which}")


def _unstackable(path: str, first: str, other: str) -> ValueError:
    place = f"component {path}" if path else "its elements"
    return ValueError(
        f"batch cannot stack {place}: {first}, {other}. "
        "Make them alike with map() before batch(), or use batch(1)."
    )
