"""Every strategy passes the published checks of tests/conformance/strategy.py."""

import pytest

from ..conformance import strategy as conformance


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__)
def test_conformance(check, make_strategy):
    check(make_strategy)
