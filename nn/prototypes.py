"""Objects that are made again and again of the same arguments: the first is the others' prototype.

A `model_fn` makes its layers anew in each step, and in each of the same arguments. What `__init__`
checks, looks up by name and works out of them comes to the same, and so a new object gets a copy of
what the first one was after it. It is a new object nevertheless: what is set on it is its own.

That is done where nobody can tell: for classes of this package alone, of which it is known that
they look at nothing but their arguments, and where none of these can change, as numbers, texts and
functions of a module cannot.
"""

from __future__ import annotations

import enum
from abc import ABCMeta
from dataclasses import fields, is_dataclass
from types import FunctionType, NoneType
from typing import Any, Final, NamedTuple

import numpy as np

_MOST = 1000
"""How many there are at most: who computes a layer's arguments makes others in each step."""


class Fixed(dict[str, Any]):
    """A dict that nobody changes: objects that have it may share it."""


class _Prototype(NamedTuple):
    """What objects of certain arguments begin with.

    Args:
        state: For their `begin_as`; None where they have to be made.
        exactly: Tells apart what is equal within tuples, as (1, 1), (1.0, 1.0) and (True, True).
    """

    state: dict[str, Any] | None
    exactly: str


_prototypes: dict[Any, _Prototype] = {}


class Prototyped(ABCMeta):
    """The metaclass of classes that may have prototypes.

    Attributes:
        has_prototypes: Whether this one does: then `as_prototype()` of a new object gives what
            others of the same arguments begin with (None: they cannot), by `begin_as(state)`.
    """

    has_prototypes = False
    __instancecheck__ = type.__instancecheck__  # a tenth of ABCMeta's time; nobody is registered

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if not cls.has_prototypes:
            return super().__call__(*args, **kwargs)
        values = (*args, *kwargs.values())
        # By types as well: 1 and True are equal, and not the same to a constructor.
        key = (*values, *kwargs, *map(type, values), cls)
        try:
            prototype = _prototypes.get(key)
        except TypeError:  # an argument has no hash, and may change
            return super().__call__(*args, **kwargs)
        if prototype is None:
            made: Any = super().__call__(*args, **kwargs)
            if all(map(never_changes, values)):
                _keep(key, made.as_prototype(), values)
            return made
        state = prototype.state
        if state is None or (prototype.exactly and prototype.exactly != repr(values)):
            return super().__call__(*args, **kwargs)
        made = object.__new__(cls)  # type: ignore[arg-type]
        made.__dict__["_arguments"] = (args, kwargs)
        made.begin_as(state)
        return made


def forget_prototypes() -> None:
    """Make all objects from the beginning: what their classes look at is another now."""
    _prototypes.clear()


def _keep(key: Any, state: dict[str, Any] | None, values: tuple[Any, ...]) -> None:
    if len(_prototypes) >= _MOST:
        _prototypes.clear()
    exactly = repr(values) if any(type(value) is tuple for value in values) else ""
    _prototypes[key] = _Prototype(state, exactly)


_PLAIN: Final[frozenset[type]] = frozenset({NoneType, bool, int, float, complex, str, bytes})
_NAMED = (np.dtype, np.ufunc, type, enum.Enum)


def never_changes(value: Any) -> bool:
    """Whether it stays what it is, and means what all mean that are equal to it, of its type."""
    kind = type(value)
    if kind in _PLAIN or isinstance(value, _NAMED) or getattr(kind, "is_fixed", False):
        return True
    if kind is FunctionType:  # but not one made in another, which may hold anything
        return "<" not in value.__qualname__
    if kind is tuple:
        return all(map(never_changes, value))
    if kind is Fixed:
        return all(map(never_changes, value.values()))
    return (
        is_dataclass(value)
        and kind.__dataclass_params__.frozen
        and all(never_changes(getattr(value, field.name)) for field in fields(value))
    )
