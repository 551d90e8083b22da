"""What a strategy makes of a dataset: steps of one batch for each local replica."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn, final

from ._elements import Elements
from ._ending import AnyHasData, UntilAllEnd, empty_batch
from ._iterator import DatasetIterator, IteratorFactory
from ._plan import Keeps, Opening, Plan, Shard
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
        policy: str,
        parts: Sequence[Shard],
    ) -> None:
        own_seed = None if seed is None else checked_seed(seed)
        steps = plan.then(partial(_prefetched, depth=prefetch_depth), keeps=Keeps.ALL)
        self._plan = plan
        self._policy = policy
        self._parts = parts
        self._description = description
        self._has_shared_passes = shared_order is not None and shared_order.reshuffles
        self._texts_of_workers: Callable[[str], Sequence[str]] | None = None
        self._needs_shared_seed = shared_order is not None and shared_order.draws_seed
        if shared_order is not None and not plan.draws_seed:
            # Shuffles inside an interleave are not known yet, and must agree as well.
            steps = replace(steps, fixed_seed=steps.fixed_seed or 0)
        own_steps = steps.then(partial(_wrapped, wrap=wrap), keeps=Keeps.ALL)
        self._make_own_iterator = IteratorFactory(own_steps, own_seed, worker)
        self._make_iterator = self._make_own_iterator
        if any_has_data is not None:
            empty = partial(_empty_step, plan, num_local)
            together = partial(_until_all_end, any_has_data=any_has_data, empty=empty)
            all_steps = steps.then(together, keeps=Keeps.ALL).then(
                partial(_wrapped, wrap=wrap), keeps=Keeps.ALL
            )
            self._make_iterator = IteratorFactory(all_steps, own_seed, worker)

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
        iterator = self._make_iterator()
        self._require_same_pass(iterator)
        return iterator

    def own_steps(self) -> DatasetIterator:
        """An iterator that ends with this worker's data, for loops that agree on their end."""
        self._require_shared_seed()
        return self._make_own_iterator()

    def require_alike(self, texts_of_workers: Callable[[str], Sequence[str]]) -> None:
        """Compares with the other workers what all must have alike; all of them call this.

        Where each worker takes a part of one order, it must be the same chain with the same seed.
        If that order is another one in each pass, all workers begin their passes together, too.

        Args:
            texts_of_workers: gathers a text of each worker, in their order.

        Raises:
            ValueError: on all workers, if they differ; the message names two of them.
        """
        self._texts_of_workers = texts_of_workers
        seed = self._make_iterator.shared_seed()
        parts = [
            [count, index, order.text, seed if self._needs_shared_seed else None]
            for count, index, order, _ in self._parts
        ]
        texts = texts_of_workers(json.dumps([self._policy, parts]))
        _require_one_policy_and_order([json.loads(text) for text in texts])

    def _require_same_pass(self, iterator: DatasetIterator) -> None:
        """Raises an error if a worker has looked at the data beforehand, and is a pass ahead."""
        if self._texts_of_workers is None or not self._has_shared_passes:
            return
        texts = self._texts_of_workers(json.dumps(iterator.seed_and_iteration))
        found = [json.loads(text) for text in texts]
        workers = [*range(len(found))]
        _require_equal("the number of passes before this one", [i for _, i in found], workers)
        _require_equal("the seed", [seed for seed, _ in found], workers)

    def _require_shared_seed(self) -> None:
        if self._needs_shared_seed and self._make_iterator.shared_seed() is None:
            raise ValueError(
                "shuffle() has no seed, so each worker would draw another order and examples "
                "would be lost or read twice. Give shuffle(seed=...), call set_seed() or set "
                "RunConfig(tf_random_seed=...), the same on every worker."
            )

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and callable(getattr(Dataset, name, None)):
            raise AttributeError(
                f"DistributedDataset has no {name}(): a distributed dataset takes no further "
                f"transformations. Call {name}() on the Dataset before it is distributed."
            )
        raise AttributeError(f"DistributedDataset has no attribute {name!r}.")


def _require_one_policy_and_order(found: list[Any]) -> None:
    """Raises an error if workers divide one order, but each another one."""
    policies = [policy for policy, _ in found]
    _require_equal("the policy", policies, [*range(len(found))])
    parts = [(worker, *part) for worker, (_, parts) in enumerate(found) for part in parts]
    taken = sorted((count, index) for _, count, index, *_ in parts)
    # Shards that leave something out, or are read twice, are meant for something else.
    if taken == [(len(parts), index) for index in range(len(parts))]:
        workers = [part[0] for part in parts]
        _require_equal("the dataset", [part[3] for part in parts], workers)
        _require_equal("the seed", [part[4] for part in parts], workers)


def _require_equal(what: str, values: list[Any], workers: list[int]) -> None:
    for value, worker in zip(values, workers, strict=True):
        if value != values[0]:
            raise ValueError(
                f"Workers that share data must agree on {what}, but worker {workers[0]} has "
                f"{values[0]} and worker {worker} has {value}, so that examples would be lost or "
                "read twice. Give all workers the same dataset, files, options and seeds, and "
                "iterate on all of them."
            )


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
