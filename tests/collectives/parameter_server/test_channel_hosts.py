"""A server and a client on two hosts: network namespaces joined by a bridge that can be cut."""

import pytest

from paceline.collectives import Member

pytestmark = pytest.mark.netns


@pytest.fixture
def start_on(hosts, start_process):
    """`start_on(host_index, role, **how)`: starts a process of the one server's job there."""
    server = Member(0, "ps 0", f"{hosts.addresses[0]}:2345")

    def start(host_index, role, **how):
        prefix = ("ip", "netns", "exec", hosts.names[host_index])
        return start_process(role, server, 1, prefix=prefix, **how)

    return start


def test_a_cut_ends_a_connection_at_both_ends_and_afterwards_it_is_made_again(hosts, start_on):
    server = start_on(0, "server", silence_secs=3)
    server.expect("in")
    client = start_on(1, "client", silence_secs=3, start_timeout_secs=60, report_secs=60)
    client.expect("in")
    server.expect("joined 1")
    client.tell("ask")
    client.expect("right")
    with hosts.cut():
        assert server.hear().startswith("lost 1: it has been silent for ")
        client.tell("try")
        assert client.hear().startswith("ServerLost: request 'probe' ")
    client.tell("connect again")
    client.expect("in")
    server.expect("joined 1")
    client.tell("ask")
    client.expect("right")


def test_a_client_that_starts_during_a_cut_comes_in_when_it_is_over(hosts, start_on):
    server = start_on(0, "server")
    server.expect("in")
    with hosts.cut():
        client = start_on(1, "client", report_secs=0.5, start_timeout_secs=60)
        assert client.hear().startswith("worker 1 is waiting for ps 0 (10.77.81.1:2345): ")
    while (heard := client.hear()) != "in":
        assert "worker 1 is waiting for ps 0" in heard
    client.tell("ask")
    client.expect("right")


def test_a_localhost_client_is_refused_by_a_server_elsewhere(hosts, start_on, start_process):
    """D-01, for a server that is really meant to be on this machine."""
    server = start_on(0, "server")
    server.expect("in")
    local = Member(0, "ps 0", "127.0.0.1:2345")
    prefix = ("ip", "netns", "exec", hosts.names[1])
    client = start_process("client", local, 1, prefix=prefix, start_timeout_secs=0.5)
    assert client.hear().startswith("RendezvousError: worker 1 gave up")
