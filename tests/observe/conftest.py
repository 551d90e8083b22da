"""What the tests of this folder share."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from paceline.observe import logger


@pytest.fixture
def fresh_logging() -> Callable[[], AbstractContextManager[None]]:
    """A context in which logging is as in a new process: without pytest's handlers and ours."""
    return _fresh_logging


@contextmanager
def _fresh_logging() -> Iterator[None]:
    root, ours = logging.getLogger(), logger()
    before = root.handlers[:], root.level, ours.handlers[:], ours.level
    root.handlers.clear()
    ours.handlers.clear()
    root.setLevel(logging.WARNING)
    ours.setLevel(logging.NOTSET)
    try:
        yield
    finally:
        root.handlers[:], ours.handlers[:] = before[0], before[2]
        root.setLevel(before[1])
        ours.setLevel(before[3])
