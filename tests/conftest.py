"""What every test gets: no leaked thread."""

import gc
import threading

import pytest


@pytest.fixture(autouse=True)
def no_leaked_threads():
    """A test leaves no thread behind, not even an idle one."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before]
    if left:  # a thread may end with the object that owns it
        gc.collect()
    for thread in left:
        thread.join(timeout=5)
    assert not [t for t in left if t.is_alive()]
