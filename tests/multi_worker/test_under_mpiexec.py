"""`test_any_world.py` as the ranks of an MPI job, and as processes joined by RING."""

from pathlib import Path

import pytest

FILE = Path(__file__).with_name("test_any_world.py")
OPTIONS = ["-q", "-x", "-p", "no:cacheprovider", "--rootdir", str(FILE.parents[2])]


@pytest.mark.parametrize(("backend", "size"), [("MPI", 1), ("MPI", 2), ("MPI", 4), ("RING", 2)])
def test_any_world(world, backend, size):
    ended = world(backend, size, "-m", "pytest", *OPTIONS, str(FILE))
    ended.require_success()
    assert sum(output.count(" passed in ") for output in ended.outputs) == size
