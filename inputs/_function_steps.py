"""Transformations that call a function for elements, as steps from plan to plan.

Arguments have been checked.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from . import nest
from ._computed import Mapped, MappedInBatches
from ._conformity import conformed, require_finite
from ._elements import Elements
from ._interleaved import InterleavedStream
from ._parallel_map import ParallelMappedStream, in_another_process, in_this_process
from ._plan import Keeps, Opening, Plan
from ._prefetch import prefetched
from ._stream_steps import BatchedStream, FilteredStream, MappedStream, UnbatchedStream
from ._values import as_element

Function = Callable[..., Any]


def mapped(plan: Plan, map_func: Function) -> Plan:
    """Each element passed through a function."""
    function = partial(_call_with_element, map_func)

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        return MappedStream(inner, function) if access is None else Mapped(access, function)

    return plan.then(step, "map()", Keeps.EACH | Keeps.ANY_ORDER)


def mapped_in_parallel(
    plan: Plan, map_func: Function, count: int, in_order: bool | None, in_processes: bool
) -> Plan:
    """Each element passed through a function, several at a time.

    Where somebody counts on the order, leave to hand out what is ready first is not made use of.
    """
    function = partial(_call_with_element, map_func)
    open_function = partial(in_another_process if in_processes else in_this_process, function)

    def step(inner: Elements, opening: Opening) -> Elements:
        asked = opening.options.deterministic if in_order is None else in_order
        keeps_order = opening.in_order or asked is not False
        return ParallelMappedStream(inner, open_function, count, keeps_order)

    return plan.then(step, "map(num_parallel_calls)", Keeps.EACH)


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

    return plan.then(step, f"map_batched({batch_size})", Keeps.EACH)


def filtered(plan: Plan, predicate: Function) -> Plan:
    """The elements for which a function says True."""
    function = partial(_call_with_element, predicate)
    return plan.then(
        lambda inner, _: FilteredStream(inner, function),
        "filter()",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.ANY_ORDER,
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
    # Nobody knows yet what shuffles the datasets have that the function makes.
    return plan.then(step, text, Keeps.FILES, reshuffles=True)


def required_finite(plan: Plan) -> Plan:
    """Elements without infinities and NaN."""

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        if access is None:
            return MappedStream(inner, require_finite)
        return Mapped(access, require_finite)

    keeps = Keeps.EACH | Keeps.SPEC | Keeps.ANY_ORDER
    return plan.then(step, "require_finite()", keeps)


def conforming(plan: Plan, signature: Any) -> Plan:
    """Elements of a known structure, converted to its dtypes."""
    function = partial(conformed, signature=signature)
    return plan.then(
        lambda inner, _: MappedStream(inner, function),
        keeps=Keeps.EACH | Keeps.ANY_ORDER,
        spec=lambda: signature,
    )


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
