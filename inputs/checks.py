"""Checks of what comes from outside: arguments, and the fields of saved states.

A state comes from a file: of another version, say, or damaged. So each iterator names the fields
of its state and what they are before it uses any of them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, final

LARGEST_COUNT = 1 << 62
"""No position lies beyond: they are computed in 64 bits."""


@final
class Kind(NamedTuple):
    """What a field may be: in words, and as a test."""

    text: str
    allows: Callable[[Any], bool]


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return _is_integer(value) and 0 <= value < LARGEST_COUNT


COUNT = Kind("an integer from 0 on", _is_count)
COUNT_OR_NONE = Kind("an integer from 0 on, or null", lambda v: v is None or _is_count(v))
INTEGER = Kind("an integer", _is_integer)
FLAG = Kind("true or false", lambda v: isinstance(v, bool))
TEXT = Kind("a text", lambda v: isinstance(v, str))
COUNTS = Kind("a list of integers from 0 on", lambda v: _is_list_of(_is_count, v))
STATE = Kind("a state", lambda v: True)
"""Of another iterator, which checks it."""


def checked_count(name: str, value: Any, minimum: int) -> int:
    """`value` as an int of at least `minimum`, or an error that names the argument."""
    if isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    try:
        number = operator.index(value)
    except TypeError:
        found = f"{value!r} ({type(value).__name__})"
        raise TypeError(f"{name} must be an integer, got {found}.") from None
    if number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, got {number}.")
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
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}.")
    return value


def check_hints(num_parallel_calls: Any, deterministic: Any) -> None:
    """Refuse what tf.data would refuse, of arguments that change nothing or little here."""
    if num_parallel_calls is not None:
        checked_count("num_parallel_calls", num_parallel_calls, -1)
    if deterministic is not None:
        checked_bool("deterministic", deterministic)


def checked_choice(name: str, value: Any, kind: type[Enum]) -> Any:
    if not isinstance(value, kind):
        choices = " or ".join(str(choice) for choice in kind)
        raise TypeError(f"{name} must be {choices}, got {value!r}.")
    return value


def checked_function(name: str, value: Any, of: str = "an element") -> Any:
    if not callable(value):
        raise TypeError(f"{name} must be a function of {of}, got {type(value).__name__}.")
    return value


def list_of_states(length: int) -> Kind:
    """One state each of `length` iterators."""
    return Kind(f"a list of {length} states", lambda v: isinstance(v, list) and len(v) == length)


def _is_list_of(allows: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, list) and all(map(allows, value))


def checked_fields(state: Any, kinds: Mapping[str, Kind]) -> dict[str, Any]:
    """`state`, if it is a dict of just these fields; else a ValueError."""
    if not isinstance(state, dict) or state.keys() != kinds.keys():
        raise refused(f"of the fields {sorted(kinds)}", state)
    for name, kind in kinds.items():
        checked(state[name], kind, name)
    return state


def checked(value: Any, kind: Kind, name: str = "the state") -> Any:
    """`value`, if it is of the kind; else a ValueError."""
    if not kind.allows(value):
        raise refused(f"in which {name} is {kind.text}", value)
    return value


def refused(expected: str, found: Any) -> ValueError:
    """The error for a state that an iterator cannot take: `expected` is "a state …"."""
    return ValueError(
        f"The iterator cannot take this state: a state {expected} is expected here, got "
        f"{found!r:.200}. It was saved by another version, by other transformations, or is "
        "damaged; give what get_state() of a dataset's iterator returned, or begin anew."
    )


def read_again(read: Callable[[], Any]) -> Any:
    """The element that `read` gives, of which a state says that it is there: no StopIteration."""
    try:
        return read()
    except StopIteration:
        raise ValueError(
            "The iterator cannot take this state: the dataset's source ends before an element "
            "that had been read when the state was saved. Begin anew, or restore the source."
        ) from None
