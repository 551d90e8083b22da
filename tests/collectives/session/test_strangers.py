"""Connections that have proved nothing are few, and end soon; without a token users are told apart.

What they may say is in `test_security.py`.
"""

import ctypes
import logging
import os
import random
import selectors
import socket
import sys
import threading
import time
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

import numpy as np
import pytest

from paceline.cluster import free_ports
from paceline.collectives import Member
from paceline.collectives.session import Endpoint, Identity, RefusedError, SessionHandler
from paceline.collectives.session.doorkeeper import Doorkeeper
from paceline.collectives.session.grpc_stream import Server
from paceline.collectives.session.tcp_table import Peer, users_at, users_calling
from paceline.collectives.session.visitors import (
    Origin,
    Strangers,
    max_connections,
    max_strangers,
    raise_file_limit,
)

linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
LIMIT_SECS = 20.0
ANOTHER_USER = 65534


def first(crowd):
    return crowd[0]


@pytest.mark.parametrize(
    ("origins", "gone"),
    [
        ("aaa", ""),
        ("aaaa", "0"),
        ("aaaaaa", "012"),
        ("aaabbb", "0"),  # of the larger crowd: a, which has come first
        ("aaabcdef", "012"),  # a again, when there is one of each
        ("aaabbcd", "01"),
    ],
    ids=str,
)
def test_of_too_many_strangers_one_of_the_largest_crowd_has_to_go(origins, gone):
    """At most three may come from one host, and five from all."""
    strangers = Strangers(3, 5, choose=first)
    sent_away = []
    for index, letter in enumerate(origins):
        found = strangers.add(index, Origin(f"10.0.0.{ord(letter)}"), now=0.0)
        sent_away += [victim for victim, _ in found]
    assert sorted(sent_away) == [int(digit) for digit in gone]
    assert strangers.callers == set(range(len(origins))) - set(sent_away)


@pytest.mark.parametrize(
    ("one", "other", "are_one"),
    [
        (Origin("10.0.0.1"), Origin("10.0.0.1"), True),
        (Origin("10.0.0.1"), Origin("10.0.0.2"), False),
        (Origin("127.0.0.1", 0), Origin("127.0.0.1", 1000), False),
        (Origin("2001:db8::1"), Origin("2001:db8::ffff:2"), True),
        (Origin("2001:db8::1"), Origin("2001:db8:0:1::1"), False),
        (Origin("fe80::1%eth0"), Origin("fe80::2%eth0"), True),
    ],
    ids=str,
)
def test_strangers_of_one_host_or_user_are_one_crowd(one, other, are_one):
    assert (one.crowd == other.crowd) == are_one


def test_a_member_gets_through_a_flood_of_its_own_host():
    """It has a chance with each call, however fast strangers connect; the first one never would."""
    strangers, chance = Strangers(64, 256, choose=random.Random(0).choice), iter(range(10**6))
    origin = Origin("10.0.0.1")

    def is_taken():
        member = next(chance)
        strangers.add(member, origin, 0.0)
        for _ in range(192):  # three times as many as there may be come during its handshake
            strangers.add(next(chance), origin, 0.0)
        return member in strangers.callers

    assert sum(is_taken() for _ in range(200)) > 2


@pytest.mark.parametrize("max_files", [24, 64, 1024, 4096, 1 << 20])
@pytest.mark.parametrize("max_callers", [2, 256, 4096])
def test_connections_leave_files_for_a_save(max_callers, max_files):
    of_one, in_all = max_strangers(max_callers, max_files)
    assert 1 <= of_one <= in_all <= max(4, max_files // 4)
    assert max_connections(max_callers, max_files, num_open=10) <= max_files * 3 / 4


def test_a_process_may_open_as_many_files_as_the_system_allows():
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, before[1]), before[1]))
        assert raise_file_limit() == before[1] or before[1] == resource.RLIM_INFINITY
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def wait_until_closed(connections, count):
    """Read from connections until so many of them have been closed by the other end."""
    deadline, num_closed = time.monotonic() + LIMIT_SECS, 0
    with selectors.DefaultSelector() as ready:
        for each in connections:
            each.setblocking(False)
            ready.register(each, selectors.EVENT_READ)
        while num_closed < count and time.monotonic() < deadline:
            for key, _ in ready.select(deadline - time.monotonic()):
                data = b""
                with suppress(ConnectionError):
                    data = key.fileobj.recv(4096)
                if not data:
                    ready.unregister(key.fileobj)
                    num_closed += 1
    assert num_closed >= count


