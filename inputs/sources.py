"""Where datasets begin: arrays, numbers, iterables, and the datasets of other libraries.

Other libraries' sources are read by protocol, and none is imported. By position: `__len__` and
`__getitem__`, and where there is one `__getitems__`, which takes a list of positions (PyTorch and
Hugging Face datasets). In order: `__iter__`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, final

import numpy as np

from . import nest
from .checks import COUNT, checked_fields
from .elements import (
    ENDLESS,
    ElementIterator,
    Elementwise,
    Positions,
    RandomAccess,
    State,
    Stream,
    as_indices,
)
from .plan import INFINITE, UNKNOWN, Plan
from .values import Convert, TensorSpec, as_element, map_arrays, read_only_view, rows_of, spec_of

_logger = logging.getLogger("paceline")

ReadItems = Callable[[list[int]], list[Any]]
"""The elements that a list of item numbers, from 0, stands for."""

OpenIterable = Callable[[], Iterable[Any]]
"""Gives what one pass iterates over."""


def tensors_plan(tensors: Any) -> Plan:
    element = as_element(tensors)
    rows = map_arrays(lambda leaf: read_only_view(leaf[None]), element)
    return Plan(
        "from_tensors()",
        1,
        open=lambda _: Rows(rows, 1),
        known_spec=lambda: spec_of(element),
        is_ready=True,
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
        known_spec=lambda: map_arrays(lambda a: TensorSpec(a.shape[1:], a.dtype), arrays),
        is_ready=not any(isinstance(leaf, np.memmap) for leaf in nest.flatten(tensors)),
    )


def range_plan(numbers: range) -> Plan:
    return Plan(
        f"range({numbers.start}, {numbers.stop}, {numbers.step})",
        len(numbers),
        open=lambda _: Numbers(numbers),
        known_spec=lambda: spec_of(np.int64(0)),
        is_ready=True,
    )


def iterable_plan(source: OpenIterable | Iterable[Any], convert: Convert = as_element) -> Plan:
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
    iterable = _Iterable(source if callable(source) else lambda: source, convert)
    stream = Stream(lambda _: _IterableIterator(iterable))
    return Plan("from_generator()", UNKNOWN, open=lambda _: stream)


def foreign_plan(source: Any) -> Plan:
    kind = type(source)
    if isinstance(source, Mapping):
        raise TypeError(
            f"source must be one dataset, got a {kind.__name__} with the keys "
            f"{list(source)[:10]}. Choose one of them."
        )
    if hasattr(kind, "__getitem__") and hasattr(kind, "__len__") and _takes_positions(source):
        return _indexed_plan(source)
    if isinstance(source, Iterable) and not isinstance(source, Iterator):
        return iterable_plan(lambda: source, _own_element)
    raise TypeError(
        f"source must have a length and take positions, or be iterable more than once, got "
        f"{kind.__name__}. Give from_generator a function that makes a new iterator."
    )


def _takes_positions(source: Any) -> bool:
    """Whether its brackets work: PyTorch's `IterableDataset` has them to refuse them."""
    if isinstance(source, Iterable) and len(source):  # type: ignore[arg-type]
        try:
            source[0]  # type: ignore[index]
        except NotImplementedError:
            return False
        except Exception:
            # It is told when that item is read.
            pass
    return True


def _indexed_plan(source: Any) -> Plan:
    # Grain's endless datasets say that they have as many items as fit an integer.
    length = min(len(source), ENDLESS)
    cardinality = INFINITE if length == ENDLESS else length
    read_many = getattr(source, "__getitems__", None)
    if read_many is None:
        items = Items(length, partial(_one_by_one, source))
    else:
        items = Items(length, lambda positions: [_item(item) for item in read_many(positions)])
    text = f"from_source({type(source).__name__}, {cardinality})"
    return Plan(text, cardinality, open=lambda _: items)


def _one_by_one(source: Any, positions: list[int]) -> list[Any]:
    elements = []
    for position in positions:
        try:
            elements.append(_item(source[position]))
        except StopIteration as error:
            raise RuntimeError(f"Item {position} of the source raised StopIteration") from error
        except Exception as error:
            error.add_note(f"While reading item {position} of the source.")
            raise
    return elements


def _item(value: Any) -> Any:
    if value is None:
        raise ValueError(
            "The item is None, as Grain's MapDataset gives for what filter() left out. Iterate "
            "over such a dataset instead: give its to_iter_dataset()."
        )
    return _own_element(value)


def _own_element(value: Any) -> Any:
    return as_element(_as_own(value))


