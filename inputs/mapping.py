"""`map` and its relatives: what calls a function for each element in the consumer's thread.

Also `map_batched`, `filter`, `require_finite` and `ignore_errors`.
Arguments have been checked. `map` with several calls at a time is in `parallel_map`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, final

import numpy as np

from . import nest
from .batching import BatchIterator, UnbatchIterator
from .columnwise import Columnwise
from .elements import (
    DerivedIterator,
    ElementIterator,
    Elements,
    Positions,
    RandomAccess,
    add_element_note,
    take_up_to,
)
from .plan import Keeps, Opening, Plan
from .values import as_element, rows_of, stack_elements

_logger = logging.getLogger("paceline")

UserFunction = Callable[..., Any]
"""A user's function of an element; the items of a tuple come as arguments."""

ElementFunction = Callable[[Any], Any]
"""A function of an element, whatever it is."""

Report = Callable[[int, Exception], None]
"""Hears of each element that is left out: its number, and the error."""


def mapped(plan: Plan, map_func: UserFunction) -> Plan:
    function, columnwise = element_function(map_func), Columnwise(map_func)
    return with_each(plan, function, "map()", Keeps.EACH | Keeps.ANY_ORDER, columnwise)


def mapped_in_batches(plan: Plan, map_func: UserFunction, batch_size: int) -> Plan:
    function = partial(_call_with_batch, map_func)

    def step(inner: Elements, _: Opening) -> Elements:
        access = inner.random_access()
        if access is not None:
            return _MappedInBatches(access, function)
        batches = inner.through(BatchIterator, batch_size, False, None)
        return batches.through(MapIterator, function).through(UnbatchIterator)

    return plan.then(step, f"map_batched({batch_size})", Keeps.EACH)


def filtered(plan: Plan, predicate: UserFunction) -> Plan:
    function = element_function(predicate)
    return plan.then(
        lambda inner, _: inner.through(_FilterIterator, function),
        "filter()",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.ANY_ORDER,
    )


def required_finite(plan: Plan) -> Plan:
    """Elements without infinities and NaN."""
    keeps = Keeps.EACH | Keeps.SPEC | Keeps.ANY_ORDER
    return with_each(plan, _require_finite, "require_finite()", keeps)


def ignoring_errors(plan: Plan, report: Report | None) -> Plan:
    """The elements that can be had."""
    return plan.then(
        lambda inner, _: inner.through(_IgnoringIterator, report),
        "ignore_errors()",
        Keeps.SPEC | Keeps.BATCH_SIZE | Keeps.FILES | Keeps.ANY_ORDER,
    )


def element_function(function: UserFunction) -> ElementFunction:
    """The user's function as one of any element, which gives elements; it can be pickled."""
    return partial(_call_with_element, function)


def with_each(
    plan: Plan,
    function: ElementFunction,
    text: str | None,
    keeps: Keeps,
    columnwise: Columnwise | None = None,
    **changes: Any,
) -> Plan:
    """Elements passed through a function, of which `columnwise` may know how it makes batches."""

    def step(inner: Elements, _: Opening) -> Elements:
        return inner.transformed(_Mapped, MapIterator, function, columnwise)

    return plan.then(step, text, keeps, **changes)


def _call_with_element(function: UserFunction, element: Any) -> Any:
    try:
        # As in tf.data only a plain tuple is unpacked, a namedtuple is one argument.
        result = function(*element) if type(element) is tuple else function(element)
    except StopIteration as error:
        raise RuntimeError("map_func raised StopIteration, which would end the data") from error
    return as_element(result)


def _call_with_batch(function: UserFunction, batch: Any) -> Any:
    result = _call_with_element(function, batch)
    size, num_rows = nest.batch_size(batch), nest.batch_size(result, ("what map_func returned",))
    if num_rows != size:
        raise ValueError(
            f"map_func of map_batched must return as many rows as it is given, got {num_rows} for "
            f"{size}. Use batch().map() to change their number."
        )
    return result


@final
class _Mapped(RandomAccess):
    def __init__(
        self, inner: RandomAccess, function: ElementFunction, columnwise: Columnwise | None
    ) -> None:
        self.length = inner.length
        self._inner = inner
        self._function = function
        self._columnwise = columnwise

    def element(self, position: int) -> Any:
        element = self._inner.element(position)
        try:
            return self._function(element)
        except Exception as error:
            add_element_note(error, position % self.length)
            raise

    def gather(self, positions: Positions) -> Any:
        elements = self._inner.each(positions)
        columnwise = self._columnwise
        compute = partial(self._results, positions)
        if columnwise is None:
            return stack_elements(compute(elements))
        if columnwise.is_new:
            return stack_elements(columnwise.learn_from(elements, compute))
        batch = columnwise.batch(elements)
        return stack_elements(compute(elements)) if batch is None else batch

    def each(self, positions: Positions) -> list[Any]:
        return self._results(positions, self._inner.each(positions))

    def _results(self, positions: Positions, elements: Sequence[Any]) -> list[Any]:
        function = self._function
        results: list[Any] = []
        try:
            for element in elements:
                results.append(function(element))
        except Exception as error:
            add_element_note(error, int(positions[len(results)]) % self.length)
            raise
        return results


