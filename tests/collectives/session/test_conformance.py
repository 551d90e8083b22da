"""The ring passes the published checks of tests/conformance/communicator.py over every link."""

from functools import partial

import numpy as np
import pytest

from ...conformance import communicator as conformance

SIZES = {"shm": [1, 2, 3, 4], "tcp": [2, 3], "grpc": [2, 3]}


def close(ring, run_at_once):
    run_at_once([communicator.close for communicator in ring])


@pytest.fixture(scope="module")
def ring(request, connect_ranks, loopback, run_at_once):
    """One ring for all cases that end in order: connecting takes longer than they do."""
    link, size = request.param
    made = connect_ranks(loopback(size), range(size), links=[link])
    handles = [each.start_all_reduce(np.zeros(1), "first") for each in made]
    run_at_once([handle.wait for handle in handles])  # from here on there are no new threads
    yield made
    close(made, run_at_once)


# One object for each ring: pytest keeps a fixture while its parameter is the same object.
RINGS = [(link, size) for link, sizes in SIZES.items() for size in sizes]


def cases_of(link, size):
    """All of them over one kind of link; types and ops do not matter to the others."""
    cases = conformance.cases([size])
    return cases if link == "shm" else conformance.essential(cases)


ENDING_IN_ORDER = [
    pytest.param(ring, case, id=f"{ring[0]}-{case}")
    for ring in RINGS
    for case in cases_of(*ring)
    if case.name != "closed"
]


@pytest.mark.parametrize(("ring", "case"), ENDING_IN_ORDER, indirect=["ring"])
def test_results(ring, case, run_at_once):
    def run(size, body, timeout_secs):
        assert size == len(ring)
        return [outcome for outcome, _ in run_at_once([partial(body, each) for each in ring])]

    case(run)


ENDING_IN_ERRORS = [
    *(("shm", case) for case in conformance.mismatches([3])),
    *((link, case) for link in SIZES for case in conformance.losses([3])),
    *((link, case) for link in SIZES for case in conformance.cases([3]) if case.name == "closed"),
]


@pytest.mark.parametrize(("link", "case"), ENDING_IN_ERRORS, ids=str)
def test_errors(link, case, connect_ranks, loopback, run_at_once):
    def run(size, body, timeout_secs):
        ring = connect_ranks(loopback(size), range(size), links=[link], timeout_secs=timeout_secs)
        for error in ring:
            if isinstance(error, Exception):
                raise error
        try:
            return [outcome for outcome, _ in run_at_once([partial(body, each) for each in ring])]
        finally:
            close(ring, run_at_once)

    case(run)
