"""What a strategy makes of a dataset: steps of one batch for each local replica."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, final

from ._elements import Elements
from ._ending import AnyHasData, UntilAllEnd, empty_batch
from ._iterator import DatasetIterator, IteratorFactory
from ._plan import Opening, Plan
from ._prefetch import prefetched
from ._seeds import checked_seed
from ._stream_steps import MappedStream
from .dataset import Dataset

Wrap = Callable[[tuple[Any, ...]], Any]
"""Makes the element of a step from the tuple of its local batches."""


@final
class DistributedDataset:
    """Steps of one batch for each local replica; strategies make it, users iterate over it.

    It can be iterated many times. Its iterators have `get_state()`, `set_state(state)` and
    `close()`. It takes no further transformations.

    Where workers may have different numbers of steps, all iterate together: one whose data have
    ended gets empty batches, arrays of leading dimension 0, until those of all have.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        num_local: int,
        any_has_data: AnyHasData | None,
        description: str,
        prefetch_depth: int,
        wrap: Wrap,
        seed: int | None,
        shared_order: Plan | None,
        worker: tuple[int, int],
    ) -> None:
        own_seed = None if seed is None else checked_seed(seed)
        steps = plan.then(partial(_prefetched, depth=prefetch_depth))
        self._plan = plan
        self._description = description
        self._needs_shared_seed = shared_order is not None and shared_order.draws_seed
        if shared_order is not None and not plan.draws_seed:
            # Shuffles inside an interleave are not known yet, and must agree as well.
            steps = replace(steps, fixed_seed=steps.fixed_seed or 0)
        place = f" on worker {worker[1]} of {worker[0]}" if worker[0] > 1 else ""
        own_steps = steps.then(partial(_wrapped, wrap=wrap))
        self._make_own_iterator = IteratorFactory(own_steps, own_seed, place)
        self._make_iterator = self._make_own_iterator
        if any_has_data is not None:
            empty = partial(_empty_step, plan, num_local)
            together = partial(_until_all_end, any_has_data=any_has_data, empty=empty)
            all_steps = steps.then(together).then(partial(_wrapped, wrap=wrap))
            self._make_iterator = IteratorFactory(all_steps, own_seed, place)

    def describe(self) -> str:
        """One line for the log: the policy, this worker's shard, the batch and the replicas."""
        return self._description

    def cardinality(self) -> int:
        """The number of steps for which this worker has data, `INFINITE` (-1) or `UNKNOWN` (-2)."""
        return self._plan.cardinality

    @property
    def element_spec(self) -> Any:
        """The `ArraySpec`s of the dataset's elements, before they are dealt out."""
        return self._plan.spec()

    def __iter__(self) -> DatasetIterator:
        self._require_shared_seed()
        return self._make_iterator()

    def own_steps(self) -> DatasetIterator:
        """An iterator that ends with this worker's data, for loops that agree on their end."""
        self._require_shared_seed()
        return self._make_own_iterator()

    def _require_shared_seed(self) -> None:
        if self._needs_shared_seed and self._make_iterator.shared_seed() is None:
            raise ValueError(
                "shuffle() has no seed, so each worker would draw another order and examples "
                "would be lost or read twice. Give shuffle(seed=...) or set "
                "RunConfig(tf_random_seed=...), the same on every worker."
            )

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and callable(getattr(Dataset, name, None)):
            raise AttributeError(
                f"DistributedDataset has no {name}(): a distributed dataset takes no further "
                f"transformations. Call {name}() on the Dataset before it is distributed."
            )
        raise AttributeError(f"DistributedDataset has no attribute {name!r}.")


def _prefetched(elements: Elements, _: Opening, *, depth: int) -> Elements:
    return prefetched(elements, depth)


def _until_all_end(
    elements: Elements, _: Opening, *, any_has_data: AnyHasData, empty: Callable[[], Any]
) -> Elements:
    return UntilAllEnd(elements, any_has_data, empty)


def _wrapped(elements: Elements, _: Opening, *, wrap: Wrap) -> Elements:
    return MappedStream(elements, wrap)


def _empty_step(plan: Plan, num_local: int) -> Any:
    return (empty_batch(plan.spec()),) * num_local