@final
class _MappedInBatches(RandomAccess):
    """Each element passed through a function of batches, as many at a time as are asked for."""

    def __init__(self, inner: RandomAccess, function: ElementFunction) -> None:
        self.length = inner.length
        self._inner = inner
        self._function = function

    def element(self, position: int) -> Any:
        return self.each(range(position, position + 1))[0]

    def gather(self, positions: Positions) -> Any:
        return self._function(self._inner.gather(positions))

    def each(self, positions: Positions) -> list[Any]:
        return rows_of(self.gather(positions), list(range(len(positions))))


@final
class MapIterator(DerivedIterator):
    """Passes each element through a function; counts them, to name one on which it fails."""

    _counters: ClassVar = {"read": "_num_read"}

    def __init__(
        self,
        inner: ElementIterator,
        function: ElementFunction,
        columnwise: Columnwise | None = None,
    ) -> None:
        super().__init__(inner)
        self._function = function
        self._columnwise = columnwise
        self._num_read = 0

    def __next__(self) -> Any:
        return self._result_of(next(self._inner))

    def next_batch(self, size: int, min_size: int) -> Any:
        columnwise = self._columnwise
        if columnwise is None or not (columnwise.is_new or columnwise.is_known):
            return super().next_batch(size, min_size)
        if columnwise.is_new:
            first = columnwise.learn_from([next(self._inner)], self._results_of)
            results = [*first, *take_up_to(size - 1, self)]
            if len(results) < min_size:
                raise StopIteration
            return stack_elements(results)
        before = self.get_state()
        try:
            elements = take_up_to(size, self._inner)
            batch = columnwise.batch(elements)
        except Exception:
            elements, batch = [None], None  # which of the elements failed is seen below
        if not elements:
            raise StopIteration
        if batch is None:
            # Once more from there, one by one, as an error leaves the input behind its element.
            self.set_state(before)
            return super().next_batch(size, min_size)
        self._num_read += len(elements)
        if len(elements) < min_size:
            raise StopIteration
        return batch

    def _results_of(self, elements: Sequence[Any]) -> list[Any]:
        return [self._result_of(element) for element in elements]

    def _result_of(self, element: Any) -> Any:
        self._num_read += 1
        try:
            return self._function(element)
        except Exception as error:
            add_element_note(error, self._num_read - 1)
            raise


@final
class _FilterIterator(DerivedIterator):
    def __init__(self, inner: ElementIterator, predicate: ElementFunction) -> None:
        super().__init__(inner)
        self._predicate = predicate

    def __next__(self) -> Any:
        while True:
            element = next(self._inner)
            if _is_true(self._predicate(element)):
                return element


def _is_true(answer: Any) -> bool:
    if np.ndim(answer) != 0:
        raise ValueError(
            f"predicate must return True or False for one element, it returned an array of shape "
            f"{np.shape(answer)}. Filter before batch(), or reduce it with all() or any()."
        )
    return bool(answer)


@final
class _IgnoringIterator(DerivedIterator):
    """Goes on behind elements that cannot be had, and says how many they were."""

    _counters: ClassVar = {"given": "_num_given", "skipped": "_num_skipped"}

    def __init__(self, inner: ElementIterator, report: Report | None) -> None:
        super().__init__(inner)
        self._report = report
        self._num_given = 0
        self._num_skipped = 0

    def __next__(self) -> Any:
        state_after_error: Any = None
        while True:
            try:
                element = next(self._inner)
            except StopIteration:
                self._summarise()
                raise
            except Exception as error:
                state = self._inner.get_state()
                # The same error from the same place would come for ever.
                if state == state_after_error:
                    error.add_note(
                        "ignore_errors() cannot go on, since the input stays where it is. Put it "
                        "right behind the step that fails."
                    )
                    raise
                state_after_error = state
                self._skip(error)
            else:
                self._num_given += 1
                return element

    def _skip(self, error: Exception) -> None:
        index = self._num_given + self._num_skipped
        self._num_skipped += 1
        if self._report is not None:
            self._report(index, error)
        elif self._num_skipped == 1:
            _logger.warning(
                "ignore_errors: element %d is left out (%s: %s); others are only counted.",
                index,
                type(error).__name__,
                error,
            )

    def _summarise(self) -> None:
        if self._num_skipped and self._report is None:
            total = self._num_given + self._num_skipped
            _logger.warning("ignore_errors: %d of %d were left out.", self._num_skipped, total)


def _require_finite(element: Any) -> Any:
    """The element itself; an error tells where it holds an infinity or NaN."""
    for path, leaf in zip(nest.paths(element), nest.flatten(element), strict=True):
        if leaf is None or leaf.dtype.kind not in "fc" or np.isfinite(leaf).all():
            continue
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(leaf))[0])
        place = f"component {path}" if path else "the element"
        at = f" at index {where}" if where else ""
        raise ValueError(
            f"require_finite found {leaf[where]} in {place}{at}. Mend or leave out the example, or "
            "skip such ones with ignore_errors()."
        )
    return element
