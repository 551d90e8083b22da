"""`batch`, `padded_batch` and `unbatch`: several elements as one, and the other way round.

Arguments have been checked.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import numpy as np

from . import nest
from .checks import COUNT, STATE, checked_fields, read_again, refused
from .elements import (
    DerivedIterator,
    ElementIterator,
    Elementwise,
    Positions,
    RandomAccess,
    State,
    take_up_to,
)
from .plan import UNKNOWN, Keeps, Plan, batched_cardinality
from .values import TensorSpec, map_arrays, rows_of

Stack = Callable[[list[Any]], Any]
"""Makes one batch of a few elements."""


def batched(plan: Plan, size: int, drop_remainder: bool) -> Plan:
    return _in_batches(
        plan,
        "batch",
        size,
        drop_remainder,
        stack=None,
        keeps=Keeps.FILES | Keeps.READY | Keeps.ANY_ORDER,
        known_spec=lambda: map_arrays(
            lambda s: TensorSpec((size if drop_remainder else None, *s.shape), s.dtype), plan.spec()
        ),
    )


def padded_batched(
    plan: Plan, size: int, drop_remainder: bool, padded_shapes: Any, padding_values: Any
) -> Plan:
    stack = partial(stack_padded, shapes=padded_shapes, values=padding_values)
    keeps = Keeps.FILES | Keeps.ANY_ORDER
    return _in_batches(plan, "padded_batch", size, drop_remainder, stack=stack, keeps=keeps)


def unbatched(plan: Plan) -> Plan:
    return plan.then(
        lambda inner, _: inner.through(UnbatchIterator),
        "unbatch()",
        Keeps.FILES | Keeps.READY,
        cardinality=0 if plan.cardinality == 0 else UNKNOWN,
        known_spec=lambda: map_arrays(lambda s: TensorSpec(s.shape[1:], s.dtype), plan.spec()),
    )


def _in_batches(
    plan: Plan,
    name: str,
    size: int,
    drop_remainder: bool,
    *,
    stack: Stack | None,
    keeps: Keeps,
    **changes: Any,
) -> Plan:
    """Batches that `stack` makes; None gathers them."""

    return plan.then(
        lambda inner, _: inner.transformed(_Batches, BatchIterator, size, drop_remainder, stack),
        f"{name}({size}{', drop_remainder=True' if drop_remainder else ''})",
        keeps,
        count=lambda number: batched_cardinality(number, size, drop_remainder),
        batch_size=size,
        shard=plan.shard and plan.shard.times(size),
        **changes,
    )


@final
class _Batches(Elementwise):
    """Consecutive elements, which never cross the end of an iteration."""

    def __init__(
        self, inner: RandomAccess, size: int, drop_remainder: bool, stack: Stack | None
    ) -> None:
        self.length = batched_cardinality(inner.length, size, drop_remainder)
        self._inner = inner
        self._size = size
        self._stack = stack

    def element(self, position: int) -> Any:
        # The last batch of an iteration may be smaller: it takes nothing of the next one, which may
        # have another order.
        iteration, index = divmod(position, self.length)
        start = iteration * self._inner.length
        first = start + index * self._size
        rows = range(first, min(first + self._size, start + self._inner.length))
        if self._stack is None:
            return self._inner.gather(rows)
        return self._stack(self._inner.each(rows))

    def each(self, positions: Positions) -> list[Any]:
        return [self.element(int(position)) for position in positions]


@final
class BatchIterator(DerivedIterator):
    """Stacks of up to `size` consecutive elements; a smaller last one may be dropped."""

    def __init__(
        self, inner: ElementIterator, size: int, drop_remainder: bool, stack: Stack | None
    ) -> None:
        super().__init__(inner)
        self._size = size
        self._min_size = size if drop_remainder else 1
        self._stack = stack

    def __next__(self) -> Any:
        if self._stack is None:
            return self._inner.next_batch(self._size, self._min_size)
        elements = take_up_to(self._size, self._inner)
        if len(elements) < self._min_size:
            raise StopIteration
        return self._stack(elements)


@final
class UnbatchIterator(ElementIterator):
    """Holds the rest of a batch; its state tells how the batch is read again."""

    def __init__(self, inner: ElementIterator) -> None:
        self._inner = inner
        self._rows: list[Any] = []
        self._num_given = 0
        self._before: State = None

    def __next__(self) -> Any:
        while self._is_over():
            self._read()
        self._num_given += 1
        return self._rows[self._num_given - 1]

    def get_state(self) -> State:
        if self._is_over():
            return {"row": 0, "inner": self._inner.get_state()}
        return {"row": self._num_given, "inner": self._before}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"row": COUNT, "inner": STATE})
        self._inner.set_state(state["inner"])
        self._rows, self._num_given = [], 0
        if state["row"]:
            read_again(self._read)
            if state["row"] >= len(self._rows):
                raise refused(f"inside a batch of {len(self._rows)} rows", state)
            self._num_given = state["row"]

    def close(self) -> None:
        self._rows, self._num_given = [], 0
        self._inner.close()

    def _is_over(self) -> bool:
        return self._num_given >= len(self._rows)

    def _read(self) -> None:
        self._before = self._inner.get_state()
        batch = next(self._inner)
        self._rows = rows_of(batch, list(range(nest.batch_size(batch))))
        self._num_given = 0


def stack_padded(elements: Sequence[Any], *, shapes: Any, values: Any) -> Any:
    """One batch of the elements, each component padded at the end of each of its axes.

    `shapes` has for each component its shape, with None or -1 for the largest in the batch; None
    for the largest of everything. `values` is what each is padded with, or one value for all of
    them; None pads with zeros and empty text.
    """
    first = elements[0]
    components = zip(
        nest.paths(first, "element"),
        zip(*[nest.leaves_in_order_of(first, element) for element in elements], strict=True),
        _for_each_leaf(first, shapes, "padded_shapes", shared=False),
        _for_each_leaf(first, values, "padding_values", shared=True),
        strict=True,
    )
    stacked = [
        _stack_padded_component(path, leaves, shape, value)
        for path, leaves, shape, value in components
    ]
    return nest.repacked(first, stacked)


def _for_each_leaf(element: Any, given: Any, name: str, *, shared: bool) -> list[Any]:
    """What is `given` for each leaf of the element; a tuple beside a leaf is itself a value."""
    steps = nest.steps_into(element)
    if steps is None:
        return [given]
    if given is None or (shared and nest.steps_into(given) is None):
        return [given] * len(nest.flatten(element))
    own = dict(nest.steps_into(given) or [])
    if own.keys() != dict(steps).keys():
        raise ValueError(
            f"{name} must have the structure of an element, whose parts are "
            f"{', '.join(step for step, _ in steps)}, got {given!r}."
        )
    follow = partial(_for_each_leaf, name=name, shared=shared)
    return [leaf for step, child in steps for leaf in follow(child, own[step])]


def _stack_padded_component(path: str, leaves: Sequence[Any], shape: Any, value: Any) -> Any:
    if all(leaf is None for leaf in leaves):
        return None
    arrays = [np.asarray(leaf) for leaf in leaves]
    dtype = np.result_type(*{array.dtype for array in arrays})
    for index, array in enumerate(arrays):
        if array.dtype.kind != arrays[0].dtype.kind or array.ndim != arrays[0].ndim:
            raise ValueError(
                f"padded_batch cannot stack {path}: the first is {_described(arrays[0])}, number "
                f"{index} is {_described(array)}. Only sizes may differ."
            )
    target = _target_shape(path, arrays, shape)
    fill = dtype.type() if value is None else value
    batch = np.full((len(arrays), *target), fill, dtype)
    for row, array in zip(batch, arrays, strict=True) if target else ():
        row[tuple(slice(size) for size in array.shape)] = array
    if not target:
        batch[:] = arrays
    return batch


def _target_shape(path: str, arrays: Sequence[np.ndarray], shape: Any) -> tuple[int, ...]:
    largest = tuple(max(sizes) for sizes in zip(*[a.shape for a in arrays], strict=True))
    if shape is None:
        return largest
    wanted = tuple(
        most if size in (None, -1) else size for size, most in zip(shape, largest, strict=False)
    )
    if len(tuple(shape)) != len(largest) or any(map(operator.lt, wanted, largest)):
        raise ValueError(
            f"padded_shapes must hold every element, got {tuple(shape)} for {path}, which comes up "
            f"to {largest}. Give larger sizes, or None for the largest of each batch."
        )
    return wanted


def _described(array: np.ndarray) -> str:
    return f"{array.dtype} of rank {array.ndim}"
