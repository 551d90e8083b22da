"""Names that are given once: to layers, optimizers and variables of one call of a model."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from weakref import ref


class Names:
    """The names that one call of a `model_fn`, or all code outside models, has given, and to whom.

    An owner is not kept alive. Its name stays taken: a layer that is made and dropped in the same
    expression has weights all the same.

    Attributes:
        origin: Stands for these and for all copies of them: who has a name in one has it in all.
    """

    __slots__ = ("_numbers", "_owners", "origin")

    def __init__(self, origin: object = None) -> None:
        self.origin = object() if origin is None else origin
        self._owners: dict[str, Callable[[], object]] = {}
        self._numbers: dict[str, int] = {}

    def unique(self, base: str, owner: object) -> str:
        # Threads outside models share the names: who enters one first has it.
        name, mark = base, _Nobody() if owner is None else ref(owner)
        while self._owners.setdefault(name, mark) is not mark:
            self._numbers[base] = number = self._numbers.get(base, 0) + 1
            name = f"{base}_{number}"
        return name

    def claim(self, name: str, owner: object) -> None:
        """Let `owner` have a name that it was given elsewhere, unless somebody else has it here."""
        if self._owners.setdefault(name, ref(owner))() is not owner:
            raise ValueError(
                f"{owner!r} was made outside the model that it is used in, where another object "
                f"has the name {name!r}: they would share their variables. Give one of them "
                f"another name, or make it inside model_fn"
            )

    def copy(self) -> Names:
        names = Names(self.origin)
        names._owners, names._numbers = dict(self._owners), dict(self._numbers)
        return names

    def clear(self) -> None:
        self._owners.clear()
        self._numbers.clear()


class _Nobody:
    """In the place of a reference to the owner: of a name that nobody may claim."""

    def __call__(self) -> None:
        pass


NAMES_OUTSIDE = Names()
names_here: ContextVar[Names] = ContextVar("paceline_names_here", default=NAMES_OUTSIDE)
"""Those of the calling model."""


def count_names_apart() -> None:
    """Count names from where they are now, in a copy: for a replica that builds the same model."""
    names_here.set(names_here.get().copy())
