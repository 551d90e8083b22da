"""Transformations that put several elements together or apart, as steps from plan to plan.

Arguments have been checked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import nest
from ._computed import Batched, Stacked
from ._elements import Elements
from ._padding import stack_padded
from ._plan import (
    UNKNOWN,
    Keeps,
    Opening,
    Plan,
    batched_cardinality,
    strided_cardinality,
    with_spec_of_first_element,
)
from ._random_access import Items
from ._stream_steps import BatchedStream, UnbatchedStream
from ._values import ArraySpec, DatasetSpec, map_arrays
from ._windows import WindowedStream


def batched(plan: Plan, size: int, drop_remainder: bool) -> Plan:
    """Stacks of consecutive elements."""

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        if access is None:
            return BatchedStream(inner, size, drop_remainder)
        return Batched(access, size, drop_remainder)

    text = f"batch({size}{', drop_remainder=True' if drop_remainder else ''})"
    return plan.then(
        step,
        text,
        Keeps.FILES | Keeps.AT_HAND | Keeps.ANY_ORDER,
        count=lambda number: batched_cardinality(number, size, drop_remainder),
        spec=lambda: _batched_spec(plan.spec(), size if drop_remainder else None),
        batch_size=size,
        shard=plan.shard and plan.shard.times(size),
    )


def padded_batched(
    plan: Plan, size: int, drop_remainder: bool, padded_shapes: Any, padding_values: Any
) -> Plan:
    """Stacks of consecutive elements that are padded to a common shape."""
    stack = partial(stack_padded, shapes=padded_shapes, values=padding_values)

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        if access is None:
            return BatchedStream(inner, size, drop_remainder, stack)
        return Batched(Stacked(access, stack), size, drop_remainder)

    text = f"padded_batch({size}{', drop_remainder=True' if drop_remainder else ''})"
    return plan.then(
        step,
        text,
        Keeps.FILES | Keeps.ANY_ORDER,
        count=lambda number: batched_cardinality(number, size, drop_remainder),
        batch_size=size,
        shard=plan.shard and plan.shard.times(size),
    )


def unbatched(plan: Plan) -> Plan:
    """The rows of elements that are batches."""
    spec = plan.spec
    return plan.then(
        lambda inner, _: UnbatchedStream(inner),
        "unbatch()",
        Keeps.FILES | Keeps.AT_HAND,
        cardinality=0 if plan.cardinality == 0 else UNKNOWN,
        spec=lambda: map_arrays(lambda s: ArraySpec(s.shape[1:], s.dtype), spec()),
    )


def windowed(
    plan: Plan,
    *,
    size: int,
    shift: int,
    stride: int,
    drop_remainder: bool,
    make_dataset: Callable[[Plan], Any],
) -> Plan:
    """Small datasets of consecutive elements."""
    stream = partial(
        WindowedStream,
        size=size,
        shift=shift,
        stride=stride,
        min_size=size if drop_remainder else 1,
        make_dataset=lambda values: make_dataset(_values_plan(values)),
    )
    spec = plan.spec
    return plan.then(
        lambda inner, _: stream(inner),
        f"window({size}, shift={shift}, stride={stride}, drop_remainder={drop_remainder})",
        # Not the files: a window may lie across the border between two of them.
        count=lambda number: _num_windows(number, size, shift, stride, drop_remainder),
        spec=lambda: nest.map_structure(DatasetSpec, spec()),
    )


def _batched_spec(spec: Any, size: int | None) -> Any:
    return map_arrays(lambda s: ArraySpec((size, *s.shape), s.dtype), spec)


def _values_plan(values: list[Any]) -> Plan:
    """The dataset of one component of a window."""
    items = Items(len(values), lambda indices: [values[index] for index in indices])
    plan = Plan("window", len(values), open=lambda _: items, spec=lambda: None)
    return with_spec_of_first_element(plan)


def _num_windows(cardinality: int, size: int, shift: int, stride: int, drop_remainder: bool) -> int:
    span = (size - 1) * stride if drop_remainder else 0
    return strided_cardinality(cardinality, span, None, shift) if cardinality >= 0 else cardinality
