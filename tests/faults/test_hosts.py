"""Training on two hosts: network namespaces joined by a cable that can be cut and lose frames."""

import fcntl
import json
import os
import random
import re
import secrets
import select
import shutil
import struct
import subprocess
import sys
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

import paceline as pl
from paceline.cluster import LOST_PEER

CAN_MAKE_HOSTS = (
    sys.platform == "linux"
    and os.geteuid() == 0
    and shutil.which("ip")
    and os.path.exists("/dev/net/tun")
)
pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(not CAN_MAKE_HOSTS, reason="needs root, iproute2 and /dev/net/tun"),
]
SCRIPT = Path(__file__).with_name("train.py")
ADDRESSES = ("10.77.82.1", "10.77.82.2")
TUNSETIFF, IFF_TAP, IFF_NO_PI = 0x400454CA, 0x0002, 0x1000
FRAME_BYTES = 1 << 16


def tool(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False)


class Hosts:
    """Two network namespaces of this machine, and threads that carry frames between them.

    Attributes:
        names: The namespaces.
        is_cut: Whether no frame gets through.
        loss: How many of those that do are lost, from 0 to 1.
    """

    def __init__(self):
        self.names = [f"plt{os.getpid()}h{i}" for i in range(2)]
        self.is_cut = False
        self.loss = 0.0
        self._ends = []
        self._stop = os.pipe()
        self._threads = []

    def set_up(self):
        """Whether this machine allows it."""
        try:
            for name, address in zip(self.names, ADDRESSES, strict=True):
                self._add(name, address)
        except (OSError, subprocess.CalledProcessError):
            return False
        for source, target in (self._ends, self._ends[::-1]):
            thread = threading.Thread(target=self._carry, args=(source, target))
            thread.start()
            self._threads.append(thread)
        return True

    def _add(self, name, address):
        end = os.open("/dev/net/tun", os.O_RDWR)
        self._ends.append(end)
        fcntl.ioctl(end, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI))
        for command in (
            f"netns add {name}",
            f"link set {name} netns {name}",
            f"-n {name} link set {name} name eth0",
            f"-n {name} addr add {address}/24 dev eth0",
            f"-n {name} link set eth0 up",
            f"-n {name} link set lo up",
        ):
            tool("ip", *command.split()).check_returncode()

    def _carry(self, source, target):
        chance = random.Random(source)
        while True:
            ready, _, _ = select.select([source, self._stop[0]], [], [])
            if self._stop[0] in ready:
                return
            frame = os.read(source, FRAME_BYTES)
            if not self.is_cut and chance.random() >= self.loss:
                with suppress(OSError):  # the other end is not up yet
                    os.write(target, frame)

    def tear_down(self):
        os.write(self._stop[1], b"x")
        for thread in self._threads:
            thread.join()
        for name in self.names:
            tool("ip", "netns", "del", name)
        for end in (*self._ends, *self._stop):
            os.close(end)

    @contextmanager
    def shaped(self, how):
        """Within it, what leaves a host goes through this queueing discipline of `tc`."""
        for name in self.names:
            made = tool("tc", "-n", name, "qdisc", "replace", "dev", "eth0", "root", *how.split())
            if made.returncode:
                pytest.skip(f"tc cannot do {how!r} here: {made.stderr.strip()}")
        try:
            yield
        finally:
            for name in self.names:
                tool("tc", "-n", name, "qdisc", "del", "dev", "eth0", "root")

    @contextmanager
    def losing(self, loss):
        """Within it, a part of all frames is lost."""
        self.loss = loss
        try:
            yield
        finally:
            self.loss = 0.0

    @contextmanager
    def partitioned(self):
        """Within it, the hosts do not reach each other."""
        self.is_cut = True
        try:
            yield
        finally:
            self.is_cut = False


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
def start_workers(hosts, start, tmp_path):
    """`start_workers(*arguments)`: one worker on each host, with one model_dir."""
    cluster = {"worker": [f"{address}:2222" for address in ADDRESSES]}
    token = secrets.token_hex()

    def start_pair(*arguments):
        pair = []
        for index, name in enumerate(hosts.names):
            config = {"cluster": cluster, "task": {"type": "worker", "index": index}}
            command = ["ip", "netns", "exec", name, sys.executable, SCRIPT, tmp_path, *arguments]
            environ = {"TF_CONFIG": json.dumps(config), "PACELINE_TOKEN": token}
            pair.append(start(command, environ))
        return pair

    return start_pair


def weights_in(model_dir):
    newest = pl.checkpoint.load(pl.checkpoint.latest_checkpoint(model_dir))
    return newest.step, newest.arrays()["w"].tobytes()


def train_to_the_end(pair):
    for worker in pair:
        code, out, errors = worker.end()
        assert code == 0, errors
        assert "ended at step 40" in out


def test_two_hosts_give_what_one_gives(start_workers, weights, tmp_path):
    train_to_the_end(start_workers("--steps", 40))
    assert weights_in(tmp_path) == (40, weights)


def test_over_a_slow_network_too(hosts, start_workers, weights, tmp_path):
    with hosts.shaped("tbf rate 10mbit burst 32kb latency 50ms"):
        train_to_the_end(start_workers("--steps", 40))
    assert weights_in(tmp_path) == (40, weights)


def test_over_a_network_that_loses_frames_too(hosts, start_workers, weights, tmp_path):
    with hosts.losing(0.02):
        train_to_the_end(start_workers("--steps", 40))
    assert weights_in(tmp_path) == (40, weights)


@pytest.mark.parametrize(
    ("limit", "told"),
    [
        ("--timeout-secs", "timed out after .* waiting for {}, last heard of"),
        ("--silence-secs", "lost {}: it has been silent for "),
    ],
)
def test_a_partition_is_named_by_both_when_time_is_up(hosts, start_workers, detection, limit, told):
    """As is a host that is switched off."""
    pair = start_workers(limit, 3, "--fault", "stop", "--by", "worker 1")
    pair[1].wait_for("AT THE FAULT")
    with hosts.partitioned(), detection(f"RING between two hosts: partition ({limit} 3)"):
        pair[1].resume()
        ended = [worker.end() for worker in pair]
    for (code, _, errors), other in zip(ended, (1, 0), strict=True):
        assert code == LOST_PEER
        last, name = errors.splitlines()[-1], f"worker {other} ({ADDRESSES[other]}:2222)"
        assert re.search(told.format(re.escape(name)), last)
        assert "all_reduce" in last


@pytest.mark.parametrize(("silence_secs", "cut_secs"), [(20, 1.0), (8, 3.0)])
def test_a_partition_shorter_than_half_of_the_silence_is_survived(
    hosts, start_workers, weights, tmp_path, silence_secs, cut_secs
):
    """By a second: what TCP sends again comes after up to twice the time, and heartbeats before."""
    pair = start_workers(
        *("--steps", 40, "--fault", "stop", "--by", "worker 1", "--silence-secs", silence_secs)
    )
    pair[1].wait_for("AT THE FAULT")
    with hosts.partitioned():
        pair[1].resume()
        assert pair[0].stays_for(cut_secs)
    train_to_the_end(pair)
    assert weights_in(tmp_path) == (40, weights)
