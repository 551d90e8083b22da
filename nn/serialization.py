"""Objects as plain values and back: the name of a class, and the arguments it was made with.

What is written is JSON: numbers, texts, lists and dicts. Reading it never imports or runs what it
names: a name is looked up among the classes of this package and those that the reader hands in.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeAlias

import numpy as np

from ..autodiff import functions_by_name
from .prototypes import Prototyped

__all__ = ["Serializable", "custom_object_scope", "deserialize", "serialize"]

Config: TypeAlias = dict[str, Any]
"""The arguments of a constructor by name, as plain values."""

_OWN = "paceline.nn."
_FUNCTION_MODULES = ("paceline.autodiff.", "paceline.nn.activations", "paceline.nn.losses")
"""Where functions are that a file may name: they compute, and have no effect on anything else."""

_custom_objects: ContextVar[Mapping[str, Any]] = ContextVar(
    "paceline_custom_objects", default=MappingProxyType({})
)


class Serializable(metaclass=Prototyped):
    """Something that can be made again from the arguments that it was made with.

    A subclass need not do anything: the arguments are noted before its `__init__` runs. One whose
    arguments are not all that it is made of (a list that grew, a value that was changed) says so
    in `get_config`, and one that takes something else than arguments in `from_config`.
    """

    _classes: ClassVar[dict[tuple[str, str], type[Serializable]]] = {}
    _arguments: tuple[tuple[Any, ...], dict[str, Any]]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if _package_of(cls):
            Serializable._classes[_package_of(cls), cls.__name__] = cls
        # What the `__init__` of somebody else's class looks at is not known.
        can = cls.as_prototype is not Serializable.as_prototype
        cls.has_prototypes = bool(_package_of(cls)) and can

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        made = super().__new__(cls)
        # Many of them are frozen, and some are made anew in every step: nothing is looked at here.
        object.__setattr__(made, "_arguments", (args, kwargs))
        return made

    def as_prototype(self) -> dict[str, Any] | None:
        """What another object of the same arguments begins with; None where that has to be made.

        Asked of a new object; see `prototypes`.
        """
        return None

    def begin_as(self, prototype: dict[str, Any]) -> None:
        """Be what `__init__` would make of the same arguments; see `as_prototype`."""
        raise NotImplementedError

    def made_of(self) -> Any:
        """What makes it what it is: of objects made of the same each does what the other does."""
        try:
            config: Any = self.get_config()
        except TypeError:
            config = self._arguments
        return getattr(self, "name", None), config

    def get_config(self) -> Config:
        """The arguments of the constructor by name, as plain values.

        Raises:
            TypeError: One cannot be written down; it is named.
        """
        args, kwargs = self._arguments
        bound = self._signature().bind(*args, **kwargs)
        bound.apply_defaults()
        config: Config = {}
        for name, parameter in bound.signature.parameters.items():
            value = bound.arguments[name]
            if parameter.kind is parameter.VAR_KEYWORD:
                config |= value
            elif parameter.kind is parameter.VAR_POSITIONAL and value:
                raise TypeError(
                    f"{type(self).__name__} takes arguments without names (*{name}), which cannot "
                    f"be written down; define its get_config and from_config"
                )
            elif parameter.kind is not parameter.VAR_POSITIONAL:
                config[name] = value
        return {name: _plain(value, (type(self).__name__, name)) for name, value in config.items()}

    def taken(self, config: Config) -> Config:
        """Those of some arguments that the constructor takes."""
        parameters = self._signature().parameters
        takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
        return {name: value for name, value in config.items() if takes_all or name in parameters}

    @classmethod
    def _signature(cls) -> inspect.Signature:
        # Of `__init__` and not of the class, whose `__new__` takes anything.
        own = inspect.signature(cls.__init__)
        return own.replace(parameters=list(own.parameters.values())[1:])

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """One like that which gave the configuration.

        Args:
            config: What `get_config` returned, perhaps through JSON.
        """
        return cls(**{name: deserialize(value) for name, value in config.items()})


def serialize(value: Any) -> Any:
    """A value as plain ones.

    Objects of this package, and others that are `Serializable`, become a dict with "class_name" and
    "config" (and "module", where they are of this package); functions one with their name. Numbers,
    texts, None, lists, tuples, dicts with texts as keys, dtypes and arrays may stand in between.

    Raises:
        TypeError: It is something else, or a function without a name.
    """
    return _plain(value, ())


def deserialize(value: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """What `serialize` was given; objects are made anew.

    Args:
        value: What it returned, perhaps through JSON. An object is left as it is.
        custom_objects: Classes and functions that are not of this package, by their names.

    Raises:
        ValueError: It names something that is neither here nor there.
    """
    if custom_objects:
        with custom_object_scope(custom_objects):
            return deserialize(value)
    if isinstance(value, list | tuple):
        return type(value)(map(deserialize, value))
    if not isinstance(value, Mapping):
        return value
    if "class_name" not in value or "config" not in value:
        return {key: deserialize(part) for key, part in value.items()}
    name, config = value["class_name"], value["config"]
    special = _SPECIAL.get(name)
    if special is not None:
        return special(value)
    return _class_of(name, value.get("module")).from_config(config)


@contextmanager
def custom_object_scope(custom_objects: Mapping[str, Any]) -> Iterator[None]:
    """Let `deserialize`, `load_model` and `from_config` find these by name in the block."""
    token = _custom_objects.set({**_custom_objects.get(), **custom_objects})
    try:
        yield
    finally:
        _custom_objects.reset(token)


def _plain(value: Any, place: tuple[str, ...]) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        # A bare value of an enumeration that is a text (`Reduction`) would not compare in JSON.
        return value if type(value) in (bool, int, float, str, type(None)) else _bare(value)
    if isinstance(value, list | tuple):
        return [_plain(part, place) for part in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise TypeError(f"{_said(place)} has a dict whose keys are not all texts: {value!r}")
        return {key: _plain(part, (*place, key)) for key, part in value.items()}
    if isinstance(value, Serializable):
        described = {"class_name": type(value).__name__, "config": value.get_config()}
        module = _package_of(type(value))
        return _plain({"module": module, **described} if module else described, place)
    if isinstance(value, np.dtype) or (isinstance(value, type) and issubclass(value, np.generic)):
        return np.dtype(value).name
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return {"class_name": "array", "config": value.tolist(), "dtype": value.dtype.name}
    if isinstance(value, slice):
        return {"class_name": "slice", "config": [value.start, value.stop, value.step]}
    if value is Ellipsis:
        return {"class_name": "Ellipsis", "config": None}
    if callable(value):
        return {"class_name": "function", "config": _name_of(value, place)}
    raise TypeError(
        f"{_said(place)} is {value!r}, which cannot be written down; give a plain value, or "
        f"define get_config and from_config of the class that holds it"
    )


def _bare(value: Any) -> Any:
    kinds = (bool, int, float, str)
    return next(kind(value) for kind in kinds if isinstance(value, kind))


def _name_of(function: Callable[..., Any], place: tuple[str, ...]) -> str:
    """By what name a function is found again: a path in this package or NumPy, else its own."""
    for path, known in functions_by_name().items():
        if known is function:
            return path
    name = getattr(function, "__name__", None)
    if name is None or name == "<lambda>":
        raise TypeError(
            f"{_said(place)} is {function!r}, which has no name by which it could be found again; "
            f"define it with def (or as a class with __call__ and get_config), and give whoever "
            f"loads it custom_objects={{'its_name': its_name}}"
        )
    module = function.__module__ or ""
    return f"{module}.{name}" if module.startswith(_FUNCTION_MODULES) else name


def _function(value: Mapping[str, Any]) -> Callable[..., Any]:
    path = value["config"]
    known = functions_by_name().get(path) or _custom_objects.get().get(path)
    module, _, name = path.rpartition(".")
    if known is None and module.startswith(_FUNCTION_MODULES) and not name.startswith("_"):
        # Looked up, and never imported; and not what the module itself has from elsewhere.
        known = getattr(sys.modules.get(module), name, None)
        known = known if getattr(known, "__module__", None) == module else None
    if not callable(known):
        raise _unknown("function", path)
    return known


def _class_of(name: str, module: str | None) -> type[Serializable]:
    found = _custom_objects.get().get(name)
    if found is None and module is not None:
        found = Serializable._classes.get((module, name))
    if found is None:
        raise _unknown("class", name if module is None else f"{module}.{name}")
    if not hasattr(found, "from_config"):
        raise TypeError(f"custom object {name!r} must be a class with from_config, it is {found!r}")
    return found


def _unknown(kind: str, name: str) -> ValueError:
    return ValueError(
        f"{kind} {name!r} is not one of paceline's; pass it where this is loaded: "
        f"custom_objects={{{name.rpartition('.')[2]!r}: ...}}"
    )


def _package_of(cls: type) -> str:
    """The package of `paceline.nn` that a class belongs to; empty for classes of others."""
    module = cls.__module__
    return ".".join(module.split(".")[:3]) if module.startswith(_OWN) else ""


def _said(place: tuple[str, ...]) -> str:
    return f"{'.'.join(place[1:])} of {place[0]}" if place[1:] else (place or ("the value",))[0]


_SPECIAL: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "array": lambda value: np.array(value["config"], value["dtype"]),
    "slice": lambda value: slice(*value["config"]),
    "Ellipsis": lambda value: Ellipsis,
    "function": _function,
}