@linux
@pytest.mark.parametrize("said", [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"])
def test_a_thousand_idle_connections_do_not_stay(loopback, connect, run_at_once, caplog, said):
    """A ring of two lets 68 strangers of one host stay; its members work on."""
    members = loopback(2)
    ring = connect(members)
    host, _, port = members[1].address.partition(":")
    with ExitStack() as stack, caplog.at_level(logging.WARNING, "paceline"):
        strangers = []
        for _ in range(1000):
            with suppress(OSError):  # where it is closed at once
                each = socket.create_connection((host, int(port)))
                strangers.append(stack.enter_context(each))
                each.sendall(said)
        wait_until_closed(strangers, len(strangers) - 68)
        arrays = [np.ones(10), np.ones(10)]
        run_at_once([partial(c.all_reduce, a, "x") for c, a in zip(ring, arrays, strict=True)])
    assert arrays[0].tolist() == [2.0] * 10
    assert f"port {port} closes connections from 127.0.0.1 (user {os.geteuid()})" in caplog.text


@contextmanager
def guarded_port(strangers):
    """A gRPC server that nobody speaks to, and its doorkeeper."""
    [port] = free_ports(1)
    server = Server(f"127.0.0.1:{port}", 8, lambda stream: None)
    keeper = Doorkeeper(Peer("127.0.0.1", port), strangers)
    try:
        yield port, keeper
    finally:
        keeper.close()
        server.stop(0.0)


@linux
def test_a_connection_that_proves_nothing_in_time_is_closed_and_a_members_is_not():
    with guarded_port(Strangers(8, 8, limit_secs=0.2)) as (port, keeper), ExitStack() as stack:
        member, *others = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(3)
        )
        keeper.identify(Peer(*member.getsockname()))
        wait_until_closed(others, 2)
        member.setblocking(False)
        with suppress(BlockingIOError):
            assert member.recv(4096)  # settings of HTTP/2; no end


@linux
def test_only_connections_count_as_strangers():
    strangers = Strangers(1, 1)
    with guarded_port(strangers) as (port, keeper), ExitStack() as stack:
        pair = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)
        ]
        wait_until_closed(pair, 1)
        keeper.close()
        assert strangers.callers <= {Peer(*each.getsockname()) for each in pair}


@linux
def test_a_port_can_be_used_again_when_its_doorkeeper_has_gone():
    with guarded_port(Strangers(8, 8)) as (port, _):
        pass
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))
        again.listen()


class Admissions(SessionHandler):
    """Takes everybody in, and notes who came and who did not."""

    def __init__(self):
        self.admitted = []
        self.refused = []

    def admit(self, session):
        self.admitted.append(session.peer.task)

    def receive(self, session, frame):
        pass

    def ended(self, session):
        pass

    def turned_away(self, caller, error):
        self.refused.append(f"{caller} {error}")


def relay(listening, listen_as, target, dial_as):
    """Pass a connection on, whose two ends in the middle are sockets of these users."""
    # The credentials for files and sockets are a thread's own.
    user = ctypes.CDLL(None).setfsuid
    user(listen_as)
    near, _ = listening.accept()
    user(dial_as)
    far = socket.create_connection(target)
    user(0)
    back = threading.Thread(target=pump, args=(far, near), daemon=True)
    back.start()
    pump(near, far)
    back.join()
    near.close()
    far.close()


