"""How members find each other, and what is said when they do not (D-01, E2)."""

import gc
import logging
import os
import re
import socket
import sys
import threading
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paceline.collectives import Member, PeerLostError
from paceline.collectives.errors import RendezvousError
from paceline.collectives.session import connect_ring
from paceline.collectives.session.addresses import local_ip
from paceline.collectives.session.handshake import HostsError, Identity

LIMIT_SECS = 20.0
HOSTS = ["11" * 16, "22" * 16]


def texts(outcomes):
    outcomes = list(outcomes)
    assert all(isinstance(outcome, RendezvousError) for outcome in outcomes), outcomes
    return [str(outcome) for outcome in outcomes]


def test_a_member_that_never_starts_is_named_while_waiting_and_at_the_end(
    loopback, connect, caplog
):
    members = loopback(3)
    with caplog.at_level(logging.INFO, "paceline"):
        outcomes = connect(members, [0, 2], start_timeout_secs=2.0, report_secs=1.0)
    for text in texts(outcomes):
        assert f"waiting for {members[1]}" in text
    assert any("gave up" in text and "2 s" in text for text in texts(outcomes))
    lines = [record.getMessage() for record in caplog.records]
    waiting = re.compile(re.escape(f"waiting for {members[1]}: ") + r"\d s of at most 2 s")
    assert any(map(waiting.match, lines)), lines
    assert any("worker 1: connection refused" in line for line in lines), lines


def test_all_missing_members_are_named(loopback, connect):
    """Rank 0 knows of all of them, and the others of rank 0 only while that is missing."""
    members = loopback(4)
    [text] = texts(connect(members, [0], start_timeout_secs=1.0))
    assert f"waiting for {members[1]}, {members[2]}, {members[3]}: 1 s" in text
    assert "localhost is looked for on this machine only" in text
    [text] = texts(connect(members, [3], start_timeout_secs=1.0))
    assert f"waiting for {members[0]}: 1 s" in text
    assert "localhost is looked for on this machine only" in text


def test_a_member_may_come_late(loopback, connect, start_process):
    """Whoever is there keeps calling; one killed while it waits may start again."""
    members = loopback(2)
    early = start_process(members, 1)
    early.expect("started")
    early.end()
    second = start_process(members, 1)
    second.expect("started")
    outcomes = connect(members, [0])
    second.expect("in")
    assert outcomes[0].size == 2


def test_a_process_that_joins_anew_is_no_member_of_the_world_that_it_has_left(loopback, connect):
    """It comes in when the others have left that one, too; until then it is told to wait."""
    members = loopback(2)
    first = connect(members)
    first[1].close()
    again = threading.Thread(target=lambda: outcomes.append(connect(members, [1])))
    outcomes = []
    again.start()
    with closing(first[0]) as old:
        again.join(timeout=0.6)  # it calls in vain, three times a second
        assert again.is_alive()
        with pytest.raises(PeerLostError):
            old.all_reduce(np.ones(1), "alone")
    second = connect(members, [0])
    again.join(timeout=LIMIT_SECS)
    assert [world.size for world in (*second, *outcomes[0])] == [2, 2]


def test_a_port_in_use_is_named_with_its_task(loopback):
    members = loopback(2)
    with socket.create_server(("127.0.0.1", int(members[1].address.rpartition(":")[2]))) as taken:
        port = taken.getsockname()[1]
        owner = rf"port {port} is in use by .*python.* \(pid {os.getpid()}\)"
        with pytest.raises(RendezvousError, match=rf"worker 1 \(.*\).*{owner}"):
            connect_ring(members, 1, job_id="test", token="secret")


def test_a_python_without_grpc_is_told_what_it_can_do(loopback, monkeypatch):
    monkeypatch.setitem(sys.modules, "grpc", None)
    told = r"over gRPC here .*pip install grpcio.*mpirun.*paceline\[mpich\]"
    with pytest.raises(ImportError, match=told):
        connect_ring(loopback(2), 0, job_id="test", token="secret")


def test_an_address_of_another_machine_cannot_be_listened_at(loopback):
    members = [*loopback(1), Member(1, "worker 1", "192.0.2.1:2222")]
    with pytest.raises(RendezvousError, match=r"192\.0\.2\.1 is not an address of this"):
        connect_ring(members, 1, job_id="test", token="secret")


