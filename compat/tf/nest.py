"""`tf.nest`: nested structures of tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import inputs
from ..names import NameTable, serve
from .advice import advice

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))


def flatten(structure: Any, expand_composites: bool = False) -> list[Any]:
    """The leaves in order; those of dicts in the order of sorted keys."""
    if isinstance(structure, dict):
        return [leaf for key in sorted(structure) for leaf in flatten(structure[key])]
    if isinstance(structure, list | tuple):
        return [leaf for item in structure for leaf in flatten(item)]
    return [structure]


def is_nested(structure: Any) -> bool:
    """Whether it is a tuple, list or dict."""
    return isinstance(structure, dict | list | tuple)


def map_structure(func: Callable[..., Any], *structure: Any, **hints: Any) -> Any:
    """The function of the leaves of one or several equal structures."""
    first = structure[0]
    if isinstance(first, list):
        pairs = zip(*structure, strict=True)
        return [map_structure(func, *items) for items in pairs]
    if isinstance(first, dict):
        return {key: map_structure(func, *[s[key] for s in structure]) for key in first}
    if isinstance(first, tuple):
        items = [map_structure(func, *parts) for parts in zip(*structure, strict=True)]
        return inputs.nest.rebuild(first, items)
    return func(*structure)


def pack_sequence_as(structure: Any, flat_sequence: Any, expand_composites: bool = False) -> Any:
    """The structure with these leaves, in the order of `flatten`."""
    return _packed(structure, iter(flat_sequence))


def _packed(structure: Any, leaves: Any) -> Any:
    if isinstance(structure, dict):
        packed = {key: _packed(structure[key], leaves) for key in sorted(structure)}
        return {key: packed[key] for key in structure}
    if isinstance(structure, list):
        return [_packed(item, leaves) for item in structure]
    if isinstance(structure, tuple):
        return inputs.nest.rebuild(structure, [_packed(item, leaves) for item in structure])
    return next(leaves)


def assert_same_structure(nest1: Any, nest2: Any, *unused: Any, **hints: Any) -> None:
    """Refuse structures that differ."""
    map_structure(lambda a, b: None, nest1, nest2)
