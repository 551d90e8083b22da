"""Two hosts in one machine: network namespaces and a bridge that can be slowed down and cut."""

import os
import shutil
import subprocess
from contextlib import contextmanager

import pytest

CAN_MAKE_HOSTS = os.name == "posix" and os.geteuid() == 0 and shutil.which("ip")
ADDRESSES = ("10.77.81.1", "10.77.81.2")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


class Hosts:
    """Two network namespaces of this machine and the bridge between them."""

    def __init__(self):
        self.addresses = ADDRESSES
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


@pytest.fixture(scope="session")
def hosts():
    """`Hosts`, or a skip where there can be none."""
    if not CAN_MAKE_HOSTS:
        pytest.skip("needs root and iproute2")
    made = Hosts()
    try:
        if not made.set_up():
            pytest.skip("this machine allows no network namespaces")
        yield made
    finally:
        made.tear_down()
