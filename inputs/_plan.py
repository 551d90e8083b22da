"""What a dataset is before it is opened: a chain of steps and what is known of its elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import Any, NamedTuple, final

from ._elements import Elements
from ._seeds import Seeds
from ._values import spec_of
from .options import NO_OPTIONS, Options

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
        in_order: whether the elements must come in the order of the input, since somebody counts
            on their places: a later step, a saved state or other workers.
    """

    seeds: Seeds
    options: Options = NO_OPTIONS
    file_shard: tuple[int, int] = (1, 0)
    start: int = 0
    in_order: bool = False

    def inside(self, number: int) -> Opening:
        """For a dataset that a function made of element `number`; its files are its own."""
        return self._replace(seeds=self.seeds.inside(number), file_shard=(1, 0), start=0)

    def ordered(self) -> Opening:
        """For elements whose places somebody counts on."""
        return self._replace(in_order=True)


Step = Callable[[Elements, Opening], Elements]


class Keeps(Flag):
    """What a step leaves as it was. What it does not name is not known of its elements.

    A step that forgets one of these costs speed, or has something refused; one that claims too
    much has workers lose examples.

    COUNT: there are as many elements. SPEC: they are alike. BATCH_SIZE: they are batches of the
    same size. FILES: what the step makes of several workers' files is, taken together, what it
    makes of all files. SHARD: the elements are made of those of the shard one by one, in order.
    AT_HAND: an element only has to be copied. ANY_ORDER: the input's elements may come in any
    order, and in another one when the step is resumed, which reads none of them again.
    """

    NOTHING = 0
    COUNT = auto()
    SPEC = auto()
    BATCH_SIZE = auto()
    FILES = auto()
    SHARD = auto()
    AT_HAND = auto()
    ANY_ORDER = auto()
    EACH = COUNT | BATCH_SIZE | FILES | SHARD
    ALL = EACH | SPEC | AT_HAND | ANY_ORDER


@final
@dataclass(frozen=True)
class Plan:
    """An immutable description of a dataset.

    Args:
        text: the chain as the user wrote it; a saved state is only taken back by the same chain.
        cardinality: the number of elements, `INFINITE` or `UNKNOWN`.
        open: makes the elements.
        spec: the `ArraySpec`s of an element.
        draws_seed: whether a shuffle uses the iterator's seed, having none of its own.
        fixed_seed: the iterator's seed, where every iterator must draw the same.
        reshuffles: whether each pass over the dataset may have another order.
        options: of the whole chain.
        epoch: the cardinality of one pass over the source; None where nothing is repeated.
        batch_size: what the last `batch()` was given.
        file_counts: how many files each source can divide among workers; none if not all of the
            data come from files, or something stands in the way.
        shard: the `shard()` from which the elements come one by one or in batches, if there is one.
        is_at_hand: whether the next element only has to be copied, from memory or from what was
            prefetched, so that a thread that works ahead would cost more than it saves.
    """

    text: str
    cardinality: int
    open: Callable[[Opening], Elements]
    spec: Callable[[], Any]
    draws_seed: bool = False
    fixed_seed: int | None = None
    reshuffles: bool = False
    options: Options = NO_OPTIONS
    epoch: int | None = None
    batch_size: int | None = None
    file_counts: tuple[int, ...] = ()
    shard: Shard | None = None
    is_at_hand: bool = False

    def then(
        self,
        step: Step,
        text: str | None = None,
        keeps: Keeps = Keeps.NOTHING,
        count: Callable[[int], int] | None = None,
        **changes: Any,
    ) -> Plan:
        """This plan with one more step.

        Args:
            step: makes elements of this plan's elements.
            text: what is added to the chain; None for a step that leaves states as they are.
            keeps: what the step leaves as it was.
            count: how many elements it makes of so many.
            changes: fields that the step decides.
        """
        open_input = self.open if Keeps.ANY_ORDER in keeps else self.open_in_order
        plan = Plan(
            text=self.text if text is None else f"{self.text}.{text}",
            cardinality=UNKNOWN,
            open=lambda opening: step(open_input(opening), opening),
            spec=_unknown_spec,
            # What must be done about a chain, or was asked for, holds whatever comes behind.
            draws_seed=self.draws_seed,
            fixed_seed=self.fixed_seed,
            reshuffles=self.reshuffles,
            options=self.options,
        )
        kept = {name: getattr(self, name) for name, what in _KEPT.items() if what in keeps}
        if count is not None:
            kept |= {"cardinality": count(self.cardinality), "epoch": count(self.epoch_length)}
        plan = replace(plan, **{**kept, **changes})
        return with_spec_of_first_element(plan) if plan.spec is _unknown_spec else plan

    def open_in_order(self, opening: Opening) -> Elements:
        """The elements in the order of the source."""
        return self.open(opening.ordered())

    @property
    def epoch_length(self) -> int:
        """The cardinality of one pass over the source."""
        return self.cardinality if self.epoch is None else self.epoch

    @property
    def num_files(self) -> int | None:
        """Among how many workers the files can be divided at most; None if there are none."""
        return min(self.file_counts, default=None)


_KEPT = {
    "cardinality": Keeps.COUNT,
    "epoch": Keeps.COUNT,
    "spec": Keeps.SPEC,
    "batch_size": Keeps.BATCH_SIZE,
    "file_counts": Keeps.FILES,
    "shard": Keeps.SHARD,
    "is_at_hand": Keeps.AT_HAND,
}


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
    return Plan(
        draws_seed=any(plan.draws_seed for plan in plans),
        fixed_seed=next((p.fixed_seed for p in plans if p.fixed_seed is not None), None),
        reshuffles=any(plan.reshuffles for plan in plans),
        options=Options.agreed([plan.options for plan in plans]),
        is_at_hand=all(plan.is_at_hand for plan in plans),
        **fields,
    )


def with_spec_of_first_element(plan: Plan) -> Plan:
    """The plan, with a spec that is found by reading an element."""
    return replace(plan, spec=lambda: _first_spec(plan))


def _first_spec(plan: Plan) -> Any:
    elements = plan.open(Opening(Seeds(0, 0), plan.options)).iterate(0)
    try:
        return spec_of(next(elements))
    except StopIteration:
        raise ValueError(
            f"element_spec of {plan.text} is unknown because the dataset has no elements. "
            "Look at the source of the data."
        ) from None
    finally:
        elements.close()


def _unknown_spec() -> Any:
    """Stands for a spec that a step neither keeps nor gives."""
    raise AssertionError("a plan without a spec was used")


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
