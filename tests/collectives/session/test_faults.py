"""Faults of a member (E2), as processes on loopback: who notices what, and how soon."""

import signal
import threading
import time
from functools import partial

import numpy as np
import pytest

from paceline.cluster import free_ports
from paceline.collectives import ClosedError, CollectiveTimeoutError, PeerLostError
from paceline.collectives.session.grpc_stream import Channel, Server, StreamError

LINKS = ["shm", "tcp", "grpc"]


def reduce_once(communicator):
    communicator.all_reduce(np.ones(50_000, np.float32), "x")


def reduce_for_ever(communicator):
    while True:
        reduce_once(communicator)


@pytest.fixture
def outcomes(run_at_once):
    """What an action on each communicator raises or returns, and the seconds that it took."""
    return lambda communicators, action: run_at_once([partial(action, c) for c in communicators])


@pytest.fixture
def two_and_a_process(loopback, start_process, connect_beside):
    """Ranks 0 and 1 as threads, rank 2 as a process: (communicators, process, members)."""

    def make(**options):
        members = loopback(3)
        wait = connect_beside(members, [0, 1], **options)
        process = start_process(members, 2, **options)
        process.expect("started")
        process.expect("in")
        return wait(), process, members

    return make


@pytest.mark.parametrize("link", LINKS)
def test_killed_inside_all_reduce_it_is_named_by_all_at_once(two_and_a_process, link, outcomes):
    communicators, process, members = two_and_a_process(links=[link])
    process.tell("reduce for ever")
    killer = threading.Thread(
        target=lambda: (process.expect("reducing"), process.signal(signal.SIGKILL))
    )
    killer.start()
    results = outcomes(communicators, reduce_for_ever)
    killer.join()
    for error, _ in results:
        assert isinstance(error, PeerLostError)
        assert f"lost {members[2]}" in str(error)
        assert "all_reduce 'x' (200.0 KB)" in str(error)


def test_killed_when_idle_it_is_named_at_the_next_call(two_and_a_process, outcomes):
    communicators, process, members = two_and_a_process()
    process.signal(signal.SIGKILL)
    process.wait()
    for error, _ in outcomes(communicators, reduce_once):
        assert isinstance(error, PeerLostError)
        assert f"lost {members[2]}" in str(error)


def test_killed_while_others_wait_for_it_it_is_named_at_once(two_and_a_process, outcomes):
    communicators, process, members = two_and_a_process()
    died = []

    def kill_when_waited_for():
        process.tell("reduce")
        process.expect("reduced")
        process.signal(signal.SIGKILL)
        died.append(time.monotonic())

    killer = threading.Thread(target=kill_when_waited_for)
    killer.start()
    results = outcomes(communicators, reduce_for_ever)
    noticed = time.monotonic()
    killer.join()
    assert all(isinstance(error, PeerLostError) for error, _ in results)
    assert all(f"lost {members[2]}" in str(error) for error, _ in results)
    print(f"detected after {noticed - died[0]:.3f} s")


def test_stopped_it_is_lost_by_its_silence_long_before_the_deadline(two_and_a_process, outcomes):
    communicators, process, members = two_and_a_process(timeout_secs=600.0, silence_secs=3.0)
    process.signal(signal.SIGSTOP)
    results = outcomes(communicators, reduce_once)
    process.end()
    for error, secs in results:
        assert isinstance(error, PeerLostError)
        assert f"lost {members[2]}: it has been silent for " in str(error)
        assert secs < 20


def test_slow_but_alive_it_is_named_at_the_deadline_and_not_taken_for_lost(
    two_and_a_process, outcomes
):
    communicators, _, members = two_and_a_process(timeout_secs=4.0, silence_secs=3.0)
    results = outcomes(communicators, reduce_once)
    timeouts = [str(error) for error, _ in results if isinstance(error, CollectiveTimeoutError)]
    assert timeouts
    assert all("timed out after " in text for text in timeouts)
    assert any(f"waiting for {members[2]}, last heard of" in text for text in timeouts)