def pump(source, target):
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def call_as():
    """`call_as(token, caller, listener)`: calls an endpoint, both ends as processes of users."""
    with ExitStack() as stack:

        def endpoint(rank, port, token, ip=None):
            me = Member(rank, f"worker {rank}", f"127.0.0.1:{port}")
            identity = Identity(me=me, job_id="job", token=token, links=("tcp",))
            handler = Admissions()
            made = Endpoint(identity, handler, silence_secs=20.0, ip=ip)
            stack.callback(made.close)
            return made, handler

        def run(token, caller, listener):
            target = "127.0.0.1", *free_ports(1)
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            thread = threading.Thread(target=relay, args=(listening, listener, target, caller))
            thread.start()
            stack.callback(thread.join, LIMIT_SECS)
            _, handler = endpoint(0, target[1], token, target[0])
            calling, _ = endpoint(1, 1, token)
            called = Member(0, "worker 0", f"127.0.0.1:{listening.getsockname()[1]}")
            try:
                calling.call(called)
                outcome = ""
            except RefusedError as error:
                outcome = str(error)
            return outcome, handler

        yield run


needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="only root can play another user"
)


@needs_root
def test_without_a_token_a_process_of_another_user_is_not_let_in(call_as):
    outcome, handler = call_as("", ANOTHER_USER, 0)
    reason = f"is a process of user {ANOTHER_USER}; without a token only processes of one user"
    assert reason in outcome
    assert "set PACELINE_TOKEN" in outcome
    assert handler.admitted == []
    assert reason in handler.refused[0]


@needs_root
def test_without_a_token_a_port_of_another_user_is_not_joined(call_as):
    outcome, _ = call_as("", 0, ANOTHER_USER)
    assert f"is a process of user {ANOTHER_USER}" in outcome


@needs_root
def test_the_token_lets_processes_of_any_user_in(call_as):
    outcome, handler = call_as("a secret of the test", ANOTHER_USER, ANOTHER_USER)
    assert outcome == ""
    assert handler.admitted == ["worker 1"]


@linux
@pytest.mark.parametrize("ip", ["127.0.0.1", "::1"])
def test_the_system_tells_whose_a_connection_is(ip):
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    try:
        listening = socket.create_server((ip, 0), family=family)
    except OSError:
        pytest.skip(f"no {ip} here")
    with listening, socket.create_connection(listening.getsockname()[:2]) as caller:
        there, here = Peer(*listening.getsockname()[:2]), Peer(*caller.getsockname()[:2])
        assert users_at(there) == {os.geteuid()}
        assert users_calling(here, there.port) == {os.geteuid()}
        assert users_calling(Peer(ip, 1), there.port) == set()


@linux
def test_a_connection_that_its_process_has_closed_is_nobodys():
    """Its row in the system's table says user 0 then, which is root."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        caller = socket.create_connection(listening.getsockname())
        here = Peer(*caller.getsockname())
        caller.close()
        assert users_calling(here, listening.getsockname()[1]) == set()


@linux
def test_a_member_that_the_systems_table_leaves_out_once_stays_a_member(monkeypatch):
    """The table is read in pieces, and a row between two of them can be missed."""
    strangers = Strangers(8, 8, limit_secs=0.0)
    with guarded_port(strangers) as (port, keeper), ExitStack() as stack:
        member, other = (
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(2)
        )
        keeper.identify(Peer(*member.getsockname()))
        with monkeypatch.context() as patch:
            patch.setattr(f"{Doorkeeper.__module__}.sockets_about", lambda port: [])
            keeper._look()
        wait_until_closed([other], 1)
        keeper._look()
        assert Peer(*member.getsockname()) not in strangers.callers
        member.setblocking(False)
        with suppress(BlockingIOError):
            assert member.recv(4096)  # settings of HTTP/2; no end
