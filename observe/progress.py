"""Progress of long work: a bar on a terminal, nothing elsewhere."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from typing import Self, final


class Progress(ABC):
    """What `progress` returns. Closed at the end of a `with` block, or by `close`."""

    @abstractmethod
    def update(self, completed: int, **values: float) -> None:
        """Says how far the work is.

        Meant to be called after every step: it draws at most ten times a second, and in no more
        than 0.2 % of the time.

        Args:
            completed: units done so far. The first call sets where the rate is counted from, so
                work that is resumed may start anywhere.
            values: figures to show beside the bar, such as `loss=0.123`.
        """

    @abstractmethod
    def close(self) -> None:
        """Draws the last state and gives the terminal back; further calls do nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


@final
class _Unseen(Progress):
    """Where nobody watches; hooks write log lines there."""

    def update(self, completed: int, **values: float) -> None:
        pass

    def close(self) -> None:
        pass


def progress(total: int | None, description: str, unit: str = "step") -> Progress:
    """Shows the progress of long work on stderr if that is a terminal, else nothing.

    Bars that are open at the same time share the terminal. While one is open, what is written to
    `sys.stderr` (our log lines are) appears above it.

    Args:
        total: units of the whole work; None if not known.
        description: what is going on, in a word or two.
        unit: what is counted, in the singular.

    Returns:
        The object to update, also a context manager.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        return _Unseen()
    from ._bar import Bar  # imports rich, which takes 0.1 s

    return Bar(total, description, unit)
