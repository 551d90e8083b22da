"""What a layer holds of layers: as attributes, and in lists, tuples and dicts among them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any


def objects_in(values: Iterable[Any], kind: type) -> Iterator[Any]:
    """The objects of a kind among some values and, one level down, in their lists and dicts.

    Args:
        values: Those of attributes, in the order in which these were set.
        kind: A class; each of its objects is given once.
    """
    seen: set[int] = set()
    for value in values:
        members: Iterable[Any] = (value,)
        if isinstance(value, list | tuple):
            members = value
        elif isinstance(value, dict):
            members = list(value.values())  # replicas share it, and one may fill it meanwhile
        for member in members:
            if isinstance(member, kind) and id(member) not in seen:
                seen.add(id(member))
                yield member
