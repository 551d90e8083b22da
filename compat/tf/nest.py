"""`tf.nest`: nested structures of tuples, lists and dicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ... import inputs
from ..names import NameTable, serve
from .advice import advice
from .arguments import adapt_all

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


def map_structure(
    func: Callable[..., Any],
    *structure: Any,
    check_types: bool = True,
    expand_composites: bool = False,
) -> Any:
    """The function of the leaves of one or several equal structures."""
    for other in structure[1:]:
        assert_same_structure(structure[0], other, check_types)
    return _mapped(func, *structure)


def _mapped(func: Callable[..., Any], *structure: Any) -> Any:
    first = structure[0]
    if isinstance(first, list):
        pairs = zip(*structure, strict=True)
        return [_mapped(func, *items) for items in pairs]
    if isinstance(first, dict):
        return {key: _mapped(func, *[s[key] for s in structure]) for key in first}
    if isinstance(first, tuple):
        items = [_mapped(func, *parts) for parts in zip(*structure, strict=True)]
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


def assert_same_structure(
    nest1: Any, nest2: Any, check_types: bool = True, expand_composites: bool = False
) -> None:
    """Refuse structures that differ.

    Raises:
        ValueError: Lengths, keys or, with `check_types`, the kinds of containers differ.
    """
    if is_nested(nest1) != is_nested(nest2):
        raise ValueError(f"the structures differ: {nest1!r} and {nest2!r}")
    if not is_nested(nest1):
        return
    is_dict = isinstance(nest1, dict)
    if (check_types and type(nest1) is not type(nest2)) or is_dict != isinstance(nest2, dict):
        raise ValueError(f"the structures differ: {type(nest1)} and {type(nest2)}")
    if len(nest1) != len(nest2) or (is_dict and nest1.keys() != nest2.keys()):
        raise ValueError(f"the structures differ: {nest1!r} and {nest2!r}")
    keys = nest1 if is_dict else range(len(nest1))
    for key in keys:
        assert_same_structure(nest1[key], nest2[key], check_types)


adapt_all(globals(), "tf.nest")
