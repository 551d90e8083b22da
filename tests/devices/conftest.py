"""What tests on the stand-in for CuPy share."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from . import strict_cuda as cuda


@pytest.fixture
def no_hazards() -> Iterator[None]:
    """No memory goes back to a stream, and none is overwritten, before others have read it."""
    cuda.HAZARDS.clear()
    yield
    gc.collect()
    assert not cuda.HAZARDS
