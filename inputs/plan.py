"""What a dataset is before it is opened: a chain of steps and what is known of its elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Flag, auto
from typing import Any, NamedTuple, final

from .elements import Elements
from .options import Options
from .seeds import Seeds
from .values import spec_of

INFINITE = -1
"""The cardinality of a dataset without end."""

UNKNOWN = -2
"""The cardinality of a dataset that has to be read to be counted."""

_NO_OPTIONS = Options()


@final
class Opening(NamedTuple):
    """What an iterator tells all steps of a chain when it opens them.

    Args:
        seeds: hands out shuffle keys, from the source upwards.
        file_shard: the number of workers among which files are divided, and this worker's number.
        start: how many elements of the order that `shard` divides were seen before.
        in_order: whether the elements must come in the order of the input, since somebody counts
            on their positions: a later step, a saved state or other workers.
    """

    seeds: Seeds
    options: Options
    file_shard: tuple[int, int] = (1, 0)
    start: int = 0
    in_order: bool = False

    def inside(self, number: int) -> Opening:
        """For a dataset that a function made of element `number`; its files are its own."""
        return self._replace(seeds=self.seeds.inside(number), file_shard=(1, 0), start=0)


Open = Callable[[Opening], Elements]
"""Makes the elements of a dataset for one iterator."""

Step = Callable[[Elements, Opening], Elements]
"""Makes elements of the input's elements for one iterator."""

Count = Callable[[int], int]
"""How many elements a step makes of so many; cardinalities, so INFINITE and UNKNOWN are counts."""


class Keeps(Flag):
    """What a step leaves as it was. What it does not name is not known of its elements.

    The other way round, where each step had to forget what it broke, forgetting to forget lost
    examples in silence. Now a step that names too little costs speed, or has something refused.

    COUNT: there are as many elements. SPEC: they are alike. BATCH_SIZE: they are batches of the
    same size. FILES: what the step makes of several workers' files is, taken together, what it
    makes of all files. SHARD: the elements are made of those of the shard one by one, in order.
    READY: an element only has to be copied. ANY_ORDER: the input's elements may come in any
    order, and in another one when the step is resumed, which reads none of them again.
    """

    NOTHING = 0
    COUNT = auto()
    SPEC = auto()
    BATCH_SIZE = auto()
    FILES = auto()
    SHARD = auto()
    READY = auto()
    ANY_ORDER = auto()
    EACH = COUNT | BATCH_SIZE | FILES | SHARD
    ALL = EACH | SPEC | READY | ANY_ORDER


@final
@dataclass(frozen=True)
class Demands:
    """What was asked for, or must be done, about a whole chain, whatever steps come behind.

    Args:
        draws_seed: whether a shuffle uses the iterator's seed, having none of its own.
        fixed_seed: the iterator's seed, where every iterator must draw the same.
        reshuffles: whether each pass over the dataset may have another order.
    """

    options: Options = _NO_OPTIONS
    draws_seed: bool = False
    fixed_seed: int | None = None
    reshuffles: bool = False

    @staticmethod
    def of(several: Sequence[Demands]) -> Demands:
        """Those of a dataset that opens several others."""
        return Demands(
            options=Options.agreed([demands.options for demands in several]),
            draws_seed=any(demands.draws_seed for demands in several),
            fixed_seed=next((d.fixed_seed for d in several if d.fixed_seed is not None), None),
            reshuffles=any(demands.reshuffles for demands in several),
        )


