"""What a process has one of, whichever thread asks for it first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from functools import cache, wraps
from typing import TypeVar

_Made = TypeVar("_Made")


def made_once(make: Callable[..., _Made]) -> Callable[..., _Made]:
    """`functools.cache` that gives one object also to threads that ask at the same time.

    `cache` gives each of them what it has made itself: of the stream that a card computes on there
    would be two, neither of which waits for the other.
    """
    made, lock = cache(make), threading.Lock()

    @wraps(make)
    def found(*args: Hashable) -> _Made:
        with lock:
            return made(*args)

    return found
