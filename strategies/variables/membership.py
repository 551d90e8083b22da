"""`Membership`: what a layer or an optimizer keeps of one model after the other."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from .names import NAMES_OUTSIDE, names_here
from .store import current_store

Kept = TypeVar("Kept")

_entering = threading.Lock()


class Membership(Generic[Kept]):
    """What a named object keeps of the model that uses it: of one model after the other.

    A layer or an optimizer may outlive the model whose variables it has found: it is made outside
    a `model_fn`, which then runs for training, for evaluation and for training again, each time
    with a store of its own. What was found in one store must not be used in the next.

    Args:
        owner: The object.
        base: The name that is wished for.
        begin: Makes what it keeps of a model, or finds it there, by its name.

    Attributes:
        name: That which it has got.
    """

    __slots__ = ("_begin", "_latest", "_outside", "name")

    def __init__(self, owner: object, base: str, begin: Callable[[str], Kept]) -> None:
        names = names_here.get()
        self._begin = begin
        self.name = names.unique(base, owner)
        self._latest = (names.origin, current_store().identity, begin(self.name))
        # Nobody else holds what exists outside models: a model that uses the owner for a while must
        # not be the end of it.
        self._outside = self._latest if names.origin is NAMES_OUTSIDE.origin else None

    @property
    def latest(self) -> Kept:
        """What it keeps of the model that used it last."""
        return self._latest[2]

    def here(self, owner: object) -> Kept:
        """What it keeps of the calling model.

        Raises:
            ValueError: Another object has the owner's name in the calling model.
        """
        names, latest = names_here.get(), self._latest
        if names.origin is latest[0]:
            return latest[2]
        if self._outside is not None and names.origin is self._outside[0]:
            self._latest = self._outside
            return self._outside[2]
        names.claim(self.name, owner)
        store = current_store().identity
        kept = latest[2] if latest[1] is store else self._begin(self.name)
        with _entering:  # of several replicas that are here at the same time one is the first
            latest = self._latest
            if latest[1] is store:
                kept = latest[2]
            self._latest = (names.origin, store, kept)
        return kept
