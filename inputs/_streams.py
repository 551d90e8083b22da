"""Sources and transformations whose elements come one after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from . import nest
from ._elements import ElementIterator, Elements, State, Stream
from ._values import as_element, stack_elements


@final
class IterableStream(Stream):
    """The items of an iterable that is opened anew for each pass."""

    def __init__(self, open_source: Callable[[], Iterable[Any]]) -> None:
        self._open_source = open_source
        self._latest: Iterator[Any] | None = None

    def iterate(self, iteration: int) -> ElementIterator:
        return _IterableIterator(self._open)

    def _open(self) -> Iterator[Any]:
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
    """Resumes by skipping, since an arbitrary iterable cannot be asked for its place."""

    def __init__(self, open_source: Callable[[], Iterator[Any]]) -> None:
        self._open_source = open_source
        self._items: Iterator[Any] | None = None
        self._position = 0

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._open_source()
        try:
            element = as_element(next(self._items))
        except StopIteration:
            raise
        except Exception as error:
            error.add_note(f"While reading element {self._position} of the dataset's source.")
            raise
        self._position += 1
        return element

    def get_state(self) -> State:
        return {"position": self._position}

    def set_state(self, state: State) -> None:
        self.close()
        self._items, self._position = None, 0
        while self._position < state["position"]:
            next(self)

    def close(self) -> None:
        # Generators and readers have a close method, plain iterators have none.
        close = getattr(self._items, "close", None)
        if close is not None:
            close()
        self._items = iter(())


@final
class StridedStream(Stream):
    """Every `step`-th element from `start` to before `stop`: take, skip and shard."""

    def __init__(self, inner: Elements, start: int, stop: int | None, step: int) -> None:
        self._inner = inner
        self._start = start
        self._stop = stop
        self._step = step

    def iterate(self, iteration: int) -> ElementIterator:
        return _StridedIterator(self._inner.iterate(iteration), self._start, self._stop, self._step)


@final
class _StridedIterator(ElementIterator):
    def __init__(self, inner: ElementIterator, start: int, stop: int | None, step: int) -> None:
        self._inner = inner
        self._stop = stop
        self._step = step
        self._source = start
        self._num_read = 0

    def __next__(self) -> Any:
        if self._stop is not None and self._source >= self._stop:
            raise StopIteration
        while self._num_read < self._source:
            next(self._inner)
            self._num_read += 1
        element = next(self._inner)
        self._num_read += 1
        self._source += self._step
        return element

    def get_state(self) -> State:
        return {"source": self._source, "read": self._num_read, "inner": self._inner.get_state()}

    def set_state(self, state: State) -> None:
        self._source, self._num_read = state["source"], state["read"]
        self._inner.set_state(state["inner"])

    def close(self) -> None:
        self._inner.close()


@final
class RepeatedStream(Stream):
    """`count` iterations in a row; None goes on until an iteration is empty."""

    def __init__(self, inner: Elements, count: int | None) -> None:
        self._inner = inner
        self._count = count

    def iterate(self, iteration: int) -> ElementIterator:
        first = 0 if self._count is None else iteration * self._count
        return _RepeatedIterator(self._inner, first, self._count)


@final
class _RepeatedIterator(ElementIterator):
    def __init__(self, inner: Elements, first: int, count: int | None) -> None:
        self._inner = inner
        self._first = first
        self._count = count
        self._num_finished = 0
        self._is_empty = True
        self._pass = inner.iterate(first)

    def __next__(self) -> Any:
        while self._count is None or self._num_finished < self._count:
            try:
                element = next(self._pass)
            except StopIteration:
                self._start_next_pass()
                continue
            self._is_empty = False
            return element
        raise StopIteration

    def get_state(self) -> State:
        return {
            "finished": self._num_finished,
            "empty": self._is_empty,
            "inner": self._pass.get_state(),
        }

    def set_state(self, state: State) -> None:
        self._pass.close()
        self._num_finished, self._is_empty = state["finished"], state["empty"]
        self._pass = self._inner.iterate(self._first + self._num_finished)
        self._pass.set_state(state["inner"])

    def close(self) -> None:
        self._count = self._num_finished
        self._pass.close()

    def _start_next_pass(self) -> None:
        self._pass.close()
        if self._is_empty:
            raise StopIteration
        self._num_finished += 1
        self._is_empty = True
        self._pass = self._inner.iterate(self._first + self._num_finished)


@final
class BatchedStream(Stream):
    """Stacks of `size` consecutive elements; the last may be smaller, or is dropped."""

    def __init__(self, inner: Elements, size: int, drop_remainder: bool) -> None:
        self._inner = inner
        self._size = size
        self._drop_remainder = drop_remainder

    def iterate(self, iteration: int) -> ElementIterator:
        inner = self._inner.iterate(iteration)
        return _BatchedIterator(inner, self._size, self._drop_remainder)


@final
class _BatchedIterator(ElementIterator):
    """Holds nothing between two batches, so its state is the input's."""

    def __init__(self, inner: ElementIterator, size: int, drop_remainder: bool) -> None:
        self._inner = inner
        self._size = size
        self._min_size = size if drop_remainder else 1

    def __next__(self) -> Any:
        elements = take_up_to(self._size, self._inner)
        if len(elements) < self._min_size:
            raise StopIteration
        return stack_elements(elements)

    def get_state(self) -> State:
        return self._inner.get_state()

    def set_state(self, state: State) -> None:
        self._inner.set_state(state)

    def close(self) -> None:
        self._inner.close()


@final
class MappedStream(Stream):
    """Each element passed through a function."""

    def __init__(self, inner: Elements, function: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._function = function

    def iterate(self, iteration: int) -> ElementIterator:
        return _MappedIterator(self._inner.iterate(iteration), self._function)


@final
class _MappedIterator(ElementIterator):
    """Keeps nothing, so its state is the input's."""

    def __init__(self, inner: ElementIterator, function: Callable[[Any], Any]) -> None:
        self._inner = inner
        self._function = function

    def __next__(self) -> Any:
        return self._function(next(self._inner))

    def get_state(self) -> State:
        return self._inner.get_state()

    def set_state(self, state: State) -> None:
        self._inner.set_state(state)

    def close(self) -> None:
        self._inner.close()


@final
class ZippedStream(Stream):
    """Structures of the elements that come at the same time; ends with the shortest part."""

    def __init__(self, parts: Any) -> None:
        self._parts = parts

    def iterate(self, iteration: int) -> ElementIterator:
        return _ZippedIterator(
            nest.map_structure(lambda part: part.iterate(iteration), self._parts)
        )


@final
class _ZippedIterator(ElementIterator):
    def __init__(self, parts: Any) -> None:
        self._parts = parts
        self._leaves: list[ElementIterator] = nest.flatten(parts)

    def __next__(self) -> Any:
        return nest.map_structure(next, self._parts)

    def get_state(self) -> State:
        return [part.get_state() for part in self._leaves]

    def set_state(self, state: State) -> None:
        for part, part_state in zip(self._leaves, state, strict=True):
            part.set_state(part_state)

    def close(self) -> None:
        for part in self._leaves:
            part.close()


def take_up_to(count: int, iterator: ElementIterator) -> list[Any]:
    """The next `count` elements, or as many as are left."""
    elements: list[Any] = []
    try:
        while len(elements) < count:
            elements.append(next(iterator))
    except StopIteration:
        pass
    return elements
