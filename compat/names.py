"""Names of another library, found among the parts of this one when they are used.

A module of `compat` is a table: which packages here have the same names, which names have another
one here, and which functions stand beside it because arguments must be translated. Nothing is
imported before its name is used, and what a package here learns later is found without an edit.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

_PACKAGE = __name__.partition(".compat")[0]
_HERE = f"{_PACKAGE}.compat."
_OF_ARRAYS = ("tf", "v1", "math", "linalg", "nn", "backend")
"""The last parts of the names of modules whose functions may be NumPy's."""


class NameTable:
    """Where the names of one module of the other library are found.

    Args:
        module: The full name of the module here that stands for it.
        same: Packages of paceline ("nn.layers") whose public names keep their names.
        renamed: Name there → "package.name" here, or "package.module." for a module; also single
            names of the same name.
        advice: What to use instead of names that are not there, by their full name ("tf.nn.crf").
        adapted: Of a full name and what stands for it the same with the arguments of there.
    """

    def __init__(
        self,
        module: str,
        same: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
        advice: Callable[[], Mapping[str, str]] = dict,
        adapted: Callable[[str, Any], Any] = lambda name, value: value,
    ) -> None:
        self._module = module
        self._same = same
        self._renamed = renamed or {}
        self._advice = advice
        self._adapted = adapted

    def __getitem__(self, name: str) -> Any:
        """What stands for a name.

        Raises:
            AttributeError: Nothing does; with what to use instead.
        """
        if name in self._renamed:
            package, _, ours = self._renamed[name].rpartition(".")
            module = import_module(f"{_PACKAGE}.{package}".rstrip("."))
            return self._taken(name, getattr(module, ours) if ours else module)
        if name.startswith("__"):
            raise AttributeError(f"module {self._module!r} has no attribute {name!r}")
        for module in self._packages():
            if name in public_names(module):
                return self._taken(name, getattr(module, name))
        raise AttributeError(self._missing(name))

    def __iter__(self) -> Iterator[str]:
        yield from self._renamed
        for module in self._packages():
            yield from public_names(module)

    def _packages(self) -> Iterator[ModuleType]:
        return (import_module(f"{_PACKAGE}.{package}") for package in self._same)

    def _taken(self, name: str, value: Any) -> Any:
        full = self._full(name).replace("tf.compat.v1.", "tf.").replace("tf.compat.v2.", "tf.")
        return self._adapted(full, value)

    def _full(self, name: str) -> str:
        return f"{self._module.removeprefix(_HERE)}.{name}"

    def _missing(self, name: str) -> str:
        full = self._full(name)
        advice = self._advice()
        names = [full, full.replace("tf.compat.v1.", "tf.")]
        found = next((advice[full] for full in names if full in advice), None)
        of_arrays = self._module.rpartition(".")[2] in _OF_ARRAYS
        if found is None and of_arrays and callable(getattr(np, name, None)):
            found = f"use np.{name}, which takes tensors where it is differentiable"
        what = found or "docs/migration.md says what is there; models and data are plain NumPy"
        return f"{full} has no counterpart here: {what}"


def public_names(module: ModuleType) -> Sequence[str]:
    """The names that a module lists, or those that it defines without an underscore."""
    listed: Sequence[str] | None = getattr(module, "__all__", None)
    if listed is not None:
        return listed
    of_it = [name for name in vars(module) if not name.startswith("_")]
    return [name for name in of_it if _home(vars(module)[name]) == module.__name__]


def _home(value: Any) -> Any:
    return getattr(value, "__module__", None)


def serve(table: NameTable) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of a module that is this table."""
    return table.__getitem__, lambda: sorted(set(table))


class _TableModule(ModuleType):
    """A module that is nothing but a table."""

    def __init__(self, name: str, doc: str, table: NameTable) -> None:
        super().__init__(name, doc)
        self.__path__: list[str] = []  # modules may be registered below it
        self._table = table

    def __getattr__(self, name: str) -> Any:
        return self._table[name]

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._table})

    @property
    def __all__(self) -> list[str]:
        return sorted(set(self._table))


def register(
    parent: str,
    tables: Mapping[str, tuple[Sequence[str], Mapping[str, str]]],
    advice: Callable[[], Mapping[str, str]] = dict,
    adapted: Callable[[str, Any], Any] = lambda name, value: value,
) -> None:
    """Make modules "a", "a.b" below `parent` that are tables (same, renamed), to be imported."""
    for name, (same, renamed) in tables.items():
        full = f"{parent}.{name}"
        table = NameTable(full, same, renamed, advice, adapted)
        module = _TableModule(full, f"Names of {name}.", table)
        sys.modules[full] = module
        above, _, last = full.rpartition(".")
        setattr(sys.modules[above], last, module)
