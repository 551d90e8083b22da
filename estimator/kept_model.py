"""What was restored last, for the next evaluation or prediction that wants the same."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import final

from ..strategies import Strategy, VariableStore


@dataclass(frozen=True, eq=False)
class _Kept:
    identity: str
    strategy: Strategy
    store: VariableStore


@final
class KeptModel:
    """The variables of one checkpoint on the devices of one strategy, at most.

    Who takes them has them alone until they are given back: two predictions that go on side by
    side have variables of their own. Safe to use from several threads.
    """

    def __init__(self) -> None:
        self._kept: _Kept | None = None
        self._lock = threading.Lock()

    def take(self, identity: str, strategy: Strategy) -> VariableStore | None:
        """The variables, if all workers of the strategy have them; all of them call this.

        What is kept of another checkpoint, or for another strategy, is dropped: what comes in its
        place shall not need memory beside it.

        Args:
            identity: That of the checkpoint, as the chief has found it; empty where there is none.
        """
        with self._lock:
            kept, self._kept = self._kept, None
        is_it = kept is not None and kept.identity == identity and kept.strategy is strategy
        # Creating variables is a common call of all workers: it is left out by all or by none.
        is_missing = strategy.extended.workers.any_of_each([not is_it], "model is to be restored")
        return None if kept is None or is_missing[0] else kept.store

    def give_back(self, identity: str, strategy: Strategy, store: VariableStore) -> None:
        """Keep variables until they are asked for again, as they were when they were created."""
        store.begin_again()
        with self._lock:
            self._kept = _Kept(identity, strategy, store)

    def drop(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._kept = None
