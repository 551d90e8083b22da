"""What evaluation and prediction have in common as runs that hooks take part in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..autodiff import Tensor
from ..inputs import nest
from ..strategies import Strategy, VariableStore
from .fetches import name_of_fetch, variable_value
from .shared_reads import SharedReads


class ReadingSession(ABC):
    """A run that uses variables and does not change them: it is not saved, nor continued later.

    Args:
        strategy: How it is distributed.
        store: The variables.
    """

    def __init__(self, strategy: Strategy, store: VariableStore) -> None:
        self.strategy = strategy
        self.store = store
        self.loss: float | None = None
        self.workers_with_bad_loss: list[str] = []
        self.loss_asked_for: Tensor | None = None
        self._shared = SharedReads(strategy, store)
        self.wants_save = self.save_is_agreed = False
        self.wants_end = self.end_is_agreed = self.will_stop = False

    @property
    @abstractmethod
    def global_step(self) -> int:
        """The step of the checkpoint that is used."""

    def will_run(self, fetches: Sequence[Any]) -> None:
        """Say before a step what `run` will be asked for after it."""
        self._shared.want(fetches, self.loss_asked_for)

    def run(self, fetches: Any) -> Any:
        """The present values of names, in the structure of `fetches` (see `SessionRunArgs`)."""
        return nest.map_structure(self._value, fetches)

    def _value(self, fetch: Any) -> Any:
        name = name_of_fetch(fetch, self.loss_asked_for)
        if name == "loss":
            return self.loss
        if name == "global_step":
            return self.global_step
        shared = self._shared.value(name)
        if shared is not None:
            return shared
        with self.strategy.scope():
            return variable_value(self.store, name, ("loss", "global_step"))

    def values(self) -> dict[str, Any]:
        """The values of all variables, by name."""
        with self.strategy.scope():
            return self.store.saved_values()

    def input_states(self) -> list[dict[str, Any]]:
        """None: such a run is not gone on with."""
        return []
