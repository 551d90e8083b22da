"""Members on two hosts: network namespaces joined by a bridge that can be slowed down and cut.

An all_reduce comes out right, or names whom it has waited for at the deadline.
"""

import time

import pytest

from paceline.collectives import Member

pytestmark = pytest.mark.netns


@pytest.fixture
def start_pair(hosts, start_process):
    """Starts worker 0 and worker 1 on two hosts."""

    def start(addresses=hosts.addresses, **how):
        members = [
            Member(i, f"worker {i}", f"{address}:{2222 + i}") for i, address in enumerate(addresses)
        ]
        prefixes = [("ip", "netns", "exec", name) for name in hosts.names]
        pair = [start_process(members, i, prefix=prefixes[i], **how) for i in range(2)]
        for process in pair:
            process.expect("started")
        return pair

    return start


def connected(pair):
    for process in pair:
        process.expect("in")
    return pair


def answers(pair, command):
    """What each says to a command that both get."""
    for process in pair:
        process.tell(command)
    return [process.hear() for process in pair]


def test_a_pair_gets_through_everything_but_a_lasting_cut(hosts, start_pair):
    """One pair for all of it, as starting takes longer."""
    pair = connected(start_pair(timeout_secs=5.0, report_secs=60.0, log=True))
    assert answers(pair, "reduce") == ["reduced", "reduced"]
    for process, other in zip(pair, ("worker 1", "worker 0"), strict=True):
        assert f"TCP to {other} (no shared memory: " in process.hear_log()
    # A queue so short that packets are lost.
    with hosts.shaped("tbf", "rate", "100mbit", "burst", "16kb", "limit", "24kb"):
        assert answers(pair, "reduce") == ["reduced", "reduced"]
    with hosts.cut():
        for process in pair:
            process.tell("reduce")
        time.sleep(1.0)  # as long as the cut lasts
    assert [process.hear() for process in pair] == ["reduced", "reduced"]
    with hosts.cut():
        texts = answers(pair, "reduce")
    for text, other in zip(texts, ("worker 1", "worker 0"), strict=True):
        assert "timed out after " in text
        assert f"waiting for {other}" in text
        assert "last heard of" in text


def test_random_loss_harms_nothing(hosts, start_pair):
    with hosts.shaped("netem", "loss", "5%"):
        pair = connected(start_pair())
        for _ in range(3):
            assert answers(pair, "reduce") == ["reduced", "reduced"]


def test_localhost_in_a_list_for_two_hosts_is_refused_on_both(hosts, start_pair):
    """D-01."""
    pair = start_pair((hosts.addresses[0], "127.0.0.1"))
    for process in pair:
        text = process.hear()
        assert text.startswith("RendezvousError")
        assert "another machine, where the address of worker 1 (127.0.0.1:2223) leads" in text


def test_two_hosts_that_both_call_themselves_localhost_get_a_hint(start_pair):
    """D-01: they cannot even meet."""
    for process in start_pair(("localhost", "localhost"), start_timeout_secs=1.0):
        assert "localhost is looked for on this machine only" in process.hear()
