"""`ignore_errors`: goes on behind elements that cannot be had, and says how many they were."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, final

from ._elements import ElementIterator, Elements, State, Stream
from ._states import COUNT, STATE, checked_fields

_logger = logging.getLogger("paceline")

Report = Callable[[int, Exception], None]


@final
class IgnoringStream(Stream):
    """The elements that can be had; `report` hears of each other one."""

    def __init__(self, inner: Elements, report: Report | None) -> None:
        self._inner = inner
        self._report = report

    def iterate(self, iteration: int) -> ElementIterator:
        return _IgnoringIterator(self._inner.iterate(iteration), self._report)


@final
class _IgnoringIterator(ElementIterator):
    def __init__(self, inner: ElementIterator, report: Report | None) -> None:
        self._inner = inner
        self._report = report
        self._num_given = 0
        self._num_skipped = 0

    def __next__(self) -> Any:
        state_after_error: State = None
        while True:
            try:
                element = next(self._inner)
            except StopIteration:
                self._summarise()
                raise
            except Exception as error:
                state = self._inner.get_state()
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

    def get_state(self) -> State:
        return {
            "given": self._num_given,
            "skipped": self._num_skipped,
            "inner": self._inner.get_state(),
        }

    def set_state(self, state: State) -> None:
        checked_fields(state, {"given": COUNT, "skipped": COUNT, "inner": STATE})
        self._num_given, self._num_skipped = state["given"], state["skipped"]
        self._inner.set_state(state["inner"])

    def close(self) -> None:
        self._inner.close()

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