def _as_own(value: Any) -> Any:
    """The value with lists of arrays, as other libraries collate them, as tuples."""
    if isinstance(value, Mapping):
        return {name: _as_own(item) for name, item in value.items()}
    is_list = type(value) is list
    if is_list and not any(hasattr(item, "shape") or isinstance(item, Mapping) for item in value):
        return value
    return tuple(_as_own(item) for item in value) if is_list or type(value) is tuple else value


@final
class _Iterable:
    """An iterable that is opened anew for each pass."""

    def __init__(self, open_source: OpenIterable, convert: Convert) -> None:
        self._open_source = open_source
        self.convert = convert
        self._latest: Iterator[Any] | None = None

    def open(self) -> Iterator[Any]:
        """The items of one more pass."""
        items = iter(self._open_source())
        if items is self._latest:
            raise ValueError(
                "The dataset's source returned the same iterator twice, and the first pass has "
                "used it up. Give a function that makes a new iterator each time it is called."
            )
        self._latest = items
        return items


@final
class _IterableIterator(ElementIterator):
    """Resumes by skipping, since an arbitrary iterable cannot be asked for its position.

    What could not be read counts as read, so that one can go on behind it.
    """

    def __init__(self, iterable: _Iterable) -> None:
        self._iterable = iterable
        self._items: Iterator[Any] | None = None
        self._position = 0
        self._num_failed = 0
        self._has_just_failed = False

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._iterable.open()
        try:
            element = self._iterable.convert(self._next_item(self._items))
        except StopIteration:
            raise
        except Exception as error:
            error.add_note(f"While reading element {self._position} of the dataset's source.")
            self._position += 1
            self._num_failed += 1
            raise
        self._position += 1
        return element

    def _next_item(self, items: Iterator[Any]) -> Any:
        try:
            item = next(items)
        except StopIteration:
            if self._has_just_failed:
                _logger.warning(
                    "The dataset's source ended right after the error of element %d. A generator "
                    "ends with the first error that it raises: what would have followed is lost.",
                    self._position - 1,
                )
            self._has_just_failed = False
            raise
        except Exception:
            self._has_just_failed = True
            raise
        self._has_just_failed = False
        return item

    def get_state(self) -> State:
        return {"position": self._position, "failed": self._num_failed}

    def set_state(self, state: State) -> None:
        checked_fields(state, {"position": COUNT, "failed": COUNT})
        self.close()
        self._items, self._position, self._num_failed = None, 0, 0
        self._has_just_failed = False
        while self._position < state["position"]:
            try:
                next(self)
            except StopIteration:
                return
            except Exception:
                if self._num_failed > state["failed"]:
                    raise

    def close(self) -> None:
        # Generators and readers have a close method, plain iterators have none.
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
        self._items = iter(())  # None would begin anew


@final
class Rows(RandomAccess):
    """The rows of arrays that share their leading dimension, `length`."""

    def __init__(self, arrays: Any, length: int) -> None:
        self.length = length
        self._arrays = arrays

    def element(self, position: int) -> Any:
        row = position % self.length
        return map_arrays(lambda array: array[row], self._arrays)

    def gather(self, positions: Positions) -> Any:
        if isinstance(positions, range):
            first = positions.start % self.length
            stop = first + len(positions)
            if stop <= self.length and positions.step == 1:
                return map_arrays(lambda array: array[first:stop], self._arrays)
            positions = as_indices(positions)
        rows = positions % self.length
        return map_arrays(lambda array: array.take(rows, 0), self._arrays)

    def each(self, positions: Positions) -> list[Any]:
        return rows_of(self._arrays, (as_indices(positions) % self.length).tolist())


@final
class Numbers(RandomAccess):
    """The int64 numbers start, start + step, ..., computed when they are read."""

    def __init__(self, numbers: range) -> None:
        self.length = len(numbers)
        self._numbers = numbers

    def element(self, position: int) -> Any:
        return np.int64(self._numbers[position % self.length])

    def gather(self, positions: Positions) -> Any:
        indices = as_indices(positions) % self.length
        return self._numbers.start + self._numbers.step * indices

    def each(self, positions: Positions) -> list[Any]:
        return list(self.gather(positions))


@final
class Items(Elementwise):
    """The items of anything that is indexed from 0 to `length` - 1."""

    def __init__(self, length: int, read: ReadItems) -> None:
        self.length = length
        self._read = read

    def element(self, position: int) -> Any:
        return self._read([position % self.length])[0]

    def each(self, positions: Positions) -> list[Any]:
        return self._read((as_indices(positions) % self.length).tolist())


def _common_length(arrays: Any) -> int:
    if not nest.flatten(arrays):
        raise ValueError("tensors must hold at least one array, got an empty structure.")
    try:
        return nest.batch_size(arrays, ("tensors",))
    except ValueError as error:
        raise ValueError(f"from_tensor_slices cannot slice its tensors: {error}") from None
