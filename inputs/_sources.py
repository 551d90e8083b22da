"""Where datasets begin: arrays, numbers, iterables, and several datasets side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np

from . import nest
from ._elements import Elements
from ._iterable import IterableStream
from ._plan import (
    UNKNOWN,
    Opening,
    Plan,
    concatenated_cardinality,
    joined,
    with_spec_of_first_element,
    zipped_cardinality,
)
from ._random_access import Concatenated, Numbers, Rows, Zipped
from ._streams import ConcatenatedStream, ZippedStream
from ._values import ArraySpec, as_element, map_arrays, read_only_view, spec_of


def tensors_plan(tensors: Any) -> Plan:
    """A single element."""
    element = as_element(tensors)
    rows = map_arrays(lambda leaf: read_only_view(leaf[None]), element)
    return Plan(
        "from_tensors()",
        1,
        open=lambda _: Rows(rows, 1),
        spec=lambda: spec_of(element),
        is_at_hand=True,
    )


def slices_plan(tensors: Any) -> Plan:
    """The rows of arrays of equal length."""
    arrays = as_element(tensors)
    length = _common_length(arrays)
    rows = map_arrays(read_only_view, arrays)
    return Plan(
        f"from_tensor_slices({length})",
        length,
        open=lambda _: Rows(rows, length),
        spec=lambda: map_arrays(lambda a: ArraySpec(a.shape[1:], a.dtype), arrays),
        is_at_hand=not any(isinstance(leaf, np.memmap) for leaf in nest.flatten(tensors)),
    )


def range_plan(numbers: range) -> Plan:
    """The int64 numbers of a range."""
    text = f"range({numbers.start}, {numbers.stop}, {numbers.step})"
    spec = spec_of(Numbers(range(1)).element(0))
    return Plan(
        text, len(numbers), open=lambda _: Numbers(numbers), spec=lambda: spec, is_at_hand=True
    )


def iterable_plan(
    source: Callable[[], Iterable[Any]] | Iterable[Any],
    convert: Callable[[Any], Any] = as_element,
) -> Plan:
    """The items of an iterable, or of what a function returns for each pass, as elements."""
    if isinstance(source, Iterator):
        raise ValueError(
            f"generator must be iterable more than once, got an iterator ({type(source).__name__}) "
            "that one pass would use up. Give the function that makes it: "
            "from_generator(make_iterator)."
        )
    if not callable(source) and not isinstance(source, Iterable):
        raise TypeError(
            "generator must be an iterable or a function that returns one, got "
            f"{type(source).__name__}. Wrap what has an index in a generator function."
        )
    open_source = source if callable(source) else lambda: source
    stream = IterableStream(open_source, convert)
    plan = Plan("from_generator()", UNKNOWN, open=lambda _: stream, spec=lambda: None)
    return with_spec_of_first_element(plan)


def zipped_plan(plans: Any) -> Plan:
    """Elements of several datasets side by side, in the structure in which they are given.

    They cannot be divided by files: files that stand side by side may have unequal lengths.
    """
    parts: list[Plan] = nest.flatten(plans)

    def open_parts(opening: Opening) -> Elements:
        opened = nest.map_structure(lambda plan: plan.open_in_order(opening), plans)
        accesses = [elements.random_access() for elements in nest.flatten(opened)]
        known = [access for access in accesses if access is not None]
        return Zipped(opened, known) if len(known) == len(accesses) else ZippedStream(opened)

    return joined(
        parts,
        text=f"zip({', '.join(plan.text for plan in parts)})",
        cardinality=zipped_cardinality([plan.cardinality for plan in parts]),
        epoch=zipped_cardinality([plan.epoch_length for plan in parts]),
        open=open_parts,
        spec=lambda: nest.map_structure(lambda plan: plan.spec(), plans),
    )


def concatenated_plan(plans: list[Plan]) -> Plan:
    """The elements of several datasets, one after another."""

    def open_parts(opening: Opening) -> Elements:
        parts = [plan.open(opening) for plan in plans]
        known = [access for part in parts if (access := part.random_access()) is not None]
        return Concatenated(known) if len(known) == len(parts) else ConcatenatedStream(parts)

    cardinality = reduce(concatenated_cardinality, [plan.cardinality for plan in plans])
    all_come_from_files = all(plan.file_counts for plan in plans)
    first, *others = plans
    # The text is part of each saved state, which stays small.
    rest = others[0].text if len(others) == 1 else f"{len(others)} datasets, {cardinality} elements"
    return joined(
        plans,
        text=f"{first.text}.concatenate({rest})",
        cardinality=cardinality,
        epoch=reduce(concatenated_cardinality, [plan.epoch_length for plan in plans]),
        open=open_parts,
        spec=first.spec,
        batch_size=first.batch_size if len({plan.batch_size for plan in plans}) == 1 else None,
        file_counts=sum([p.file_counts for p in plans], ()) if all_come_from_files else (),
    )


def _common_length(arrays: Any) -> int:
    if not nest.flatten(arrays):
        raise ValueError("tensors must hold at least one array, got an empty structure.")
    try:
        return nest.batch_size(arrays, ("tensors",))
    except ValueError as error:
        raise ValueError(f"from_tensor_slices cannot slice its tensors: {error}") from None
