from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.strategies import VariableStore


@pytest.fixture(autouse=True)
def store() -> Iterator[VariableStore]:
    """Every test builds a model of its own: names count from the beginning, values are seeded."""
    store = VariableStore(seed=1)
    with store.building():
        yield store
