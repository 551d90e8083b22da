"""The iterator over a dataset that users hold."""

from __future__ import annotations

import itertools
from typing import Any, final

from ._elements import ElementIterator, State
from ._plan import Plan
from ._seeds import Seeds, current_default_seed, entropy_seed

_FIELDS = {"dataset", "seed", "iteration", "elements"}


@final
class DatasetIterator:
    """One pass over a dataset, which can be saved and resumed between any two elements.

    Args:
        plan: the dataset's description.
        seed: what shuffles without a seed of their own use.
        iteration: how often the dataset was iterated before; it varies reshuffling shuffles.
    """

    def __init__(self, plan: Plan, seed: int, iteration: int) -> None:
        self._plan = plan
        self._seed = seed
        self._iteration = iteration
        self._elements = _open(plan, seed, iteration)
        self._last_state: State = None

    def __iter__(self) -> DatasetIterator:
        return self

    def __next__(self) -> Any:
        try:
            return next(self._elements)
        except StopIteration:
            # What ends early, as take and zip do, leaves its source and threads open.
            self.close()
            raise

    def get_state(self) -> dict[str, Any]:
        """The place of the next element and the seed: small, and made of JSON's types only."""
        return {
            "dataset": self._plan.text,
            "seed": self._seed,
            "iteration": self._iteration,
            "elements": self._last_state or self._elements.get_state(),
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Goes on with exactly the elements that were left when `state` was taken.

        Args:
            state: from `get_state` of an iterator over the same chain of transformations.

        Raises:
            ValueError: the state is of another chain, or no state at all.
        """
        if not isinstance(state, dict) or state.keys() != _FIELDS:
            raise ValueError(
                f"state must be a dict with the keys {sorted(_FIELDS)}, got {state!r:.200}. "
                "Give what get_state() of a dataset's iterator returned."
            )
        if state["dataset"] != self._plan.text:
            raise ValueError(
                f"The state was saved by {state['dataset']}, but this is an iterator over "
                f"{self._plan.text}. Restore it into the same chain of transformations, or start "
                "this one from its beginning."
            )
        self.close()
        self._last_state = None
        self._seed, self._iteration = state["seed"], state["iteration"]
        self._elements = _open(self._plan, self._seed, self._iteration)
        self._elements.set_state(state["elements"])

    def close(self) -> None:
        """Ends the pass and any background thread; the iterator has no further elements."""
        if self._last_state is None:
            self._last_state = self._elements.get_state()
            self._elements.close()


@final
class IteratorFactory:
    """Makes the successive iterators of one dataset object.

    As in tf.data, a reshuffling shuffle gives each pass over the same dataset object another
    order, so the passes are counted here; a newly built dataset starts from the first order again.
    """

    def __init__(self, plan: Plan, seed: int | None = None) -> None:
        self._plan = plan
        self._seed = seed
        self._iterations = itertools.count()

    def shared_seed(self) -> int | None:
        """The seed that does not come from entropy, if there is one."""
        return current_default_seed() if self._seed is None else self._seed

    def __call__(self) -> DatasetIterator:
        seed = self.shared_seed()
        if seed is None:
            fixed = self._plan.fixed_seed
            seed = entropy_seed() if fixed is None else fixed
        return DatasetIterator(self._plan, seed, next(self._iterations))


def _open(plan: Plan, seed: int, iteration: int) -> ElementIterator:
    return plan.open(Seeds(seed, iteration)).iterate(0)
