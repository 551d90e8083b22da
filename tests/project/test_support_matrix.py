"""docs/support-matrix.md: as if its tests had just passed, and with a test for each cell."""

from ..support import test_support
from ..support.cells import CELLS, FRONT_ENDS, LAUNCHERS, STRATEGIES
from ..support.page import PAGE, TEST, render


def test_st_43_st_44_the_page_is_what_the_tests_and_the_strategies_say():
    assert PAGE.read_text("utf-8") == render({cell.id for cell in CELLS}), (
        "run `python -m tests.support.page`"
    )


def test_st_44_no_cell_is_untested():
    test = getattr(test_support, TEST.rpartition("::")[2])
    (cases,) = (mark.args[1] for mark in test.pytestmark if mark.name == "parametrize")
    assert tuple(cases) == CELLS
    assert len(CELLS) == len(FRONT_ENDS) * len(STRATEGIES) * len(LAUNCHERS)
