"""Checks of arguments that several modules share."""

from __future__ import annotations

import operator
from enum import Enum
from typing import Any


def checked_count(name: str, value: Any, minimum: int, *, hint: str = "") -> int:
    """`value` as an int of at least `minimum`, or an error that names the argument."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}. {hint}".rstrip())
    try:
        number = operator.index(value)
    except TypeError:
        found = f"{value!r} ({type(value).__name__})"
        raise TypeError(f"{name} must be an integer, got {found}. {hint}".rstrip()) from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}. {hint}".rstrip())
    return number


def checked_shard(num_shards: Any, index: Any, count_name: str, index_name: str) -> tuple[int, int]:
    """A (count, index) pair with 0 <= index < count."""
    count = checked_count(count_name, num_shards, 1)
    position = checked_count(index_name, index, 0)
    if position >= count:
        raise ValueError(
            f"{index_name} must be below {count_name} = {count}, got {position}. "
            f"Number the shards from 0 to {count - 1}."
        )
    return count, position


def checked_bool(name: str, value: Any) -> bool:
    """`value`, if it is True or False."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return value


def checked_choice(name: str, value: Any, kind: type[Enum]) -> Any:
    """`value`, if it is a member of the enumeration."""
    if not isinstance(value, kind):
        choices = " or ".join(str(choice) for choice in kind)
        raise TypeError(f"{name} must be {choices}, got {value!r}.")
    return value


def checked_function(name: str, value: Any, of: str = "an element") -> Any:
    """`value`, if it can be called."""
    if not callable(value):
        raise TypeError(f"{name} must be a function of {of}, got {type(value).__name__}.")
    return value
