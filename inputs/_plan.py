"""What a dataset is before it is opened: a chain of steps and what is known of its elements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

from ._elements import Elements
from ._seeds import Seeds

INFINITE = -1
"""The cardinality of a dataset without end."""

UNKNOWN = -2
"""The cardinality of a dataset that has to be read to be counted."""


@final
@dataclass(frozen=True)
class Plan:
    """An immutable description of a dataset.

    Args:
        text: the chain as the user wrote it; a saved state is only taken back by the same chain.
        cardinality: the number of elements, `INFINITE` or `UNKNOWN`.
        open: makes the elements, handing out shuffle keys from the source upwards.
        spec: the `ArraySpec`s of an element.
        batch_size: what the last `batch()` was given.
        draws_seed: whether a shuffle uses the iterator's seed, having none of its own.
        fixed_seed: the iterator's seed, where every iterator must draw the same.
    """

    text: str
    cardinality: int
    open: Callable[[Seeds], Elements]
    spec: Callable[[], Any]
    batch_size: int | None = None
    draws_seed: bool = False
    fixed_seed: int | None = None

    def then(self, step: Callable[[Elements, Seeds], Elements], **changes: Any) -> Plan:
        """This plan with one more step; `changes` are the fields that the step changes."""
        return replace(self, open=lambda seeds: step(self.open(seeds), seeds), **changes)


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


def zipped_cardinality(cardinalities: list[int]) -> int:
    """The shortest of several cardinalities."""
    finite = [c for c in cardinalities if c != INFINITE]
    if UNKNOWN in finite:
        return 0 if 0 in finite else UNKNOWN
    return min(finite, default=INFINITE)
