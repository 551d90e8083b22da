"""Datasets divided among replicas and workers; strategies hand in plain numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NoReturn, final

from .checks import checked_count, checked_shard
from .dataset import Dataset, plan_of
from .elements import Elements, Stream
from .iterator import DatasetIterator, IteratorFactory
from .mapping import MapIterator
from .options import AutoShardPolicy
from .plan import INFINITE, UNKNOWN, Demands, Keeps, Opening, Plan, Shard, batched_cardinality
from .prefetching import Transfer, transferred_ahead
from .seeds import checked_seed
from .splitting import (
    AnyHasData,
    Division,
    PipelinesIterator,
    ReplicaBatchesIterator,
    SplitIterator,
    UntilAllEndIterator,
    empty_batch,
    require_equal,
    require_one_order,
    split_points,
)
from .values import TensorSpec, map_arrays

Wrap = Callable[[tuple[Any, ...]], Any]
"""Makes the element of a step from the tuple of its local batches."""

TextsOfWorkers = Callable[[str], Sequence[str]]
"""Gathers a text of each worker, in their order; all workers call it."""


def split_global_batches(
    dataset: Dataset,
    num_local_replicas: int,
    num_replicas: int,
    *,
    shard: tuple[int, int] = (1, 0),
    prefetch: int = 0,
    wrap: Wrap = tuple,
    seed: int | None = None,
    any_has_data: AnyHasData | None = None,
    transfer: Transfer | None = None,
) -> DistributedDataset:
    """Cuts each global batch into consecutive parts, one for each replica.

    A batch of 7 over two replicas goes as 4 and 3. A last, smaller batch is divided at the same
    points, and a replica for which nothing is left gets arrays of leading dimension 0: every
    example counts exactly once.

    How several workers share the data is the `AutoShardPolicy` of the dataset's options. DATA: each
    reads all data and keeps its replicas' parts, so all of them must see the same order. FILE: each
    reads some of the files, and its replicas take all parts of its batches, a few in each step, so
    that a step has as many examples as a global batch. OFF: the same with all files on each.

    Args:
        dataset: its elements are global batches.
        num_local_replicas: replicas of this worker.
        num_replicas: replicas of all workers.
        shard: the number of workers, and this worker's number; worker i has the replicas from
            i * num_local_replicas on.
        prefetch: steps to prepare ahead in a background thread; 0 starts none, nor does a dataset
            that is gathered from memory or prefetched already.
        wrap: makes the element of a step from the tuple of its local batches.
        seed: for shuffles without a seed; None takes `default_seed`'s or draws one.
        any_has_data: called before each step, by all workers, with whether this one has data;
            tells whether any has. Only where their numbers of steps may differ, which is not so
            under DATA. None lets each end by itself.
        transfer: brings batches to where their replicas compute.

    Raises:
        ValueError: the numbers contradict each other; the policy is FILE and there are too few
            files; on iteration over several workers, a shuffle would draw another order on each.
    """
    num_local, num_all = _checked_replicas(num_local_replicas, num_replicas)
    num_workers, worker_index = checked_shard(*shard, "the number of shards", "the shard's index")
    first_replica = worker_index * num_local
    if num_workers * num_local != num_all:
        raise ValueError(
            f"num_replicas must be num_local_replicas times the number of shards, {num_local} * "
            f"{num_workers}, got {num_all}. Give every worker the same number of replicas."
        )
    plan = plan_of("dataset", dataset)
    asked = plan.demands.options.auto_shard_policy or AutoShardPolicy.AUTO
    policy = resolved_policy(asked, plan.num_files, num_workers)
    # Workers that take whole batches in turns have divided them before.
    own = (plan.shard if num_workers == 1 else None) or Shard(num_workers, worker_index, plan)
    parts = [] if policy is AutoShardPolicy.OFF else [own]
    if policy is AutoShardPolicy.DATA:
        rounds = [range(first_replica, first_replica + num_local)]
    else:
        rounds = [range(first, first + num_local) for first in range(0, num_all, num_local)]
    if policy is AutoShardPolicy.FILE:
        plan = _with_file_shard(plan, (num_workers, worker_index))
    return DistributedDataset(
        plan,
        plan.then(
            lambda elements, _: elements.through(SplitIterator, num_all, rounds),
            # Several workers keep parts of the same batches, or of a batch that is read again.
            keeps=Keeps.SPEC | (Keeps.ANY_ORDER if num_workers == 1 else Keeps.NOTHING),
            cardinality=plan.cardinality if len(rounds) == 1 else UNKNOWN,
            epoch=plan.epoch if len(rounds) == 1 else None,
        ),
        Division(policy, (num_workers, worker_index), parts),
        num_local=num_local,
        description=f"shard {worker_index} of {num_workers}, global batch "
        f"{_global_batch(plan.batch_size, num_all, rounds)}, "
        f"{_share(policy, plan, num_workers, worker_index)}",
        prefetch=prefetch,
        wrap=wrap,
        seed=seed,
        any_has_data=any_has_data,
        transfer=transfer,
    )


def resolved_policy(
    policy: AutoShardPolicy, num_files: int | None, num_workers: int
) -> AutoShardPolicy:
    """OFF, FILE or DATA, for data from so many files (None: from none) on so many workers."""
    enough_files = num_files is not None and num_files >= num_workers
    if policy is AutoShardPolicy.AUTO:
        is_by_file = enough_files and num_workers > 1
        return AutoShardPolicy.FILE if is_by_file else AutoShardPolicy.DATA
    if policy is AutoShardPolicy.FILE and not enough_files:
        found = (
            "does not begin with files, or has a step that counts elements of all of them (take, "
            "skip, shard, window, zip, enumerate)"
            if num_files is None
            else f"has {num_files} file(s)"
        )
        raise ValueError(
            f"AutoShardPolicy.FILE needs at least one file for each of {num_workers} workers, but "
            f"the dataset {found}. Use AutoShardPolicy.DATA, with which each reads all of it."
        )
    return policy


def per_replica_batches(
    dataset: Dataset,
    num_local_replicas: int,
    *,
    prefetch: int = 0,
    wrap: Wrap = tuple,
    seed: int | None = None,
    worker: tuple[int, int] = (1, 0),
    any_has_data: AnyHasData | None = None,
    transfer: Transfer | None = None,
) -> DistributedDataset:
    """Gives each replica an element of its own, so that N replicas take N elements a step.

    When the data ends within a step, the replicas that are left get an empty batch: the same
    structure, with leading dimension 0.

    Args:
        dataset: its elements are per-replica batches; nothing is rebatched or sharded.
        num_local_replicas: replicas of this worker.
        worker: the number of workers, and this worker's number.
        prefetch, wrap, seed, transfer: as in `split_global_batches`.
        any_has_data: as there; not for datasets without end.

    Raises:
        ValueError: on iteration over one of several shards, a shuffle before `shard` would draw
            another order on each worker.
    """
    num_local, _ = _checked_replicas(num_local_replicas, num_local_replicas)
    own = checked_shard(*worker, "the number of workers", "the worker's number")
    plan = plan_of("dataset", dataset)
    size = "" if plan.batch_size is None else f" of {plan.batch_size}"
    return DistributedDataset(
        plan,
        plan.then(
            lambda elements, _: elements.through(ReplicaBatchesIterator, num_local),
            keeps=Keeps.SPEC | Keeps.ANY_ORDER,
            count=lambda number: batched_cardinality(number, num_local, drop_remainder=False),
            shard=plan.shard and plan.shard.times(num_local),
        ),
        Division(AutoShardPolicy.OFF, own, [] if plan.shard is None else [plan.shard]),
        num_local=num_local,
        description=f"per-replica batches{size} for {_replicas(num_local)}, "
        f"{_number_of_steps(batched_cardinality(plan.cardinality, num_local, False))}",
        prefetch=prefetch,
        wrap=wrap,
        seed=seed,
        any_has_data=any_has_data,
        transfer=transfer,
    )


def per_replica_pipelines(
    datasets: Sequence[Dataset],
    *,
    prefetch: int = 0,
    wrap: Wrap = tuple,
    seed: int | None = None,
    worker: tuple[int, int] = (1, 0),
    any_has_data: AnyHasData | None = None,
    transfer: Transfer | None = None,
) -> DistributedDataset:
    """Gives each replica the elements of a dataset of its own.

    A replica whose data have ended gets empty batches until those of all have.

    Args:
        datasets: for each replica of this worker its per-replica batches.
        prefetch, wrap, transfer: as in `split_global_batches`.
        seed: as there, the same for all datasets.
        worker, any_has_data: as in `per_replica_batches`.

    Raises:
        ValueError: as in `per_replica_batches`.
    """
    own = checked_shard(*worker, "the number of workers", "the worker's number")
    plans = [plan_of("dataset", dataset) for dataset in datasets]
    cardinality = _longest([plan.cardinality for plan in plans])

    def open_all(opening: Opening) -> Elements:
        # Not one after another from the same seeds: equal shuffles must draw equal orders.
        parts = [plan.open(opening.inside(0)) for plan in plans]
        return Stream(
            lambda iteration: PipelinesIterator([part.iterate(iteration) for part in parts])
        )

    plan = Plan(
        text=f"replicas({', '.join(plan.text for plan in plans)})",
        cardinality=cardinality,
        epoch=_longest([plan.epoch_length for plan in plans]),
        open=open_all,
        known_spec=plans[0].spec,
        demands=Demands.of([plan.demands for plan in plans]),
        is_ready=all(plan.is_ready for plan in plans),
    )
    return DistributedDataset(
        plan,
        plan,
        Division(AutoShardPolicy.OFF, own, [p.shard for p in plans if p.shard is not None]),
        num_local=len(plans),
        description=f"an input pipeline for each of {_replicas(len(plans))}, "
        f"{_number_of_steps(cardinality)}",
        prefetch=prefetch,
        wrap=wrap,
        seed=seed,
        any_has_data=any_has_data,
        transfer=transfer,
    )


def _with_file_shard(plan: Plan, file_shard: tuple[int, int]) -> Plan:
    count, index = file_shard
    return replace(
        plan,
        open=lambda opening: plan.open(opening._replace(file_shard=file_shard)),
        # A state is a position in these files, and must not be taken for one in others.
        text=f"{plan.text}.files({count}, {index})",
    )


def _global_batch(size: int | None, num_replicas: int, rounds: Sequence[range]) -> str:
    """The size of a batch, and how much of it this worker takes if others share it."""
    text = f"{'of unknown size' if size is None else size} over {_replicas(num_replicas)}"
    if size is None or len(rounds) > 1 or len(rounds[0]) == num_replicas:
        return text
    points = split_points(size, size, num_replicas)
    return f"{text} ({points[rounds[0].stop] - points[rounds[0].start]} here)"


def _share(policy: AutoShardPolicy, plan: Plan, num_workers: int, worker_index: int) -> str:
    """What of the data this worker gets."""
    if policy is AutoShardPolicy.FILE:
        own = sum(len(range(worker_index, count, num_workers)) for count in plan.file_counts)
        return f"{own} of {sum(plan.file_counts)} files"
    if policy is AutoShardPolicy.OFF and num_workers > 1:
        return "all the data"
    return _number_of_steps(plan.cardinality)


def _number_of_steps(cardinality: int) -> str:
    if cardinality == INFINITE:
        return "endless"
    return "of unknown length" if cardinality == UNKNOWN else f"{cardinality} step(s)"


def _checked_replicas(num_local_replicas: int, num_replicas: int) -> tuple[int, int]:
    return (
        checked_count("num_local_replicas", num_local_replicas, 1),
        checked_count("num_replicas", num_replicas, 1),
    )


def _longest(cardinalities: list[int]) -> int:
    if INFINITE in cardinalities:
        return INFINITE
    return UNKNOWN if UNKNOWN in cardinalities else max(cardinalities)


def _replicas(count: int) -> str:
    return f"{count} replica{'s' if count > 1 else ''}"


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
        source: Plan,
        plan: Plan,
        division: Division,
        *,
        num_local: int,
        description: str,
        prefetch: int,
        wrap: Wrap,
        seed: int | None,
        any_has_data: AnyHasData | None,
        transfer: Transfer | None,
    ) -> None:
        self._plan = plan
        self._division = division
        depth = checked_count("prefetch", prefetch, 0)
        if source.is_ready and transfer is None:
            # A hand-over between threads takes some 35 microseconds, about as long as a gather.
            depth = 0
        self._description = f"policy {division.policy.name}, {description}, prefetch {depth}"
        self._texts_of_workers: TextsOfWorkers | None = None
        order = division.shared_order
        self._has_shared_passes = order is not None and order.demands.reshuffles
        self._needs_shared_seed = order is not None and order.demands.draws_seed
        steps = plan.then(
            lambda elements, _: transferred_ahead(elements, depth, transfer), keeps=Keeps.ALL
        )
        if order is not None and not plan.demands.draws_seed:
            # Shuffles inside an interleave are not known yet, and must agree as well.
            steps = steps.demanding(fixed_seed=steps.demands.fixed_seed or 0)
        own_seed = None if seed is None else checked_seed(seed)
        self._make_own_iterator = IteratorFactory(_wrapped(steps, wrap), own_seed, division.worker)
        self._make_iterator = self._make_own_iterator
        # Workers that read the same data end at the same step, and endless ones never.
        ends_alike = division.policy is AutoShardPolicy.DATA or plan.cardinality == INFINITE
        if any_has_data is not None and not ends_alike:
            steps = _until_all_end(steps, any_has_data, num_local)
            self._make_iterator = IteratorFactory(_wrapped(steps, wrap), own_seed, division.worker)

    @property
    def is_shared(self) -> bool:
        """Whether all workers read the same batches, and each takes its part of them."""
        return self._division.policy is AutoShardPolicy.DATA

    def describe(self) -> str:
        """One line for the log: the policy, this worker's shard, the batch and the replicas."""
        return self._description

    def cardinality(self) -> int:
        """The number of steps for which this worker has data, `INFINITE` (-1) or `UNKNOWN` (-2)."""
        return self._plan.cardinality

    @property
    def element_spec(self) -> Any:
        """The `TensorSpec`s of a replica's batch; how many examples it has may vary."""
        return map_arrays(
            lambda s: TensorSpec((None, *s.shape[1:]) if s.shape else (), s.dtype),
            self._plan.spec(),
        )

    def __iter__(self) -> DatasetIterator:
        self._require_shared_seed()
        iterator = self._make_iterator()
        self._require_same_pass(iterator)
        return iterator

    def own_steps(self) -> DatasetIterator:
        """An iterator that ends with this worker's data, for loops that agree on their end."""
        self._require_shared_seed()
        return self._make_own_iterator()

    def require_alike(self, texts_of_workers: TextsOfWorkers) -> None:
        """Compares with the other workers what all must have alike; all of them call this.

        Where each worker takes a part of one order, it must be the same chain with the same seed.
        If that order is another one in each pass, all workers begin their passes together, too.

        Args:
            texts_of_workers: see `TextsOfWorkers`.

        Raises:
            ValueError: on all workers, if they differ; the message names two of them.
        """
        self._texts_of_workers = texts_of_workers
        texts = texts_of_workers(self.order())
        require_one_order(dict(enumerate(texts)), len(texts))

    def order(self) -> str:
        """What workers must have alike if they divide one dataset, for `require_one_order`."""
        seed = self._make_iterator.shared_seed() if self._needs_shared_seed else None
        parts = [[count, index, of.text, seed] for count, index, of, _ in self._division.parts]
        return json.dumps([self._division.policy.name, parts])

    def _require_same_pass(self, iterator: DatasetIterator) -> None:
        """Raises an error if a worker has looked at the data beforehand, and is a pass ahead."""
        if self._texts_of_workers is None or not self._has_shared_passes:
            return
        texts = self._texts_of_workers(json.dumps(iterator.seed_and_iteration))
        found = [json.loads(text) for text in texts]
        workers = [*range(len(found))]
        require_equal("the number of passes before this one", [i for _, i in found], workers)
        require_equal("the seed", [seed for seed, _ in found], workers)

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


def _until_all_end(steps: Plan, any_has_data: AnyHasData, num_local: int) -> Plan:
    def empty_step() -> Any:
        return (empty_batch(steps.spec()),) * num_local

    return steps.then(
        lambda elements, _: elements.through(UntilAllEndIterator, any_has_data, empty_step),
        keeps=Keeps.ALL,
    )


def _wrapped(steps: Plan, wrap: Wrap) -> Plan:
    return steps.then(lambda elements, _: elements.through(MapIterator, wrap), keeps=Keeps.ALL)
