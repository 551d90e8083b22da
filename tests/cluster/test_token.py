"""The job's secret, from PACELINE_TOKEN (E3)."""

import pytest

from paceline.cluster import ClusterError, ClusterSpec, job_token
from paceline.cluster.token import needs_token

SECRET = "5f4dcc3b5aa765d61d8327deb882cf99"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (SECRET, SECRET),
        (f" {SECRET}\n", SECRET),
        ("0123456789abcdef", "0123456789abcdef"),
        ("", None),
        ("  \n", None),
    ],
)
def test_the_secret_is_what_the_variable_holds_without_blanks(value, expected):
    assert job_token({"PACELINE_TOKEN": value}) == expected


def test_without_the_variable_there_is_no_secret():
    assert job_token({}) is None


def test_a_secret_that_can_be_guessed_is_refused_and_not_shown():
    with pytest.raises(ClusterError) as caught:
        job_token({"PACELINE_TOKEN": " 0123456789abcde "})
    assert "PACELINE_TOKEN must have at least 16 characters, and has 15" in str(caught.value)
    assert "0123456789" not in str(caught.value)


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        ({"worker": ["host-1:1", "host-2:1"]}, True),
        ({"worker": ["10.0.0.1:1", "127.0.0.1:1"]}, True),
        ({"chief": ["host-1:1"], "ps": ["host-2:1"]}, True),
        ({"worker": ["127.0.0.1:1", "localhost:2"]}, False),
        ({"worker": ["host-1:1"]}, False),
        ({"worker": ["127.0.0.1:1", "127.0.0.1:2"], "evaluator": ["host-1:1"]}, False),
        ({"worker": ["", ""]}, False),
        ({}, False),
    ],
)
def test_a_secret_is_needed_where_other_machines_can_call(jobs, expected):
    assert needs_token(ClusterSpec(jobs)) is expected
