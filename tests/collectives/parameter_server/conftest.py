"""Servers and clients as threads of the test, and a record of what servers are told."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from paceline.cluster import free_ports
from paceline.collectives import Member

OPTIONS = {"job_id": "test", "token": "a secret of the test"}
PROGRAM = Path(__file__).parent / "channel_process.py"


class Record:
    """What a server is told of its clients: ("joined" | "lost" | "left", rank, reason)."""

    def __init__(self):
        self.events = []
        self._changed = threading.Condition()

    def handler(self, handle):
        """What answers with `handle`, and notes here who comes and goes."""
        return Recording(self, handle)

    def add(self, *event):
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait_for(self, condition, timeout_secs=20):
        """Wait until `condition(events)` holds; return the events."""
        with self._changed:
            met = self._changed.wait_for(lambda: condition(self.events), timeout_secs)
            assert met, self.events
            return list(self.events)


class Recording:
    """A request handler that tells a `Record`."""

    def __init__(self, record, handle):
        self._record = record
        self.handle = handle

    def joined(self, client):
        self._record.add("joined", client.rank, "")

    def lost(self, client, reason):
        self._record.add("lost", client.rank, reason)

    def left(self, client):
        self._record.add("left", client.rank, "")


class ChannelProcess:
    """A server or a client in a process of its own; see `channel_process.py`."""

    def __init__(self, role, server, rank, options, prefix=()):
        arguments = [role, (server.task, server.address), rank, options]
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(PROGRAM), json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.expect("started")

    def hear(self):
        return self._process.stdout.readline().strip()

    def expect(self, line):
        heard = self.hear()
        assert heard == line, heard

    def tell(self, command):
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def signal(self, number):
        os.kill(self._process.pid, number)
        if number == signal.SIGSTOP:  # all of its threads, which may take a moment
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED)

    def wait(self):
        """The exit code; it has to end by itself."""
        return self._process.wait(20)

    def end(self):
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.communicate()


def use_connections(connect_client, bodies):
    """What each body returns or raises, each with a connection of its own, all at once."""
    outcomes = [None] * len(bodies)

    def run(index):
        try:
            with closing(connect_client(index)) as connection:
                outcomes[index] = bodies[index](connection)
        except BaseException as error:
            outcomes[index] = error

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(bodies))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    return outcomes


@pytest.fixture
def start_process():
    """Starts servers and clients as processes, and ends those that are left."""
    with ExitStack() as stack:

        def start(role, server, rank=0, prefix=(), **options):
            process = ChannelProcess(role, server, rank, OPTIONS | options, prefix)
            stack.callback(process.end)
            return process

        yield start


@pytest.fixture
def record():
    """A `Record`."""
    return Record()


@pytest.fixture(scope="session")
def run_clients():
    """`use_connections`."""
    return use_connections


@pytest.fixture(scope="session")
def options():
    """What server and clients agree on."""
    return OPTIONS


@pytest.fixture(scope="session")
def server_member():
    """Makes a server's name and address, with a port that is free."""
    return lambda index=0: Member(index, f"ps {index}", f"127.0.0.1:{free_ports(1)[0]}")
