"""Datasets whose elements are dealt out to replicas; strategies hand in plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ._checks import checked_count, checked_shard
from ._ending import AnyHasData
from ._plan import (
    INFINITE,
    UNKNOWN,
    Keeps,
    Plan,
    Shard,
    batched_cardinality,
    joined,
    longest_cardinality,
)
from ._split import DealtStream, SideBySideStream, SplitStream, split_points
from .dataset import Dataset
from .distributed_dataset import DistributedDataset, Wrap
from .options import AutoShardPolicy


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
) -> DistributedDataset:
    """Cuts each global batch into consecutive parts, one for each replica.

    A batch of 7 over two replicas goes as 4 and 3. A last, smaller batch fills the same places from
    the front, and a replica for which nothing is left gets arrays of leading dimension 0: every
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
    plan = _checked_dataset(dataset).plan
    depth = _depth(prefetch, plan)
    asked = plan.options.auto_shard_policy or AutoShardPolicy.AUTO
    policy = resolved_policy(asked, plan.num_files, num_workers)
    part = Shard(num_workers, worker_index, plan)
    if policy is AutoShardPolicy.DATA:
        rounds = [range(first_replica, first_replica + num_local)]
    else:
        rounds = [range(first, first + num_local) for first in range(0, num_all, num_local)]
    if policy is AutoShardPolicy.FILE:
        plan = _with_file_shard(plan, (num_workers, worker_index))
    return DistributedDataset(
        plan.then(
            lambda elements, _: SplitStream(elements, num_all, rounds),
            # Several workers keep parts of the same batches, or of a batch that is read again.
            keeps=Keeps.SPEC | (Keeps.ANY_ORDER if num_workers == 1 else Keeps.NOTHING),
            cardinality=plan.cardinality if len(rounds) == 1 else UNKNOWN,
            epoch=plan.epoch if len(rounds) == 1 else None,
        ),
        num_local=num_local,
        any_has_data=None if policy is AutoShardPolicy.DATA else any_has_data,
        description=f"policy {policy.name}, shard {worker_index} of {num_workers}, global batch "
        f"{_global_batch(plan.batch_size, num_all, rounds)}, "
        f"{_share(policy, plan, num_workers, worker_index)}, prefetch {depth}",
        prefetch_depth=depth,
        wrap=wrap,
        seed=seed,
        shared_order=plan if num_workers > 1 and policy is AutoShardPolicy.DATA else None,
        worker=(num_workers, worker_index),
        policy=policy.name,
        parts=[] if policy is AutoShardPolicy.OFF else [part],
    )


def resolved_policy(
    policy: AutoShardPolicy, num_files: int | None, num_workers: int
) -> AutoShardPolicy:
    """OFF, FILE or DATA, for data from so many files (None: from none) on so many workers.

    Raises:
        ValueError: FILE is asked for, and there are fewer files than workers.
    """
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
) -> DistributedDataset:
    """Gives each replica an element of its own, so that N replicas take N elements a step.

    When the data ends within a step, the replicas that are left get an empty batch: the same
    structure, with leading dimension 0.

    Args:
        dataset: its elements are per-replica batches; nothing is rebatched or sharded.
        num_local_replicas: replicas of this worker.
        prefetch: as in `split_global_batches`.
        wrap: makes the element of a step from the tuple of its local batches.
        seed: for shuffles without a seed; None takes `default_seed`'s or draws one.
        worker: the number of workers, and this worker's number.
        any_has_data: as in `split_global_batches`; not for datasets without end.

    Raises:
        ValueError: on iteration over one of several shards, a shuffle before `shard` would draw
            another order on each worker.
    """
    num_local, _ = _checked_replicas(num_local_replicas, num_local_replicas)
    num_workers, worker_index = checked_shard(
        *worker, "the number of workers", "the worker's number"
    )
    plan = _checked_dataset(dataset).plan
    depth = _depth(prefetch, plan)
    size = "" if plan.batch_size is None else f" of {plan.batch_size}"
    return DistributedDataset(
        plan.then(
            lambda elements, _: DealtStream(elements, num_local),
            keeps=Keeps.SPEC | Keeps.ANY_ORDER,
            count=lambda number: batched_cardinality(number, num_local, drop_remainder=False),
            shard=plan.shard and plan.shard.times(num_local),
        ),
        num_local=num_local,
        any_has_data=None if plan.cardinality == INFINITE else any_has_data,
        description=f"policy OFF, per-replica batches{size} for {_replicas(num_local)}, "
        f"{_number_of_steps(batched_cardinality(plan.cardinality, num_local, False))}, "
        f"prefetch {depth}",
        prefetch_depth=depth,
        wrap=wrap,
        seed=seed,
        shared_order=plan.shard.order if plan.shard and num_workers > 1 else None,
        worker=(num_workers, worker_index),
        policy="OFF",
        parts=[] if plan.shard is None else [plan.shard],
    )


