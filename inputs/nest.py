"""Nested structures: dicts, lists, tuples and namedtuples whose leaves are anything else.

`None` is a leaf. Dicts keep the order in which their keys were inserted; where several structures
are walked together, their dicts are matched by key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np


def flatten(structure: Any) -> list[Any]:
    """The leaves of `structure`, depth first, in the order of `paths(structure)`."""
    children = _children(structure)
    if children is None:
        return [structure]
    return [leaf for child in children for leaf in flatten(child)]


def paths(structure: Any, root: str = "") -> list[str]:
    """The path of each leaf as Python would spell it: `features['image']`, `[0].mean`.

    In the order of `flatten(structure)`; `root` is what the structure itself is called.
    """
    children = steps_into(structure)
    if children is None:
        return [root]
    return [path for step, child in children for path in paths(child, root + step)]


def map_structure(function: Callable[..., Any], structure: Any, *others: Any) -> Any:
    """`function` of the leaves at each place, in a structure like the first."""
    if others:
        return map_with_path(lambda _, *leaves: function(*leaves), structure, *others)
    return _map_one(function, structure)


def map_with_path(
    function: Callable[..., Any], structure: Any, *others: Any, root: str = ""
) -> Any:
    """`map_structure`, with the path of the leaves as the function's first argument."""
    kind = type(structure)
    if kind is np.ndarray and all(type(other) is kind for other in others):
        return function(root, structure, *others)
    steps = steps_into(structure)
    if steps is None:
        _require_leaves(structure, others, root)
        return function(root, structure, *others)
    children: list[Sequence[Any]] = [[child for _, child in steps]]
    children += [_matching_children(structure, other, root) for other in others]
    results = [
        map_with_path(function, *column, root=root + step)
        for (step, _), column in zip(steps, zip(*children, strict=True), strict=True)
    ]
    return rebuild(structure, results)


def leaves_in_order_of(first: Any, structure: Any) -> list[Any]:
    """The leaves of `structure`, in the order of `flatten(first)`; a ValueError if they differ."""
    leaves: list[Any] = []
    map_structure(lambda _, leaf: leaves.append(leaf), first, structure)
    return leaves


def repacked(structure: Any, leaves: Iterable[Any]) -> Any:
    """A structure like `structure`, with `leaves` in the order of `flatten(structure)`."""
    remaining = iter(leaves)
    return map_structure(lambda _: next(remaining), structure)


def batch_size(structure: Any, names: Sequence[str] = ()) -> int:
    """The leading dimension that all arrays of `structure` share; leaves that are None have none.

    `names` are what the items of a top-level tuple are called in errors: ("features", "labels").
    """
    sizes: set[int | None] = set()
    _collect_sizes(structure if type(structure) is tuple else (structure,), sizes)
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None:
        raise _batch_size_error(structure, names)
    return size


def _map_one(function: Callable[[Any], Any], structure: Any) -> Any:
    kind = type(structure)
    if kind is np.ndarray:
        return function(structure)
    if kind is tuple:
        return tuple([_map_one(function, item) for item in structure])
    if kind is dict:
        return {key: _map_one(function, item) for key, item in structure.items()}
    children = _children(structure)
    if children is None:
        return function(structure)
    return rebuild(structure, [_map_one(function, child) for child in children])


def steps_into(structure: Any) -> list[tuple[str, Any]] | None:
    """The steps into a structure and what lies there; None for a leaf."""
    if isinstance(structure, dict):
        return [(f"[{key!r}]", item) for key, item in structure.items()]
    if _is_namedtuple(structure):
        return [(f".{name}", getattr(structure, name)) for name in structure._fields]
    if isinstance(structure, tuple | list):
        return [(f"[{index}]", item) for index, item in enumerate(structure)]
    return None


def _children(structure: Any) -> Iterable[Any] | None:
    """What `steps_into` leads to."""
    if isinstance(structure, dict):
        return structure.values()
    return structure if isinstance(structure, (tuple, list)) else None


def _is_namedtuple(structure: Any) -> bool:
    return isinstance(structure, tuple) and hasattr(structure, "_fields")


def rebuild(like: Any, items: list[Any]) -> Any:
    """A structure like `like` (which is no leaf) with `items` for its children."""
    if isinstance(like, dict):
        # A copy keeps what a dict's subclass carries besides its items (a defaultdict's factory).
        result = copy.copy(like)
        result.update(zip(like, items, strict=True))
        return result
    if _is_namedtuple(like):
        return type(like)(*items)
    return tuple(items) if isinstance(like, tuple) else items


def _require_leaves(structure: Any, others: Sequence[Any], path: str) -> None:
    for other in others:
        if steps_into(other) is not None:
            raise _mismatch(structure, other, path)


def _matching_children(structure: Any, other: Any, path: str) -> Sequence[Any]:
    """The children of `other` in the order of `structure`'s."""
    kind = type(structure)
    if kind is tuple:
        if type(other) is tuple and len(other) == len(structure):
            return other
    elif isinstance(structure, dict):
        if isinstance(other, dict) and structure.keys() == other.keys():
            return [other[key] for key in structure]
    elif type(other) is kind and len(other) == len(structure):
        return other
    raise _mismatch(structure, other, path)


def _mismatch(structure: Any, other: Any, path: str) -> ValueError:
    place = f"at {path}" if path else "at the top"
    return ValueError(
        f"The structures differ {place}: the first has {_describe(structure)}, another has "
        f"{_describe(other)}. Give all of them the same keys and lengths."
    )


def _describe(structure: Any) -> str:
    if isinstance(structure, dict):
        return f"a dict with the keys {list(structure)}"
    if isinstance(structure, tuple | list):
        return f"a {type(structure).__name__} of {len(structure)}"
    return f"a leaf ({type(structure).__name__})"


def _collect_sizes(children: Iterable[Any], sizes: set[int | None]) -> None:
    """Adds the leading dimension of each array; None for what has none."""
    for child in children:
        if type(child) is np.ndarray and child.ndim:
            sizes.add(len(child))
        elif (below := _children(child)) is not None:
            _collect_sizes(below, sizes)
        elif child is not None:
            shape = getattr(child, "shape", ())
            sizes.add(shape[0] if shape else None)


def _batch_size_error(structure: Any, names: Sequence[str]) -> ValueError:
    """Names the first leaf without a leading dimension, or the first two that disagree."""
    sizes: list[tuple[str, int]] = []
    for path, leaf in zip(_named_paths(structure, names), flatten(structure), strict=True):
        if leaf is None:
            continue
        shape = tuple(getattr(leaf, "shape", ()))
        if not shape:
            return ValueError(
                f"{path} has no leading dimension (it is a single {type(leaf).__name__}), so it "
                "is no batch. Give an array whose first axis counts the examples, as "
                "Dataset.batch does."
            )
        sizes.append((path, shape[0]))
    for path, size in sizes[1:]:
        if size != sizes[0][1]:
            return ValueError(
                f"{sizes[0][0]} has {sizes[0][1]} examples but {path} has {size}. Give all arrays "
                "of a batch the same leading dimension."
            )
    return ValueError("The structure holds no array, so it has no batch size.")


def _named_paths(structure: Any, names: Sequence[str]) -> list[str]:
    if names and isinstance(structure, tuple) and len(names) == len(structure):
        return [p for name, item in zip(names, structure, strict=True) for p in paths(item, name)]
    return paths(structure, names[0] if len(names) == 1 else "batch")