def test_an_own_name_that_stays_unknown_is_named(loopback):
    members = [*loopback(1), Member(1, "worker 1", "no-such-host.invalid:2222")]
    with pytest.raises(RendezvousError, match=r"worker 1 .*no-such-host\.invalid is not known"):
        connect_ring(members, 1, job_id="test", token="secret", start_timeout_secs=0.6)


def test_an_own_name_that_is_known_later_is_found(loopback, monkeypatch):
    """As in Kubernetes, where the name of a pod comes after the pod."""
    [other, _] = loopback(2)
    port, look_up, failures = other.address.rpartition(":")[2], socket.getaddrinfo, [1, 2]

    def known_later(host, *arguments, **options):
        if host == "worker-0.jobs" and failures:
            failures.pop()
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return look_up("127.0.0.1" if host == "worker-0.jobs" else host, *arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", known_later)
    found = local_ip(Member(0, "worker 0", f"worker-0.jobs:{port}"), None, timeout_secs=20)
    assert (found, failures) == ("127.0.0.1", [])


def test_a_member_whose_name_is_unknown_is_called_until_the_limit_and_named(loopback, connect):
    [me] = loopback(1)
    members = [me, Member(1, "worker 1", "no-such-host.invalid:2222")]
    [text] = texts(connect(members, [0], start_timeout_secs=3.0))
    assert "gave up: waiting for worker 1 (no-such-host.invalid:2222): 3 s" in text
    assert "name not found" in text.partition("worker 1: ")[2]


STRANGERS = {
    "job": ({"job_id": "another"}, r"comes from job '\w+' instead of '\w+'"),
    "token": ({"token": "guessed"}, "does not know this job's token"),
    "no token": ({"token": None}, "does not know this job's token"),
    "list": ({"more": True}, r"has a cluster of \d members instead of \d"),
}


def test_members_of_something_else_turn_each_other_away(loopback, run_at_once, connect):
    """Both end at once, and both say why."""

    def meet(options):
        ours = loopback(2)
        [other] = loopback(1)
        theirs = [*ours, Member(2, "worker 2", other.address)] if "more" in options else ours
        theirs_options = {name: value for name, value in options.items() if name != "more"}
        meetings = [
            lambda: connect(ours, [0], start_timeout_secs=60.0)[0],
            lambda: connect(theirs, [1], start_timeout_secs=60.0, **theirs_options)[0],
        ]
        return texts(outcome for outcome, _ in run_at_once(meetings))

    met = run_at_once([partial(meet, options) for options, _ in STRANGERS.values()])
    for (_, reason), (pair, _) in zip(STRANGERS.values(), met, strict=True):
        assert "worker 1" in pair[0]
        assert "worker 0" in pair[1]
        for text in pair:
            assert re.search(rf"failed: worker \d .*{reason}", text), pair


def test_a_second_process_with_the_same_rank_is_not_let_in(loopback, connect, run_at_once):
    members = loopback(2)
    ring = connect(members)
    # It can listen, because it does so at another address.
    zombie = connect(members, [1], start_timeout_secs=2.0, bind_host="127.0.0.2")
    text = "turned this process away: 'is already there as another process'"
    assert text in texts(zombie)[0]
    results = [np.ones(3), np.ones(3)]
    run_at_once([partial(c.all_reduce, a, "x") for c, a in zip(ring, results, strict=True)])
    assert results[0].tolist() == [2.0] * 3


REFUSED = {
    "no port": ({"members": [Member(0, "worker 0", "host-a")]}, "must be host:port"),
    "port 0": ({"members": [Member(0, "worker 0", "host-a:0")]}, "a port from 1 to 65535"),
    "one address twice": (
        {"members": [Member(0, "chief", "host-a:1"), Member(1, "worker 0", "host-a:1")]},
        "chief and worker 0 have one address, host-a:1",
    ),
    "rank": ({"rank": 1}, "rank must be from 0 to 0; found 1"),
    "links": ({"links": ("udp",)}, "links must be some of shm, tcp, grpc"),
    "no links": ({"links": ()}, "links must be some of"),
    "job_id": ({"job_id": ""}, "job_id must have 1 to 256 characters"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_arguments_that_make_no_sense_are_refused(what):
    options, text = REFUSED[what]
    standard = {"members": [Member(0, "worker 0", "127.0.0.1:2222")], "rank": 0, "job_id": "test"}
    with pytest.raises(ValueError, match=text):
        connect_ring(**(standard | options))


def test_other_machines_may_call_only_with_a_token(loopback):
    """E3: no open port without credentials."""
    with pytest.raises(ValueError, match=r"PACELINE_TOKEN .*CommunicationOptions\(token=\.\.\.\)"):
        connect_ring(loopback(2), 0, job_id="test", bind_host="0.0.0.0")


def identity(rank, addresses, host, is_bound_to_loopback=False):
    return Identity(
        me=Member(rank, f"worker {rank}", addresses[rank]),
        size=2,
        job_id="test",
        token="secret",
        host=host,
        is_bound_to_loopback=is_bound_to_loopback,
        links=("tcp",),
    )


@pytest.mark.parametrize(
    ("addresses", "bound", "is_refused"),
    [
        (["localhost:1", "host-b:1"], (False, False), True),
        (["127.0.0.1:1", "host-b:1"], (False, False), True),
        (["host-a:1", "[::1]:1"], (False, False), True),
        (["host-a:1", "host-b:1"], (True, False), True),
        (["host-a:1", "host-b:1"], (False, False), False),
    ],
)
def test_localhost_is_refused_where_there_are_two_machines(addresses, bound, is_refused):
    """D-01: two machines, and an address that leads each to itself."""
    first, second = (identity(i, addresses, HOSTS[i], bound[i]) for i in range(2))
    if is_refused:
        with pytest.raises(HostsError, match="runs on another machine, where the address of work"):
            second.check_hosts(first.hello())
    else:
        second.check_hosts(first.hello())


def test_localhost_is_fine_on_one_machine():
    first, second = (identity(i, ["localhost:1", "localhost:2"], HOSTS[0], True) for i in range(2))
    second.check_hosts(first.hello())


def test_a_world_of_one_needs_nobody():
    with connect_ring([Member(0, "worker 0", "127.0.0.1:1")], 0, job_id="test") as communicator:
        communicator.barrier("alone")


@pytest.mark.parametrize(
    ("mine", "theirs", "picked"),
    [
        (("shm", "tcp", "grpc"), ("shm", "tcp", "grpc"), "shared memory to worker 1"),
        (("shm", "tcp", "grpc"), ("grpc", "tcp"), "TCP to worker 1"),
        (("grpc", "tcp"), ("shm", "tcp", "grpc"), "gRPC to worker 1"),
    ],
)
def test_the_first_kind_of_link_that_both_have_is_taken(
    loopback, connect, run_at_once, caplog, mine, theirs, picked
):
    members = loopback(2)
    with caplog.at_level(logging.INFO, "paceline"):
        outcomes = run_at_once(
            [
                lambda: connect(members, [0], links=mine),
                lambda: connect(members, [1], links=theirs),
            ]
        )
        assert not caplog.records, "links are agreed on when they are first asked for"
        run_at_once([partial(ring.barrier, "x") for [ring], _ in outcomes])
    lines = [record.getMessage() for record in caplog.records]
    assert f"ring of 2, here {members[0]}: {picked}" in lines
    assert len(lines) == 2


def test_members_without_a_common_kind_of_link_say_so(loopback, connect, run_at_once):
    members = loopback(2)
    outcomes = run_at_once(
        [
            lambda: connect(members, [0], links=("tcp",))[0],
            lambda: connect(members, [1], links=("grpc",))[0],
        ]
    )
    failures = run_at_once([partial(ring.barrier, "x") for ring, _ in outcomes])
    for failure, _ in failures:
        assert isinstance(failure, PeerLostError)
        assert "no link: they have no kind of link in common" in str(failure)


def test_closing_leaves_neither_port_nor_memory_nor_thread(loopback, connect_ranks, run_at_once):
    members = loopback(2)
    threads, mapped = set(threading.enumerate()), links_mapped()
    for _ in range(2):  # the second time only if the first has released its ports
        ring = connect_ranks(members, range(2))
        run_at_once([communicator.close for communicator in ring])
    del ring
    for thread in set(threading.enumerate()) - threads:  # some are still on their way out
        thread.join(LIMIT_SECS)
        assert not thread.is_alive(), thread
    gc.collect()
    assert links_mapped() <= mapped  # tests before this one may have left some to a traceback


def links_mapped():
    """The links in shared memory that this process holds."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return {line for line in lines if "paceline-link" in line}


def test_members_close_where_no_thread_can_be_started(loopback, connect_ranks, monkeypatch):
    """Python 3.12.1 starts none any more when a program has ended and closes what is open."""

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    ring = connect_ranks(loopback(2), range(2))
    monkeypatch.setattr("threading.Thread.start", refuse)
    for communicator in ring:
        communicator.close()
