"""What every test gets: no leaked thread."""

import gc
import threading

import pytest


@pytest.fixture(autouse=True)
def no_leaked_threads():
    """A test leaves no thread behind, not even an idle one."""
    before = set(threading.enumerate())
    yield
    gc.collect()
    left = [t for t in threading.enumerate() if t not in before]
    for thread in left:
        thread.join(timeout=5)
    assert not [t for t in left if t.is_alive()]
