"""Datasets whose elements are dealt out to replicas; strategies hand in plain numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn, final

from ._checks import checked_count, checked_shard
from ._elements import Elements
from ._iterator import DatasetIterator, IteratorFactory
from ._plan import Plan, batched_cardinality
from ._prefetch import prefetched
from ._seeds import checked_seed
from ._split import DealtStream, SplitStream
from ._streams import MappedStream
from .dataset import Dataset

Wrap = Callable[[tuple[Any, ...]], Any]


def split_global_batches(
    dataset: Dataset,
    num_local_replicas: int,
    num_replicas: int,
    *,
    shard: tuple[int, int] = (1, 0),
    prefetch: int = 0,
    wrap: Wrap = tuple,
    seed: int | None = None,
) -> DistributedDataset:
    """Cuts each global batch into consecutive parts, one for each replica.

    A batch of 7 over two replicas goes as 4 and 3. A last, smaller batch fills the same places from
    the front, and a replica for which nothing is left gets arrays of leading dimension 0: every
    example counts exactly once. With several workers each reads all data and keeps its replicas'
    parts (policy DATA), so all of them must see the same order.

    Args:
        dataset: its elements are global batches.
        num_local_replicas: replicas of this worker.
        num_replicas: replicas of all workers.
        shard: the number of workers, and this worker's number; worker i has the replicas from
            i * num_local_replicas on.
        prefetch: steps to prepare ahead in a background thread; 0 starts none.
        wrap: makes the element of a step from the tuple of its local batches.
        seed: for shuffles without a seed; None takes `default_seed`'s or draws one.

    Raises:
        ValueError: the numbers contradict each other; on iteration over several workers, a
            shuffle would draw a different order on each.
    """
    num_local, num_all = _checked_replicas(num_local_replicas, num_replicas)
    num_workers, worker_index = checked_shard(*shard, "the number of shards", "the shard's index")
    first_replica = worker_index * num_local
    if num_workers * num_local != num_all:
        raise ValueError(
            f"num_replicas must be num_local_replicas times the number of shards, {num_local} * "
            f"{num_workers}, got {num_all}. Give every worker the same number of replicas."
        )
    depth = checked_count("prefetch", prefetch, 0)
    plan = _checked_dataset(dataset).plan
    size = "of unknown size" if plan.batch_size is None else str(plan.batch_size)
    split = partial(
        SplitStream, num_replicas=num_all, first_replica=first_replica, num_local=num_local
    )
    return DistributedDataset(
        plan.then(lambda elements, _: split(elements)),
        description=f"policy DATA, shard {worker_index} of {num_workers}, global batch {size} over "
        f"{_replicas(num_all)}, prefetch {depth}",
        prefetch_depth=depth,
        wrap=wrap,
        seed=seed,
        needs_shared_seed=num_workers > 1,
    )


def per_replica_batches(
    dataset: Dataset,
    num_local_replicas: int,
    *,
    prefetch: int = 0,
    wrap: Wrap = tuple,
    seed: int | None = None,
) -> DistributedDataset:
    """Gives each replica an element of its own, so that N replicas take N elements a step.

    When the data ends within a step, the replicas that are left get an empty batch: the same
    structure, with leading dimension 0.

    Args:
        dataset: its elements are per-replica batches; nothing is rebatched or sharded.
        num_local_replicas: replicas of this worker.
        prefetch: steps to prepare ahead in a background thread; 0 starts none.
        wrap: makes the element of a step from the tuple of its local batches.
        seed: for shuffles without a seed; None takes `default_seed`'s or draws one.
    """
    num_local, _ = _checked_replicas(num_local_replicas, num_local_replicas)
    depth = checked_count("prefetch", prefetch, 0)
    plan = _checked_dataset(dataset).plan
    size = "" if plan.batch_size is None else f" of {plan.batch_size}"
    return DistributedDataset(
        plan.then(
            lambda elements, _: DealtStream(elements, num_local),
            cardinality=batched_cardinality(plan.cardinality, num_local, drop_remainder=False),
        ),
        description=f"policy OFF, per-replica batches{size} for {_replicas(num_local)}, "
        f"prefetch {depth}",
        prefetch_depth=depth,
        wrap=wrap,
        seed=seed,
        needs_shared_seed=False,
    )


@final
class DistributedDataset:
    """Steps of one batch for each local replica; strategies make it, users iterate over it.

    It can be iterated many times. Its iterators have `get_state()`, `set_state(state)` and
    `close()`. It takes no further transformations.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        description: str,
        prefetch_depth: int,
        wrap: Wrap,
        seed: int | None,
        needs_shared_seed: bool,
    ) -> None:
        own_seed = None if seed is None else checked_seed(seed)
        steps = plan.then(partial(_prepared, depth=prefetch_depth, wrap=wrap))
        self._plan = plan
        self._description = description
        self._needs_shared_seed = needs_shared_seed and plan.draws_seed
        self._make_iterator = IteratorFactory(steps, own_seed)

    def describe(self) -> str:
        """One line for the log: the policy, this worker's shard, the batch and the replicas."""
        return self._description

    def cardinality(self) -> int:
        """The number of steps, or `INFINITE` (-1) or `UNKNOWN` (-2)."""
        return self._plan.cardinality

    @property
    def element_spec(self) -> Any:
        """The `ArraySpec`s of the dataset's elements, before they are dealt out."""
        return self._plan.spec()

    def __iter__(self) -> DatasetIterator:
        if self._needs_shared_seed and self._make_iterator.shared_seed() is None:
            raise ValueError(
                "shuffle() has no seed, so each worker would draw another order and examples "
                "would be lost or read twice. Give shuffle(seed=...) or set "
                "RunConfig(tf_random_seed=...), the same on every worker."
            )
        return self._make_iterator()

    def __getattr__(self, name: str) -> NoReturn:
        if not name.startswith("_") and callable(getattr(Dataset, name, None)):
            raise AttributeError(
                f"DistributedDataset has no {name}(): a distributed dataset takes no further "
                f"transformations. Call {name}() on the Dataset before it is distributed."
            )
        raise AttributeError(f"DistributedDataset has no attribute {name!r}.")


def _prepared(elements: Elements, _: Any, *, depth: int, wrap: Wrap) -> Elements:
    return MappedStream(prefetched(elements, depth), wrap)


def _checked_replicas(num_local_replicas: int, num_replicas: int) -> tuple[int, int]:
    return (
        checked_count("num_local_replicas", num_local_replicas, 1),
        checked_count("num_replicas", num_replicas, 1),
    )


def _checked_dataset(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset must be a Dataset, got {type(dataset).__name__}. "
            "Wrap arrays in Dataset.from_tensor_slices(...).batch(...)."
        )
    return dataset


def _replicas(count: int) -> str:
    return f"{count} replica{'s' if count > 1 else ''}"
