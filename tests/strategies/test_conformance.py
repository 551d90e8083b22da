"""Every strategy passes the published checks of tests/conformance/strategy.py."""

import importlib.util
from pathlib import Path

import pytest

_PATH = Path(__file__).parents[1] / "conformance" / "strategy.py"
_SPEC = importlib.util.spec_from_file_location("conformance_of_strategies", _PATH)
conformance = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(conformance)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, make_strategy):
    check(make_strategy)
