"""What an arbitrary iterable gives."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final

from ._elements import ElementIterator, State, Stream
from ._states import COUNT, checked_fields

_logger = logging.getLogger("paceline")


@final
class IterableStream(Stream):
    """The items of an iterable that is opened anew for each pass, `convert`ed to elements."""

    def __init__(
        self, open_source: Callable[[], Iterable[Any]], convert: Callable[[Any], Any]
    ) -> None:
        self._open_source = open_source
        self._convert = convert
        self._latest: Iterator[Any] | None = None

    def iterate(self, iteration: int) -> ElementIterator:
        return _IterableIterator(self._open, self._convert)

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
    """Resumes by skipping, since an arbitrary iterable cannot be asked for its place.

    What could not be read counts as read, so that one can go on behind it.
    """

    def __init__(
        self, open_source: Callable[[], Iterator[Any]], convert: Callable[[Any], Any]
    ) -> None:
        self._open_source = open_source
        self._convert = convert
        self._items: Iterator[Any] | None = None
        self._position = 0
        self._num_failed = 0
        self._has_just_failed = False

    def __next__(self) -> Any:
        if self._items is None:
            self._items = self._open_source()
        try:
            element = self._convert(self._next_item(self._items))
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
        self._items = iter(())
