"""What every test of this folder gets."""

import gc
import threading
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def no_leaked_threads() -> Iterator[None]:
    """As for all tests, but once a file: a collection after each of 2000 tests takes a minute."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    left = [thread for thread in threading.enumerate() if thread not in before]
    for thread in left:
        thread.join(timeout=5)
    assert not [thread for thread in left if thread.is_alive()]
