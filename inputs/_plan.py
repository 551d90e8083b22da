"""What a dataset is before it is opened: a chain of steps and what is known of its elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

from ._elements import Elements
from ._seeds import Seeds
from .options import DEFAULT_OPTIONS, Options

INFINITE = -1
"""The cardinality of a dataset without end."""

UNKNOWN = -2
"""The cardinality of a dataset that has to be read to be counted."""


@final
class Opening(NamedTuple):
    """What an iterator tells all steps of a chain when it opens them.

    Args:
        seeds: hands out shuffle keys, from the source upwards.
        options: those of the whole chain.
        file_shard: the number of workers among which files are divided, and this worker's number.
        start: how many elements of the order that `shard` divides were seen before.
    """

    seeds: Seeds
    options: Options = DEFAULT_OPTIONS
    file_shard: tuple[int, int] = (1, 0)
    start: int = 0

    def inside(self, number: int) -> Opening:
        """For a dataset that a function made of element `number`; its files are its own."""
        return self._replace(seeds=self.seeds.inside(number), file_shard=(1, 0), start=0)


Step = Callable[[Elements, Opening], Elements]


@final
@dataclass(frozen=True)
class Plan:
    """An immutable description of a dataset.

    Args:
        text: the chain as the user wrote it; a saved state is only taken back by the same chain.
        cardinality: the number of elements, `INFINITE` or `UNKNOWN`.
        open: makes the elements.
        spec: the `ArraySpec`s of an element.
        batch_size: what the last `batch()` was given.
        draws_seed: whether a shuffle uses the iterator's seed, having none of its own.
        fixed_seed: the iterator's seed, where every iterator must draw the same.
        options: of the whole chain.
        num_files: how many files the source can divide among workers; None if it has none.
        shard: the `shard()` from which the elements come one by one or in batches, if there is one.
        is_at_hand: whether the next element only has to be copied, from memory or from what was
            prefetched, so that a thread that works ahead would cost more than it saves.
    """

    text: str
    cardinality: int
    open: Callable[[Opening], Elements]
    spec: Callable[[], Any]
    batch_size: int | None = None
    draws_seed: bool = False
    fixed_seed: int | None = None
    options: Options = DEFAULT_OPTIONS
    num_files: int | None = None
    shard: Shard | None = None
    is_at_hand: bool = False

    def then(self, step: Step, text: str | None = None, **changes: Any) -> Plan:
        """This plan with one more step.

        Args:
            step: makes elements of this plan's elements.
            text: what is added to the chain; None for a step that leaves states as they are.
            changes: the fields that the step changes. `is_at_hand` holds for rearrangements only,
                and is passed on by them.
        """
        whole_text = self.text if text is None else f"{self.text}.{text}"
        return replace(
            self,
            open=lambda opening: step(self.open(opening), opening),
            text=whole_text,
            **{"is_at_hand": False, **changes},
        )


@final
class Shard(NamedTuple):
    """A worker's part of an order that all workers share.

    Args:
        num_shards: how many parts there are.
        shard_index: which one this is, from 0.
        order: what is divided.
        per_element: how many elements of the shard each element of the plan takes.
    """

    num_shards: int
    shard_index: int
    order: Plan
    per_element: int = 1

    def times(self, number: int) -> Shard:
        """For a plan whose elements are made of `number` elements each."""
        return self._replace(per_element=self.per_element * number)


def joined(plans: list[Plan], **fields: Any) -> Plan:
    """A plan that opens several others; `fields` are those that they do not decide."""
    counts = [plan.num_files for plan in plans if plan.num_files is not None]
    return Plan(
        draws_seed=any(plan.draws_seed for plan in plans),
        fixed_seed=next((p.fixed_seed for p in plans if p.fixed_seed is not None), None),
        options=plans[0].options,
        num_files=min(counts) if len(counts) == len(plans) else None,
        is_at_hand=all(plan.is_at_hand for plan in plans),
        **fields,
    )


def strided_cardinality(cardinality: int, start: int, stop: int | None, step: int) -> int:
    """How many of the elements `start, start + step, ...` before `stop` there are."""
    if cardinality == INFINITE:
        return INFINITE if stop is None else len(range(start, stop, step))
    if cardinality == UNKNOWN:
        return 0 if stop == start else UNKNOWN
    return len(range(start, cardinality if stop is None else min(stop, cardinality), step))


def repeated_cardinality(cardinality: int, count: int | None) -> int:
    """How many elements `count` iterations have; None stands for no end."""
    if cardinality == 0 or count == 0:
        return 0
    if cardinality < 0:
        return cardinality
    return INFINITE if count is None else cardinality * count


def batched_cardinality(cardinality: int, size: int, drop_remainder: bool) -> int:
    """How many batches the elements fill."""
    if cardinality < 0:
        return cardinality
    return cardinality // size if drop_remainder else -(-cardinality // size)


def concatenated_cardinality(first: int, second: int) -> int:
    """How many elements there are one after another."""
    if INFINITE in (first, second):
        return INFINITE
    return UNKNOWN if UNKNOWN in (first, second) else first + second


def zipped_cardinality(cardinalities: list[int]) -> int:
    """The shortest of several cardinalities."""
    finite = [c for c in cardinalities if c != INFINITE]
    if UNKNOWN in finite:
        return 0 if 0 in finite else UNKNOWN
    return min(finite, default=INFINITE)


def longest_cardinality(cardinalities: list[int]) -> int:
    """The longest of several cardinalities."""
    if INFINITE in cardinalities:
        return INFINITE
    return UNKNOWN if UNKNOWN in cardinalities else max(cardinalities)
