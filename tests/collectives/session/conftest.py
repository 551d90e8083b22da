"""Members of a ring as threads of the test, and as processes that can be killed and stopped."""

import functools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from paceline.cluster import free_ports
from paceline.collectives import Member
from paceline.collectives.session import connect_ring

OPTIONS = {"job_id": "test", "token": "secret", "timeout_secs": 20.0, "start_timeout_secs": 20.0}
LIMIT_SECS = 60.0
PROGRAM = Path(__file__).parent / "member_process.py"


def loopback_members(size):
    ports = free_ports(size)
    return [Member(i, f"worker {i}", f"127.0.0.1:{port}") for i, port in enumerate(ports)]


def at_once(actions):
    """What each of `actions` returns or raises, and after how many seconds, all run at once."""
    outcomes = [None] * len(actions)

    def run(index):
        started = time.monotonic()
        try:
            result = actions[index]()
        except BaseException as error:
            result = error
        outcomes[index] = (result, time.monotonic() - started)

    threads = [threading.Thread(target=run, args=(i,), daemon=True) for i in range(len(actions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_SECS)
    assert None not in outcomes, f"still running after {LIMIT_SECS} s: {outcomes}"
    return outcomes


def connect_threads(members, ranks, **options):
    """Connect `ranks` at once; return communicators or errors in the order of `ranks`."""
    connect = functools.partial(connect_ring, members, **(OPTIONS | options))
    return [made for made, _ in at_once([functools.partial(connect, rank) for rank in ranks])]


class MemberProcess:
    """A member in a process of its own; see `member_process.py`."""

    def __init__(self, members, rank, *, prefix=(), log=False, **options):
        arguments = {
            "log": log,
            "members": [(member.task, member.address) for member in members],
            "rank": rank,
            "options": OPTIONS | options,
        }
        self._process = subprocess.Popen(
            [*prefix, sys.executable, str(PROGRAM), json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    @property
    def pid(self):
        return self._process.pid

    def hear(self):
        return self._process.stdout.readline().strip()

    def hear_log(self):
        return self._process.stderr.readline().strip()

    def expect(self, line):
        heard = self.hear()
        assert heard == line, heard or self._process.stderr.read()

    def tell(self, command):
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()

    def signal(self, number):
        os.kill(self.pid, number)
        if number == signal.SIGSTOP:  # all of its threads, which may take a moment
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def wait(self):
        """The exit code and everything it wrote to stderr."""
        _, errors = self._process.communicate(timeout=20)
        return self._process.returncode, errors

    def end(self):
        if self._process.poll() is None:
            self.signal(signal.SIGKILL)
        self._process.communicate()


@pytest.fixture(scope="session")
def loopback():
    """Makes members on loopback."""
    return loopback_members


@pytest.fixture(scope="session")
def run_at_once():
    """`at_once`."""
    return at_once


@pytest.fixture(scope="session")
def connect_ranks():
    """`connect_threads`, for those who close by themselves."""
    return connect_threads


@pytest.fixture
def start_process():
    """Starts member processes and ends those that are left."""
    with ExitStack() as stack:

        def start(members, rank, **how):
            process = MemberProcess(members, rank, **how)
            stack.callback(process.end)
            return process

        yield start


@pytest.fixture
def connect():
    """Connects ranks as threads of the test, and closes what came out."""
    with ExitStack() as stack:

        def start(members, ranks=None, **options):
            made = connect_threads(members, ranks or range(len(members)), **options)
            for each in made:
                if not isinstance(each, Exception):
                    stack.callback(each.close)
            return made

        yield start


@pytest.fixture
def connect_beside(connect):
    """Connects ranks as threads while something else happens; returns a call that waits for it."""

    def start(members, ranks, **options):
        made = []
        thread = threading.Thread(target=lambda: made.extend(connect(members, ranks, **options)))
        thread.start()

        def wait():
            thread.join()
            return made

        return wait

    return start