def per_replica_pipelines(
    datasets: Sequence[Dataset],
    *,
    prefetch: int = 0,
    wrap: Wrap = tuple,
    seed: int | None = None,
    worker: tuple[int, int] = (1, 0),
    any_has_data: AnyHasData | None = None,
) -> DistributedDataset:
    """Gives each replica the elements of a dataset of its own.

    A replica whose data have ended gets empty batches until those of all have.

    Args:
        datasets: for each replica of this worker its per-replica batches.
        prefetch: as in `split_global_batches`.
        wrap: makes the element of a step from the tuple of its local batches.
        seed: for shuffles without a seed, the same in all datasets; None takes `default_seed`'s or
            draws one.
        worker: the number of workers, and this worker's number.
        any_has_data: as in `split_global_batches`; not for datasets without end.

    Raises:
        ValueError: as in `per_replica_batches`.
    """
    num_workers, worker_index = checked_shard(
        *worker, "the number of workers", "the worker's number"
    )
    plans = [_checked_dataset(dataset).plan for dataset in datasets]
    plan = joined(
        plans,
        text=f"replicas({', '.join(plan.text for plan in plans)})",
        cardinality=longest_cardinality([plan.cardinality for plan in plans]),
        epoch=longest_cardinality([plan.epoch_length for plan in plans]),
        # Not one after another from the same seeds: equal shuffles must draw equal orders.
        open=lambda opening: SideBySideStream([plan.open(opening.inside(0)) for plan in plans]),
        spec=plans[0].spec,
    )
    depth = _depth(prefetch, plan)
    shards = [plan.shard for plan in plans if plan.shard is not None]
    return DistributedDataset(
        plan,
        num_local=len(plans),
        any_has_data=None if plan.cardinality == INFINITE else any_has_data,
        description=f"policy OFF, an input pipeline for each of {_replicas(len(plans))}, "
        f"{_number_of_steps(plan.cardinality)}, prefetch {depth}",
        prefetch_depth=depth,
        wrap=wrap,
        seed=seed,
        shared_order=shards[0].order if shards and num_workers > 1 else None,
        worker=(num_workers, worker_index),
        policy="OFF",
        parts=shards,
    )


def _with_file_shard(plan: Plan, file_shard: tuple[int, int]) -> Plan:
    count, index = file_shard
    return replace(
        plan,
        open=lambda opening: plan.open(opening._replace(file_shard=file_shard)),
        # A state is a place in these files, and must not be taken for one in others.
        text=f"{plan.text}.files({count}, {index})",
    )


def _depth(prefetch: int, plan: Plan) -> int:
    """How many steps are prepared ahead.

    A hand-over between threads takes some 35 microseconds, about as long as a gather.
    """
    depth = checked_count("prefetch", prefetch, 0)
    return 0 if plan.is_at_hand else depth


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


def _checked_dataset(dataset: Any) -> Dataset:
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"dataset must be a Dataset, got {type(dataset).__name__}. "
            "Wrap arrays in Dataset.from_tensor_slices(...).batch(...)."
        )
    return dataset


def _replicas(count: int) -> str:
    return f"{count} replica{'s' if count > 1 else ''}"
