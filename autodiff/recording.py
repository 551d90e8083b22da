"""What a thread remembers for gradients, and in which order: recorded or not, watched or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

creation_order = itertools.count()
"""The places of operations, and of changes of variables, in the order in which they happen."""

recording: ContextVar[bool] = ContextVar("paceline_recording", default=True)


@contextmanager
def no_grad() -> Iterator[None]:
    """Within it operations remember nothing: for evaluation and prediction.

    It holds for this thread, and for the replicas that a strategy runs from it.
    """
    token = recording.set(False)
    try:
        yield
    finally:
        recording.reset(token)


open_tapes: ContextVar[tuple[Any, ...]] = ContextVar("paceline_open_tapes", default=())
"""The `GradientTape`s in whose blocks this thread is, outermost first."""

follower: ContextVar[Any] = ContextVar("paceline_follower", default=None)
"""Who notes which operations this thread calls, to have them called again; see `following`."""

capturing: ContextVar[bool] = ContextVar("paceline_capturing", default=False)
"""Whether what this thread computes is to be repeated by a card alone; see `captured`."""

_watched: ContextVar[bool] = ContextVar("paceline_watched", default=False)


class watched:  # noqa: N801 (used in `with`, like a function; a class is entered faster)
    """Within it a gradient will be wanted: a tensor becomes no plain number unasked.

    A `GradientTape` and what a strategy runs, a `model_fn` for instance, are such places.
    Elsewhere, as behind the step of a custom loop, `float(loss)` is what it looks like.
    """

    __slots__ = ("_token",)

    def __enter__(self) -> None:
        self._token = _watched.set(True)

    def __exit__(self, *exc_info: object) -> None:
        _watched.reset(self._token)


def watch_for_good() -> None:
    """Let what follows in the calling context be `watched`: for who has a context of its own."""
    _watched.set(True)


def is_recording() -> bool:
    """Whether operations of this thread remember how they came about."""
    return recording.get()


def is_capturing() -> bool:
    """Whether numbers that the host makes now would be those of all steps to come."""
    return capturing.get()


def is_watched() -> bool:
    """Whether this thread is within a `watched` block."""
    return _watched.get()
