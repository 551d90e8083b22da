"""The in-process communicator is a verified fake: it passes the conformance suite."""

import pytest

from paceline import collectives

from ..conformance import communicator as conformance
from ..threads import in_threads

SIZES = (1, 2, 3, 4)


def run(size, body, timeout_secs):
    """Run ``body`` on ``size`` threads; close every communicator when its rank has ended."""
    communicators = collectives.threads(size, timeout_secs)

    def run_rank(rank):
        try:
            return body(communicators[rank])
        except BaseException as error:
            return error

    outcomes = in_threads(size, run_rank)
    for communicator in communicators:
        communicator.close()
    return outcomes


@pytest.mark.parametrize("case", conformance.cases(SIZES), ids=str)
def test_results(case):
    case(run)


@pytest.mark.parametrize("case", conformance.mismatches(SIZES), ids=str)
def test_d_10_mismatches_name_both_calls_and_where_they_were_made(case):
    case(run)


@pytest.mark.parametrize("case", conformance.losses(SIZES), ids=str)
def test_losses(case):
    case(run)
