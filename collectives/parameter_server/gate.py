"""Many at a time, or one alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import final


@final
class Gate:
    """Lets any number of threads in together, or one thread that wants to be alone.

    Pulls and pushes of single variables go in together. A snapshot, and the update of a synchronous
    step, concern all variables at once: they go in alone, so that nobody sees half of either. Who
    waits to be alone is overtaken by nobody.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_taken = False

    @contextmanager
    def together(self) -> Iterator[None]:
        """Be inside with others."""
        with self._changed:
            while self._is_taken:
                self._changed.wait()
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                if not self._num_inside:
                    self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be inside while nobody else is."""
        with self._changed:
            while self._is_taken:
                self._changed.wait()
            self._is_taken = True
            while self._num_inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._is_taken = False
                self._changed.notify_all()