def test_whoever_has_left_is_missed_only_by_those_who_need_it(loopback, start_process):
    """The last call is a broadcast along a tree, and rank 2, a leaf, comes late."""
    members = loopback(4)
    processes = [start_process(members, rank) for rank in range(4)]
    for process in processes:
        process.expect("started")
    for process in processes:
        process.expect("in")
    for process in processes:  # a name that is new is compared by all
        process.tell("broadcast")
    for process in processes:
        process.expect("received")
    for rank in (0, 1, 3):
        processes[rank].tell("broadcast")
    processes[0].expect("received")
    processes[0].tell("leave")
    assert processes[0].wait() == (0, "")
    processes[2].tell("broadcast")
    for rank in (1, 2, 3):
        processes[rank].expect("received")
    processes[3].tell("reduce")
    processes[1].tell("reduce")
    for rank in (1, 3):
        assert f"{members[0]} has left" in processes[rank].hear()


def test_stopped_for_a_while_it_goes_on(two_and_a_process, outcomes):
    communicators, process, _ = two_and_a_process()
    process.signal(signal.SIGSTOP)
    process.tell("reduce")
    threading.Timer(1.5, process.signal, [signal.SIGCONT]).start()
    results = outcomes(communicators, reduce_once)
    process.expect("reduced")
    assert [result for result, _ in results] == [None, None]


def test_raising_it_tells_the_others_why(two_and_a_process, outcomes):
    communicators, process, members = two_and_a_process()
    process.tell("raise")
    for error, _ in outcomes(communicators, reduce_once):
        assert isinstance(error, PeerLostError)
        assert f"lost {members[2]}" in str(error)
        assert "ArithmeticError: a loss of NaN" in str(error)


@pytest.mark.parametrize("how", ["close", "leave"])
def test_ending_it_releases_whoever_waits_for_it(two_and_a_process, how, outcomes):
    communicators, process, members = two_and_a_process()
    process.tell(how)
    process.tell("leave")
    for error, _ in outcomes(communicators, reduce_once):
        assert isinstance(error, PeerLostError)
        assert members[2].task in str(error)


def test_leaving_in_order_harms_nobody_who_does_not_wait_for_it(two_and_a_process, outcomes):
    communicators, process, _ = two_and_a_process()
    process.tell("reduce")
    assert [result for result, _ in outcomes(communicators, reduce_once)] == [None, None]
    process.expect("reduced")
    process.tell("close")
    process.expect("closed")
    payloads = [np.array([7.0]), np.zeros(1)]

    def exchange(communicator):
        if communicator.rank == 0:
            communicator.send(payloads[0], "between us", to=1)
        else:
            communicator.receive(payloads[1], "between us", source=0)

    assert [result for result, _ in outcomes(communicators, exchange)] == [None, None]
    assert payloads[1] == payloads[0]


def test_an_interpreter_that_ends_without_closing_ends_promptly_and_quietly(two_and_a_process):
    _, process, _ = two_and_a_process()
    process.tell("leave")
    code, errors = process.wait()
    assert (code, errors) == (0, "")


def test_closing_releases_our_own_waiting_call(loopback, connect, run_at_once):
    communicators = connect(loopback(2))
    (error, _), _ = run_at_once([partial(reduce_once, communicators[0]), communicators[0].close])
    assert isinstance(error, ClosedError)


def test_a_server_stops_without_a_new_thread_after_what_is_on_its_way(monkeypatch):
    """A program that ends cannot start threads under Python 3.12.0 and 3.12.1."""
    (port,) = free_ports(1)
    came_in, heard = threading.Event(), []

    def serve(stream):
        for message in stream:
            heard.append(message)
            came_in.set()

    server = Server(f"127.0.0.1:{port}", 10, serve)
    channel = Channel(f"127.0.0.1:{port}")
    stream = channel.open()
    stream.send(b"first")
    assert came_in.wait(10)
    stream.send(b"last")
    stream.finish()

    def refuse(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        server.stop(10.0)
    assert heard == [b"first", b"last"]
    late = channel.open()
    with pytest.raises(StreamError):
        list(late)
    channel.close()
