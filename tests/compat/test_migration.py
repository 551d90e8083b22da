"""The guide from TensorFlow: its last table is made from the tables of `paceline.compat.tf`."""

import pytest

from .make_migration import GUIDE, NAMES, guide_with_table, row


def test_es_26_the_guide_has_the_table_that_the_names_make():
    text = GUIDE.read_text("utf-8")
    assert guide_with_table(text) == text, "run python tests/compat/make_migration.py"


@pytest.mark.parametrize("module", ["tf.estimator", "tf.distribute", "tf.data"])
def test_es_26_every_name_has_its_place_or_an_advice_of_its_own(module):
    rows = [row(name) for name in NAMES if name.startswith(f"{module}.")]
    assert len(rows) > 50
    assert not [line for line in rows if line.endswith("docs/migration.md |")]
