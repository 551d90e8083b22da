"""Lets the modules of this folder import each other, as they do when hunt.py is run."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def as_possible(request):
    """A scenario as it can be compared here: masks of dropout that cards draw are their own."""
    on_cards = request.config.getoption("--array-library") != "numpy"
    return lambda scenario: replace(scenario, dropout=False) if on_cards else scenario
