"""The transformations as steps from one plan to the next; arguments have been checked."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import nest
from ._cached import CacheMemory, cached
from ._computed import Batched, Mapped, MappedInBatches, Stacked
from ._conformity import conformed, require_finite
from ._elements import Elements
from ._ignored import IgnoringStream, Report
from ._interleaved import InterleavedStream
from ._padding import stack_padded
from ._parallel_map import ParallelMappedStream, in_another_process, in_this_process
from ._plan import (
    UNKNOWN,
    Opening,
    Plan,
    Shard,
    batched_cardinality,
    repeated_cardinality,
    strided_cardinality,
)
from ._prefetch import prefetched
from ._random_access import Items, Repeated, Strided
from ._seeds import entropy_seed
from ._shuffled import shuffled
from ._sources import with_spec_of_first_element
from ._stream_steps import BatchedStream, FilteredStream, MappedStream, UnbatchedStream
from ._streams import RepeatedStream, StridedStream
from ._values import ArraySpec, DatasetSpec, as_element, map_arrays
from ._windows import WindowedStream

Function = Callable[..., Any]


def mapped(plan: Plan, map_func: Function) -> Plan:
    """Each element passed through a function."""
    function = partial(_call_with_element, map_func)

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        return MappedStream(inner, function) if access is None else Mapped(access, function)

    return with_spec_of_first_element(plan.then(step, "map()"))


def mapped_in_parallel(
    plan: Plan, map_func: Function, count: int, in_order: bool | None, in_processes: bool
) -> Plan:
    """Each element passed through a function, several at a time."""
    function = partial(_call_with_element, map_func)
    open_function = partial(in_another_process if in_processes else in_this_process, function)

    def step(inner: Elements, opening: Opening) -> Elements:
        keeps_order = opening.options.deterministic if in_order is None else in_order
        return ParallelMappedStream(inner, open_function, count, keeps_order)

    return with_spec_of_first_element(plan.then(step, "map(num_parallel_calls)"))


def mapped_in_batches(plan: Plan, map_func: Function, batch_size: int) -> Plan:
    """Each element passed through a function of batches."""
    function = partial(_call_with_batch, map_func)

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        if access is not None:
            return MappedInBatches(access, function)
        batches = BatchedStream(inner, batch_size, drop_remainder=False)
        return UnbatchedStream(
            MappedStream(batches, lambda batch: function(batch, nest.batch_size(batch)))
        )

    return with_spec_of_first_element(plan.then(step, f"map_batched({batch_size})"))


def filtered(plan: Plan, predicate: Function) -> Plan:
    """The elements for which a function says True."""
    function = partial(_call_with_element, predicate)
    return plan.then(
        lambda inner, _: FilteredStream(inner, function),
        "filter()",
        cardinality=UNKNOWN,
        shard=None,
    )


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
        cardinality=batched_cardinality(plan.cardinality, size, drop_remainder),
        spec=lambda: _batched_spec(plan.spec(), size if drop_remainder else None),
        batch_size=size,
        shard=plan.shard and plan.shard.times(size),
        is_at_hand=plan.is_at_hand,
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
    stacked = plan.then(
        step,
        text,
        cardinality=batched_cardinality(plan.cardinality, size, drop_remainder),
        batch_size=size,
        shard=plan.shard and plan.shard.times(size),
    )
    return with_spec_of_first_element(stacked)


def unbatched(plan: Plan) -> Plan:
    """The rows of elements that are batches."""
    spec = plan.spec
    return plan.then(
        lambda inner, _: UnbatchedStream(inner),
        "unbatch()",
        cardinality=0 if plan.cardinality == 0 else UNKNOWN,
        spec=lambda: map_arrays(lambda s: ArraySpec(s.shape[1:], s.dtype), spec()),
        batch_size=None,
        shard=None,
        is_at_hand=plan.is_at_hand,
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
        spec=lambda: nest.map_structure(DatasetSpec, spec()),
        cardinality=_num_windows(plan.cardinality, size, shift, stride, drop_remainder),
        batch_size=None,
        shard=None,
    )


def interleaved(
    plan: Plan,
    plan_of: Callable[[Any], Plan],
    *,
    cycle_length: int,
    block_length: int,
    prefetch: int,
) -> Plan:
    """The elements of datasets that a function makes of each element."""

    def step(inner: Elements, opening: Opening) -> Elements:
        def expand(element: Any, number: int) -> Elements:
            try:
                part = plan_of(element)
            except StopIteration as error:
                raise RuntimeError("map_func raised StopIteration") from error
            return prefetched(part.open(opening.inside(number)), prefetch)

        return InterleavedStream(inner, expand, cycle_length, block_length)

    text = f"interleave(cycle_length={cycle_length}, block_length={block_length})"
    parts = plan.then(step, text, cardinality=UNKNOWN, batch_size=None, shard=None)
    return with_spec_of_first_element(parts)


def ignoring_errors(plan: Plan, report: Report | None) -> Plan:
    """The elements that can be had."""
    return plan.then(
        lambda inner, _: IgnoringStream(inner, report),
        "ignore_errors()",
        cardinality=UNKNOWN,
        shard=None,
    )


def shuffled_plan(plan: Plan, buffer_size: int, seed: int | None, reshuffle: bool) -> Plan:
    """The elements in random order."""
    fixed_seed = plan.fixed_seed
    if seed is None and not reshuffle and fixed_seed is None:
        # An order that all iterators share, but that nobody fixed, is drawn here.
        fixed_seed = entropy_seed()
    return plan.then(
        partial(shuffled, buffer_size=buffer_size, seed=seed, reshuffle=reshuffle),
        f"shuffle({buffer_size}, seed={seed}, reshuffle={reshuffle})",
        draws_seed=plan.draws_seed or seed is None,
        fixed_seed=fixed_seed,
        shard=None,
        is_at_hand=plan.is_at_hand,
    )


def repeated(plan: Plan, count: int | None) -> Plan:
    """The dataset `count` times in a row; None without end."""

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        return RepeatedStream(inner, count) if access is None else Repeated(access, count)

    return plan.then(
        step,
        f"repeat({'' if count is None else count})",
        cardinality=repeated_cardinality(plan.cardinality, count),
        shard=None,
        is_at_hand=plan.is_at_hand,
    )


def taken(plan: Plan, text: str, start: int, stop: int | None) -> Plan:
    """The elements from `start` to before `stop`."""
    return plan.then(
        lambda inner, _: _strided(inner, start, stop, 1),
        text,
        cardinality=strided_cardinality(plan.cardinality, start, stop, 1),
        # Some of all elements is not some of those in a worker's files.
        num_files=None,
        shard=None,
        is_at_hand=plan.is_at_hand,
    )


def sharded(plan: Plan, count: int, index: int) -> Plan:
    """Every `count`-th element, beginning with number `index`."""
    return plan.then(
        lambda inner, opening: _strided(inner, opening.start + index, None, count),
        f"shard({count}, {index})",
        cardinality=strided_cardinality(plan.cardinality, index, None, count),
        num_files=None,
        shard=Shard(count, index, plan),
        is_at_hand=plan.is_at_hand,
    )


def cached_plan(plan: Plan) -> Plan:
    """Elements that are computed once."""
    return plan.then(partial(cached, memory=CacheMemory()), "cache()")


def prefetched_plan(plan: Plan, depth: int, max_depth: int) -> Plan:
    """Elements that are produced ahead."""
    return plan.then(
        lambda inner, _: prefetched(inner, depth, max_depth),
        is_at_hand=plan.is_at_hand or depth > 0,
    )


def required_finite(plan: Plan) -> Plan:
    """Elements without infinities and NaN."""

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        if access is None:
            return MappedStream(inner, require_finite)
        return Mapped(access, require_finite)

    return plan.then(step, "require_finite()")


def conforming(plan: Plan, signature: Any) -> Plan:
    """Elements of a known structure, converted to its dtypes."""
    function = partial(conformed, signature=signature)
    return plan.then(lambda inner, _: MappedStream(inner, function), spec=lambda: signature)


def _strided(inner: Elements, start: int, stop: int | None, step: int) -> Elements:
    access = inner.random_access()
    if access is None:
        return StridedStream(inner, start, stop, step)
    return Strided(access, start, stop, step)


def _call_with_element(function: Function, element: Any) -> Any:
    try:
        # As in tf.data only a plain tuple is unpacked, a namedtuple is one argument.
        result = function(*element) if type(element) is tuple else function(element)
    except StopIteration as error:
        raise RuntimeError("map_func raised StopIteration, which would end the data") from error
    return as_element(result)


def _call_with_batch(function: Function, batch: Any, size: int) -> Any:
    result = _call_with_element(function, batch)
    num_rows = nest.batch_size(result, ("what map_func returned",))
    if num_rows != size:
        raise ValueError(
            f"map_func of map_batched must return as many rows as it is given, got {num_rows} for "
            f"{size}. Use batch().map() to change their number."
        )
    return result


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
