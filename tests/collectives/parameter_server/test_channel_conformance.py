"""The channel passes its conformance suite over queues and over each kind of link."""

from contextlib import closing
from functools import partial

import pytest

from paceline.collectives import Member
from paceline.collectives.parameter_server import Client, InProcessServer, connect, serve
from paceline.collectives.session import MPI_LINKS

from ...conformance import parameter_channel as conformance


def ended(num_clients):
    return lambda events: sum(event[0] != "joined" for event in events) == num_clients


@pytest.fixture
def run_in_process(record, run_clients):
    def run(handler, bodies, timeout_secs, max_frame_bytes):
        options = {"timeout_secs": timeout_secs, "max_frame_bytes": max_frame_bytes}
        with closing(InProcessServer(record.handler(handler), **options)) as server:
            outcomes = run_clients(
                lambda rank: server.connect(Client(rank, f"worker {rank}")), bodies
            )
            return conformance.Run(outcomes, record.wait_for(ended(len(bodies))))

    return run


@pytest.fixture
def run_over_link(record, run_clients, server_member, options):
    def run(link, handler, bodies, timeout_secs, max_frame_bytes):
        server = server_member()
        limits = {"timeout_secs": timeout_secs, "max_frame_bytes": max_frame_bytes}
        terms = {**options, **limits, "links": [link]}
        with closing(serve(server, record.handler(handler), **terms)):
            outcomes = run_clients(
                lambda rank: connect(server, Member(rank, f"worker {rank}"), **terms),
                bodies,
            )
            return conformance.Run(outcomes, record.wait_for(ended(len(bodies))))

    return run


@pytest.mark.parametrize("case", conformance.cases(), ids=str)
def test_in_process(case, run_in_process):
    case(run_in_process)


@pytest.mark.parametrize("case", conformance.cases(), ids=str)
def test_over_shared_memory(case, run_over_link):
    case(partial(run_over_link, "shm"))


@pytest.mark.parametrize("link", ["tcp", "grpc", *([] if MPI_LINKS.unavailable() else ["mpi"])])
@pytest.mark.parametrize("case", conformance.essential(), ids=str)
def test_over_the_network(case, link, run_over_link):
    case(partial(run_over_link, link))
