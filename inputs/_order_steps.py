"""Transformations that choose, repeat, order or keep elements, as steps from plan to plan.

Arguments have been checked.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ._cached import CacheMemory, cached
from ._elements import Elements
from ._ignored import IgnoringStream, Report
from ._plan import (
    Keeps,
    Opening,
    Plan,
    Shard,
    repeated_cardinality,
    strided_cardinality,
)
from ._prefetch import prefetched
from ._random_access import Repeated, Strided
from ._seeds import process_seed
from ._shuffled import shuffled
from ._streams import RepeatedStream, StridedStream


def shuffled_plan(plan: Plan, buffer_size: int, seed: int | None, reshuffle: bool) -> Plan:
    """The elements in random order."""
    # An order that all iterators share, but that nobody fixed: a part of the dataset that is zipped
    # with others, or follows them, must stay the part that it was.
    is_shared = seed is None and not reshuffle
    return plan.then(
        partial(
            shuffled,
            buffer_size=buffer_size,
            seed=seed,
            reshuffle=reshuffle,
            chain=plan.text,
        ),
        f"shuffle({buffer_size}, seed={seed}, reshuffle={reshuffle})",
        Keeps.COUNT | Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.AT_HAND,
        draws_seed=plan.draws_seed or seed is None,
        fixed_seed=process_seed() if is_shared else plan.fixed_seed,
        reshuffles=plan.reshuffles or reshuffle,
    )


def repeated(plan: Plan, count: int | None) -> Plan:
    """The dataset `count` times in a row; None without end."""

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        return RepeatedStream(inner, count) if access is None else Repeated(access, count)

    return plan.then(
        step,
        f"repeat({'' if count is None else count})",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.AT_HAND | Keeps.ANY_ORDER,
        cardinality=repeated_cardinality(plan.cardinality, count),
        epoch=plan.epoch_length,
    )


def taken(plan: Plan, text: str, start: int, stop: int | None) -> Plan:
    """The elements from `start` to before `stop`."""
    return plan.then(
        lambda inner, _: _strided(inner, start, stop, 1),
        text,
        # Not the files: some of all elements is not some of those in a worker's files.
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.AT_HAND,
        count=lambda number: strided_cardinality(number, start, stop, 1),
    )


def sharded(plan: Plan, count: int, index: int) -> Plan:
    """Every `count`-th element, beginning with number `index`."""
    # What was seen before is counted in the order that this step divides, and not in what other
    # shards further down have divided.
    order = replace(plan, open=lambda opening: plan.open(opening._replace(start=0)))
    return order.then(
        lambda inner, opening: _strided(inner, opening.start + index, None, count),
        f"shard({count}, {index})",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.AT_HAND,
        count=lambda number: strided_cardinality(number, index, None, count),
        shard=Shard(count, index, plan),
    )


def cached_plan(plan: Plan) -> Plan:
    """Elements that are computed once."""
    return plan.then(partial(cached, memory=CacheMemory()), "cache()", Keeps.EACH | Keeps.SPEC)


def prefetched_plan(plan: Plan, depth: int, max_depth: int) -> Plan:
    """Elements that are produced ahead."""
    return plan.then(
        lambda inner, _: prefetched(inner, depth, max_depth),
        keeps=Keeps.ALL,
        is_at_hand=plan.is_at_hand or depth > 0,
    )


def ignoring_errors(plan: Plan, report: Report | None) -> Plan:
    """The elements that can be had."""
    return plan.then(
        lambda inner, _: IgnoringStream(inner, report),
        "ignore_errors()",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.ANY_ORDER,
    )


def _strided(inner: Elements, start: int, stop: int | None, step: int) -> Elements:
    access = inner.random_access()
    if access is None:
        return StridedStream(inner, start, stop, step)
    return Strided(access, start, stop, step)
