"""Making batches: several elements, or several parts of a batch, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import nest


def stack_elements(elements: Sequence[Any]) -> Any:
    """One batch of the elements: each component gets a new leading axis.

    Raises:
        ValueError: the structures, shapes or dtypes differ; the message names the component.
    """
    return nest.map_with_path(_stack, *elements)


def merged_batches(size: int, pieces: list[tuple[NDArray[np.int64], Any]]) -> Any:
    """One batch of `size` elements from several, each with the places that its elements take.

    Raises:
        ValueError: the structures, shapes or dtypes differ; the message names the component.
    """
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
        return max((leaf.dtype for leaf in leaves), key=_item_bytes)
    for index, leaf in enumerate(leaves):
        if leaf.dtype != first:
            raise _unstackable(
                path,
                f"dtype {first} in the first element",
                f"dtype {leaf.dtype} in element {index}",
            )
    return first


def _item_bytes(dtype: np.dtype[Any]) -> int:
    return dtype.itemsize


def _unlike_shapes(path: str, first: Any, other: Any, index: int | None = None) -> ValueError:
    which = "another" if index is None else f"element {index}"
    return _unstackable(path, f"shape {first} in the first element", f"shape {other} in {which}")


def _unstackable(path: str, first: str, other: str) -> ValueError:
    place = f"component {path}" if path else "its elements"
    return ValueError(
        f"batch cannot stack {place}: {first}, {other}. "
        "Make them alike with map() before batch(), or use batch(1)."
    )
