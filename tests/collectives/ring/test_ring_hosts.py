"""Members on two hosts: network namespaces joined by a bridge that can be slowed down and cut.

An all_reduce comes out right, or names whom it has waited for at the deadline.
"""

import os
import shutil
import subprocess
import time
from contextlib import contextmanager

import pytest

from paceline.collectives import Member

CAN_MAKE_HOSTS = os.name == "posix" and os.geteuid() == 0 and shutil.which("ip")
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not CAN_MAKE_HOSTS, reason="needs root and iproute2"),
]
ADDRESSES = ("10.77.81.1", "10.77.81.2")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


class Hosts:
    """Two network namespaces of this machine and the bridge between them."""

    def __init__(self):
        self._suffix = str(os.getpid())
        self._bridge = f"plb{self._suffix}"
        self.names = [f"pl{self._suffix}h{i}" for i in range(2)]
        self._cables = [f"plc{self._suffix}x{i}" for i in range(2)]

    def set_up(self):
        commands = [f"link add {self._bridge} type bridge", f"link set {self._bridge} up"]
        for name, cable, address in zip(self.names, self._cables, ADDRESSES, strict=True):
            commands += [
                f"netns add {name}",
                f"link add {cable} type veth peer name eth0 netns {name}",
                f"link set {cable} master {self._bridge} up",
                f"-n {name} addr add {address}/24 dev eth0",
                f"-n {name} link set eth0 up",
                f"-n {name} link set lo up",
            ]
        return all(ip(*command.split()).returncode == 0 for command in commands)

    def tear_down(self):
        for name in self.names:
            ip("netns", "del", name)
        ip("link", "del", self._bridge)

    @contextmanager
    def cut(self):
        """While in it nothing gets from one host to the other."""
        ip("link", "set", self._cables[1], "nomaster")
        try:
            yield
        finally:
            ip("link", "set", self._cables[1], "master", self._bridge)

    @contextmanager
    def shaped(self, *how):
        """While in it what leaves either host goes through this queue of the kernel."""
        try:
            for name in self.names:
                tc = ip("netns", "exec", name, "tc", "qdisc", "add", "dev", "eth0", "root", *how)
                if tc.returncode != 0:
                    pytest.skip(f"this machine has no {how[0]}: {tc.stderr.strip()}")
            yield
        finally:
            for name in self.names:
                ip("netns", "exec", name, "tc", "qdisc", "del", "dev", "eth0", "root")


@pytest.fixture(scope="module")
def hosts():
    made = Hosts()
    try:
        if not made.set_up():
            pytest.skip("this machine allows no network namespaces")
        yield made
    finally:
        made.tear_down()


@pytest.fixture
def start_pair(hosts, start_process):
    """Starts worker 0 and worker 1 on two hosts."""

    def start(addresses=ADDRESSES, **how):
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
        assert "timed out after 5" in text
        assert f"waiting for {other}" in text
        assert "last heard of" in text


def test_random_loss_harms_nothing(hosts, start_pair):
    with hosts.shaped("netem", "loss", "5%"):
        pair = connected(start_pair())
        for _ in range(3):
            assert answers(pair, "reduce") == ["reduced", "reduced"]


def test_localhost_in_a_list_for_two_hosts_is_refused_on_both(start_pair):
    """D-01."""
    pair = start_pair((ADDRESSES[0], "127.0.0.1"))
    for process in pair:
        text = process.hear()
        assert text.startswith("RendezvousError")
        assert "another machine, where the address of worker 1 (127.0.0.1:2223) leads" in text


def test_two_hosts_that_both_call_themselves_localhost_get_a_hint(start_pair):
    """D-01: they cannot even meet."""
    for process in start_pair(("localhost", "localhost"), start_timeout_secs=1.0):
        assert "localhost is looked for on this machine only" in process.hear()
