"""Names that count up within a process, such as dense_1, matched with those of another one.

A variable is saved under the name that it has in its process: the second model that a process makes
has "dense_1/kernel" where the first has "dense/kernel". What belongs together is the order of the
numbers within a part of a checkpoint, and not the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

_COUNTED = re.compile(r"(.*?)(?:_(\d+))?$", re.DOTALL)


def without_counts(name: str) -> str:
    """A name whose components have lost their numbers."""
    return "/".join(_base_and_number(component)[0] for component in name.split("/"))


def names_here(
    saved: Mapping[str, Collection[str]], here: Mapping[str, Collection[str]]
) -> dict[str, str]:
    """The components of names in a checkpoint that are called otherwise here.

    In each part the components of one base are brought together in the order of their numbers, if
    there are as many here as in the checkpoint. A component that two parts would call differently
    keeps its name.

    Args:
        saved: By the part, the names in the checkpoint.
        here: By the part, the names of what exists here; further ones may come later.

    Returns:
        A component there → the component here.

    >>> names_here({"m": ["dense/kernel"], "o": ["adam/dense/m"]}, {"m": ["dense_3/kernel"]})
    {'dense': 'dense_3'}
    """
    found: dict[str, set[str]] = {}
    for part, names in here.items():
        is_same = set(names) <= set(saved[part])
        there, own = _by_base(saved[part]), _by_base(names)
        for base, components in own.items():
            others = components if is_same else there.get(base, [])
            if len(others) == len(components):
                for old, new in zip(others, components, strict=True):
                    found.setdefault(old, set()).add(new)
    return {old: next(iter(new)) for old, new in found.items() if len(new) == 1 and new != {old}}


def renamed(name: str, components: Mapping[str, str]) -> str:
    """A name whose components are called as a mapping says."""
    return "/".join(components.get(part, part) for part in name.split("/"))


def _by_base(names: Iterable[str]) -> dict[str, list[str]]:
    """The components of names by their base, in the order of their numbers."""
    found: dict[str, set[tuple[int, str]]] = {}
    for component in {part for name in names for part in name.split("/")}:
        base, number = _base_and_number(component)
        found.setdefault(base, set()).add((number, component))
    return {base: [component for _, component in sorted(of)] for base, of in found.items()}


def _base_and_number(component: str) -> tuple[str, int]:
    match = _COUNTED.fullmatch(component)
    assert match is not None  # the pattern fits any text
    return match[1], -1 if match[2] is None else int(match[2])