@final
@dataclass(frozen=True)
class Plan:
    """An immutable description of a dataset.

    Args:
        text: the chain as the user wrote it; a saved state is only taken back by the same chain.
        cardinality: the number of elements, `INFINITE` or `UNKNOWN`.
        known_spec: gives the `TensorSpec`s of an element; None if one must be read for that.
        epoch: the cardinality of one pass over the source; None where nothing is repeated.
        batch_size: what the last `batch()` was given.
        file_counts: how many files each source can divide among workers; none if not all of the
            data come from files, or something stands in the way.
        shard: the `shard()` from which the elements come one by one or in batches, if there is one.
        is_ready: whether the next element only has to be copied, from memory or from what was
            prefetched, so that a thread that works ahead would cost more than it saves.
    """

    text: str
    cardinality: int
    open: Open
    known_spec: Callable[[], Any] | None = None
    demands: Demands = Demands()
    epoch: int | None = None
    batch_size: int | None = None
    file_counts: tuple[int, ...] = ()
    shard: Shard | None = None
    is_ready: bool = False

    def then(
        self,
        step: Step,
        text: str | None = None,
        keeps: Keeps = Keeps.NOTHING,
        count: Count | None = None,
        **changes: Any,
    ) -> Plan:
        """This plan with one more step, which adds `text` to the chain if it has a state.

        It `keeps` something of the plan, makes `count` elements of so many, and decides other
        fields.
        """
        open_input = self.open if Keeps.ANY_ORDER in keeps else self.open_in_order
        if Keeps.COUNT in keeps:
            count = int  # the same number
        plan = Plan(
            text=self.text if text is None else f"{self.text}.{text}",
            cardinality=UNKNOWN if count is None else count(self.cardinality),
            open=lambda opening: step(open_input(opening), opening),
            known_spec=self.spec if Keeps.SPEC in keeps else None,
            demands=self.demands,
            epoch=None if count is None else count(self.epoch_length),
            batch_size=self.batch_size if Keeps.BATCH_SIZE in keeps else None,
            file_counts=self.file_counts if Keeps.FILES in keeps else (),
            shard=self.shard if Keeps.SHARD in keeps else None,
            is_ready=Keeps.READY in keeps and self.is_ready,
        )
        return replace(plan, **changes) if changes else plan

    def open_in_order(self, opening: Opening) -> Elements:
        """The elements in the order of the source."""
        return self.open(opening._replace(in_order=True))

    def demanding(self, **changes: Any) -> Plan:
        """This plan with other `demands`."""
        return replace(self, demands=replace(self.demands, **changes))

    def spec(self) -> Any:
        """The `TensorSpec`s of an element, which may have to be read for that."""
        return _first_spec(self) if self.known_spec is None else self.known_spec()

    @property
    def epoch_length(self) -> int:
        """The cardinality of one pass over the source."""
        return self.cardinality if self.epoch is None else self.epoch

    @property
    def num_files(self) -> int | None:
        """Among how many workers the files can be divided at most; None if there are none."""
        return min(self.file_counts, default=None)


@final
class Shard(NamedTuple):
    """A worker's part of an order that all workers share.

    Each element of the plan takes `per_element` elements of the shard.
    """

    num_shards: int
    shard_index: int
    order: Plan
    per_element: int = 1

    def times(self, number: int) -> Shard:
        """For a plan whose elements are made of `number` elements each."""
        return self._replace(per_element=self.per_element * number)


def _first_spec(plan: Plan) -> Any:
    elements = plan.open(Opening(Seeds(0, 0), plan.demands.options)).iterate(0)
    try:
        return spec_of(next(elements))
    except StopIteration:
        raise ValueError(
            f"element_spec of {plan.text} is unknown because the dataset has no elements. "
            "Look at the source of the data."
        ) from None
    finally:
        elements.close()


def strided_cardinality(cardinality: int, start: int, stop: int | None, step: int) -> int:
    """How many of the elements `start, start + step, ...` before `stop` there are."""
    if cardinality == INFINITE:
        return INFINITE if stop is None else len(range(start, stop, step))
    if cardinality == UNKNOWN:
        return 0 if stop == start else UNKNOWN
    return len(range(start, cardinality if stop is None else min(stop, cardinality), step))


def batched_cardinality(cardinality: int, size: int, drop_remainder: bool) -> int:
    """How many batches the elements fill."""
    if cardinality < 0:
        return cardinality
    return cardinality // size if drop_remainder else -(-cardinality // size)
