"""Values that all workers must read together, although hooks of only some of them ask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from ..autodiff import Tensor
from ..inputs import nest
from ..strategies import Strategy, VariableStore
from .fetches import name_of_fetch


@final
class SharedReads:
    """The values of variables that are aggregates of the copies of all workers, for hooks.

    Each worker says with the step whether its hooks want to know such a value after it. If those of
    any do, all read it together, whatever their own hooks ask for.

    Args:
        strategy: That of the run.
        store: Its variables.
    """

    def __init__(self, strategy: Strategy, store: VariableStore) -> None:
        self._strategy = strategy
        self._store = store
        self._names: list[str] = []
        self._values: dict[str, np.ndarray] = {}

    @property
    def are_wanted(self) -> bool:
        """Whether hooks of this worker want to know something that all must read."""
        return bool(self._names)

    def want(self, fetches: Sequence[Any], loss: Tensor | None) -> None:
        """Note what hooks of this worker want to know after the coming step.

        Args:
            fetches: See `SessionRunArgs`.
            loss: See `name_of_fetch`.
        """
        if self._strategy.extended.num_workers == 1:
            return
        self._values = {}
        found = {name_of_fetch(fetch, loss) for fetch in nest.flatten(list(fetches))}
        variables = self._store.variables
        known = found & variables.keys()
        self._names = sorted([name for name in known if variables[name].differs_between_replicas])

    def read(self) -> None:
        """Read what hooks of any worker want to know; all workers call this."""
        wanted = self._strategy.extended.workers.texts(json.dumps(self._names), "wanted by hooks")
        names = sorted({name for text in wanted for name in json.loads(text)})
        with self._strategy.scope():
            self._values = {name: self._store.variables[name].numpy() for name in names}
        self._names = []

    def value(self, name: str) -> np.ndarray | None:
        """What was read after the latest step; None where it was not among it."""
        return self._values.get(name)
