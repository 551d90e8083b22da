"""Names that count up within a process are matched by their order."""

import pytest

from paceline.checkpoint.counted_names import names_here, renamed, without_counts

MODEL = ["dense/kernel", "dense/bias", "dense_1/kernel"]


@pytest.mark.parametrize(
    ("saved", "here", "expected"),
    [
        ({"m": MODEL}, {"m": MODEL}, {}),
        (
            {"m": MODEL},
            {"m": ["dense_9/kernel", "dense_9/bias", "dense_10/kernel"]},
            {"dense": "dense_9", "dense_1": "dense_10"},
        ),
        ({"m": MODEL}, {"m": ["dense_1/kernel", "dense_1/bias"]}, {}),
        ({"m": MODEL}, {"m": ["dense_3/kernel"]}, {}),
        ({"m": MODEL}, {"m": []}, {}),
        (
            {"m": MODEL, "o": ["adam/iterations", "adam/dense/kernel/m"]},
            {"m": ["dense_2/kernel", "dense_3/kernel"], "o": ["adam_1/iterations"]},
            {"dense": "dense_2", "dense_1": "dense_3", "adam": "adam_1"},
        ),
        (
            {"a": ["dense/kernel"], "b": ["dense_1/kernel"]},
            {"a": ["dense_2/kernel"], "b": ["dense_3/kernel"]},
            {"dense": "dense_2", "dense_1": "dense_3"},
        ),
        ({"a": ["v/x"], "b": ["v/x"]}, {"a": ["v_1/x"], "b": ["v_2/x"]}, {}),
    ],
)
def test_components_belong_together_by_the_order_of_their_numbers(saved, here, expected):
    assert names_here(saved, here) == expected


def test_a_name_is_changed_component_by_component():
    assert renamed("adam/dense/kernel/m", {"dense": "dense_2"}) == "adam/dense_2/kernel/m"
    assert without_counts("adam_1/dense_2/kernel/m") == "adam/dense/kernel/m"
