"""Faults of a client or a server (E2) on loopback: who is told what, and how soon."""

import itertools
import re
import signal
import threading
import time
from contextlib import ExitStack, closing

import numpy as np
import pytest

from paceline.collectives import CollectiveTimeoutError, Member
from paceline.collectives.errors import RendezvousError
from paceline.collectives.parameter_server import (
    Message,
    RefusedRequest,
    ServerLost,
    connect,
    serve,
)
from paceline.collectives.session import frames as control_frames
from paceline.collectives.session.grpc_stream import Channel, StreamError

LINKS = ["shm", "tcp", "grpc"]
LIMIT_SECS = 15.0  # a death is noticed long before silence would tell, on a busy machine too
WORKER = Member(1, "worker 1")


def echo(client, request):
    return Message(request.verb, request.body, request.arrays)


@pytest.fixture
def start_server(record, options, server_member):
    """Starts servers as threads: returns (member, serving)."""
    with ExitStack() as stack:

        def start(handler=echo, server=None, **changes):
            server = server or server_member()
            serving = serve(server, record.handler(handler), **{**options, **changes})
            stack.callback(serving.close)
            return server, serving

        yield start


@pytest.fixture
def start_client(options):
    """Connects clients as threads of the test."""
    with ExitStack() as stack:

        def start(server, me=WORKER, **changes):
            connection = connect(server, me, **{"start_timeout_secs": 20, **options, **changes})
            stack.callback(connection.close)
            return connection

        yield start


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("doing", ["nothing", "ask for ever", "stay"])
def test_a_client_that_is_killed_is_lost_at_once(link, doing, start_server, start_process, record):
    """Also in the middle of a message, and while its request is being handled."""
    staying, go_on = threading.Event(), threading.Event()

    def handler(client, request):
        if request.verb == 2:
            staying.set()
            go_on.wait(60)
        return echo(client, request)

    server, serving = start_server(handler)
    process = start_process("client", server, 1, links=[link])
    process.expect("in")
    record.wait_for(lambda events: events == [("joined", 1, "")])
    if doing != "nothing":
        process.tell(doing)
        process.expect("asked" if doing == "stay" else "asking")
    assert doing != "stay" or staying.wait(20)
    killed_at = time.monotonic()
    process.signal(signal.SIGKILL)
    events = record.wait_for(lambda events: len(events) == 2)
    assert time.monotonic() - killed_at < LIMIT_SECS
    assert events[1][:2] == ("lost", 1)
    assert events[1][2]
    assert serving.clients == ()
    go_on.set()


def test_a_client_that_is_stopped_is_lost_when_it_was_silent_for_long(
    start_server, start_process, record
):
    """When it wakes up it is told so; it may come back."""
    server, _ = start_server(silence_secs=2.5)
    process = start_process("client", server, 1)
    process.expect("in")
    process.signal(signal.SIGSTOP)
    events = record.wait_for(lambda events: len(events) == 2)
    assert events[1][:2] == ("lost", 1)
    assert re.search(r"silent for ([2-9]|1\d)", events[1][2])
    process.signal(signal.SIGCONT)
    process.tell("connect again")
    process.expect("in")
    record.wait_for(lambda events: events[2:] == [("joined", 1, "")])
    process.tell("ask")
    process.expect("right")


def test_a_stopped_client_that_wakes_up_finds_its_connection_closed(
    start_server, start_process, record
):
    server, _ = start_server(silence_secs=2.5)
    process = start_process("client", server, 1)
    process.expect("in")
    process.signal(signal.SIGSTOP)
    record.wait_for(lambda events: len(events) == 2)
    process.signal(signal.SIGCONT)
    process.tell("ask")
    heard = process.hear()
    assert heard.startswith("ServerLost: ")
    assert str(server) in heard


def test_the_others_go_on_while_one_client_is_stopped(start_server, start_process, start_client):
    server, _ = start_server(silence_secs=2.5)
    stopped = start_process("client", server, 1)
    stopped.expect("in")
    stopped.tell("ask for ever")
    stopped.expect("asking")
    stopped.signal(signal.SIGSTOP)
    connection = start_client(server, Member(2, "worker 2"))
    for _ in range(20):
        reply = connection.ask(Message(1, b"", [np.ones(100_000)]))
        assert reply.arrays[0].sum() == 100_000


def test_a_client_that_was_killed_comes_back(start_server, start_process, record):
    server, _ = start_server()
    for _ in range(3):
        process = start_process("client", server, 1)
        process.expect("in")
        process.tell("ask")
        process.expect("right")
        process.signal(signal.SIGKILL)
    events = record.wait_for(lambda events: len(events) == 6)
    assert [event[0] for event in events] == ["joined", "lost"] * 3


def test_another_process_of_the_same_rank_waits_until_the_first_is_gone(
    start_server, start_process, record
):
    server, _ = start_server(report=lambda text: None)
    first = start_process("client", server, 1)
    first.expect("in")
    second = start_process("client", server, 1, report_secs=0.1)
    assert "is already there as another process" in second.hear()
    record.wait_for(lambda events: events == [("joined", 1, "")])
    first.tell("close")
    while (heard := second.hear()) != "in":
        assert "is already there as another process" in heard
    record.wait_for(lambda events: [event[0] for event in events] == ["joined", "left", "joined"])
    second.tell("ask")
    second.expect("right")


def test_a_process_that_wakes_up_after_it_was_replaced_stays_outside(
    start_server, start_process, record
):
    server, _ = start_server(silence_secs=2.5, report=lambda text: None)
    replaced = start_process("client", server, 1, report_secs=0.1)
    replaced.expect("in")
    replaced.signal(signal.SIGSTOP)
    record.wait_for(lambda events: len(events) == 2)
    replacement = start_process("client", server, 1)
    replacement.expect("in")
    replaced.signal(signal.SIGCONT)
    replaced.tell("connect again")
    assert "is already there as another process" in replaced.hear()
    replacement.tell("ask")
    replacement.expect("right")
    record.wait_for(lambda events: [event[0] for event in events] == ["joined", "lost", "joined"])


@pytest.mark.parametrize("link", LINKS)
def test_processes_end_by_themselves_though_they_have_not_closed(
    link, start_process, server_member
):
    server = server_member()
    serving = start_process("server", server)
    serving.expect("in")
    client = start_process("client", server, 1, links=[link])
    client.expect("in")
    serving.expect("joined 1")
    client.tell("ask")
    client.expect("right")
    client.tell("leave")
    assert client.wait() == 0
    assert serving.hear().startswith("lost 1: ")
    second = start_process("client", server, 2, links=[link])
    second.expect("in")
    serving.expect("joined 2")
    serving.tell("leave")
    assert serving.wait() == 0
    second.tell("ask")
    assert second.hear().startswith("ServerLost: ")


def test_a_process_with_two_connections_joins_once_and_leaves_once(
    start_server, start_client, record
):
    """The chief has a second one, for the thread that saves."""
    server, serving = start_server()
    first, second = start_client(server), start_client(server)
    assert serving.clients == (WORKER,)
    first.close()
    assert second.ask(Message(1, b"still there")).body == b"still there"
    assert record.events == [("joined", 1, "")]
    second.close()
    record.wait_for(lambda events: events == [("joined", 1, ""), ("left", 1, "")])


@pytest.mark.parametrize("link", LINKS)
def test_a_server_that_is_killed_is_named_and_found_again_when_it_is_back(
    link, start_process, start_client, server_member
):
    server = server_member()
    process = start_process("server", server)
    process.expect("in")
    connection = start_client(server, links=[link])
    pending = connection.start(Message(2), what="pull")
    process.expect("joined 1")
    process.expect("staying")
    killed_at = time.monotonic()
    process.signal(signal.SIGKILL)
    with pytest.raises(ServerLost, match=r"request 'pull' .*ps 0") as caught:
        pending.wait()
    assert server.address in str(caught.value)
    assert time.monotonic() - killed_at < LIMIT_SECS
    with pytest.raises(ServerLost, match="unusable since"):
        connection.ask(Message(1))
    restarted = start_process("server", server)
    again = start_client(server, links=[link])
    restarted.expect("in")
    assert again.ask(Message(1, b"1")).body == b"1"
    assert again.incarnation != connection.incarnation


@pytest.mark.parametrize("link", LINKS)
def test_a_server_that_is_killed_while_it_receives_is_named(
    link, start_process, start_client, server_member
):
    server = server_member()
    process = start_process("server", server)
    connection = start_client(server, links=[link])
    process.expect("in")
    array = np.ones(4_000_000)
    killer = threading.Thread(target=process.signal, args=(signal.SIGKILL,))

    def push_for_ever():
        for index in itertools.count():
            if index == 5:
                killer.start()
            connection.ask(Message(1, b"", [array]), [array], what="push")

    with pytest.raises(ServerLost, match=r"request 'push' .*ps 0"):
        push_for_ever()


def test_a_server_that_is_stopped_is_lost_when_it_was_silent_for_long(
    start_process, start_client, server_member
):
    server = server_member()
    process = start_process("server", server)
    process.expect("in")
    connection = start_client(server, silence_secs=3)
    process.signal(signal.SIGSTOP)
    with pytest.raises(ServerLost, match=r"ps 0.*(silent for|last heard of) ([2-9]|1\d)"):
        connection.ask(Message(1))


def test_a_server_that_thinks_for_long_is_late_and_not_lost(
    start_process, start_client, server_member
):
    server = server_member()
    process = start_process("server", server)
    process.expect("in")
    connection = start_client(server, timeout_secs=3)
    with pytest.raises(CollectiveTimeoutError, match=r"timed out after \d.* s: waiting for ps 0"):
        connection.ask(Message(2))


@pytest.mark.parametrize("link", LINKS)
def test_a_client_may_compute_for_longer_than_any_timeout_before_it_waits(
    link, start_server, start_client
):
    """Its reply is larger than what the link holds: the server keeps the rest for it."""
    server, _ = start_server(timeout_secs=0.1, links=[link])
    connection = start_client(server)
    pending = connection.start(Message(1, b"", [np.ones(4_000_000)]))
    threading.Event().wait(0.6)  # it computes
    assert pending.wait().arrays[0].sum() == 4_000_000


@pytest.mark.parametrize(
    ("command", "said"), [("close", "it has ended"), ("give up", "a disk is full")]
)
def test_a_server_that_ends_says_so(command, said, start_process, start_client, server_member):
    server = server_member()
    process = start_process("server", server)
    process.expect("in")
    connection = start_client(server)
    process.expect("joined 1")
    process.tell(command)
    process.expect("closed")
    with pytest.raises(ServerLost, match=f"ps 0.*{said}"):
        connection.ask(Message(1))


def test_a_request_under_way_is_answered_before_a_server_ends(start_server, start_client):
    busy, go_on = threading.Event(), threading.Event()

    def handler(client, request):
        busy.set()
        assert go_on.wait(20)
        return echo(client, request)

    server, serving = start_server(handler)
    connection = start_client(server)
    pending = connection.start(Message(1, b"done", [np.ones(100_000)]))
    assert busy.wait(20)
    closing_thread = threading.Thread(target=serving.close)
    closing_thread.start()
    go_on.set()
    assert pending.wait().body == b"done"
    closing_thread.join()


def test_a_client_waits_for_a_server_that_comes_late(start_process, server_member):
    server = server_member()
    client = start_process("client", server, 1, report_secs=0.2)
    heard = client.hear()
    assert re.match(rf"worker 1 is waiting for {re.escape(str(server))}: \d", heard)
    process = start_process("server", server)
    process.expect("in")
    while "waiting" in (heard := client.hear()):
        pass
    assert heard == "in"
    process.expect("joined 1")


def test_a_server_that_does_not_come_is_named(options, server_member):
    server = server_member()
    with pytest.raises(RendezvousError) as caught:
        connect(server, WORKER, **options, start_timeout_secs=0.5)
    waited = rf"worker 1 gave up: worker 1 is waiting for {re.escape(str(server))}: \d"
    assert re.search(waited, str(caught.value))


def test_a_server_that_is_stopped_before_it_answers_does_not_keep_a_client_for_ever(
    start_process, options, server_member
):
    server = server_member()
    process = start_process("server", server)
    process.expect("in")
    process.signal(signal.SIGSTOP)
    with pytest.raises(RendezvousError, match=r"gave up: .*waiting for ps 0.*it does not answer"):
        connect(server, WORKER, **options, start_timeout_secs=1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"token": "another secret"}, "does not know this job's token"),
        ({"token": None}, "does not know this job's token"),
        ({"job_id": "other"}, "comes from job 'test' instead of 'other'|comes from job 'other'"),
    ],
    ids=str,
)
def test_a_client_of_another_job_is_turned_away(change, said, start_server, start_client, record):
    server, _ = start_server()
    with pytest.raises(RendezvousError, match=f"worker 1 cannot join ps 0.*({said})"):
        start_client(server, **change)
    assert record.events == []
    assert start_client(server).ask(Message(1, b"1")).body == b"1"


def test_a_server_without_the_token_is_found_out(start_server, start_client):
    """Neither end takes the other unless both have the secret."""
    server, _ = start_server(token=None)
    with pytest.raises(RendezvousError, match="does not know this job's token"):
        start_client(server)


def test_a_client_of_another_version_is_told_so(start_server, options):
    reports = []
    server, _ = start_server(report=reports.append)
    hello = bytearray(control_frames.encode(control_frames.Proof(proof="5a" * 32)))
    hello[4] = control_frames.PROTOCOL_VERSION + 1
    with closing(Channel(server.address)) as channel:
        stream = channel.open()
        stream.send(bytes(hello))
        refusal = control_frames.decode(next(iter(stream)))
    assert refusal.is_final  # and its header tells the client which version this is
    ours = control_frames.PROTOCOL_VERSION
    assert f"speaks protocol version {ours + 1}, this is {ours}" in reports[0]


def test_the_address_of_another_server_is_noticed(start_server, start_client, server_member):
    server, _ = start_server(server=Member(1, "ps 1", server_member().address))
    with pytest.raises(RendezvousError, match="worker 1 cannot join ps 0"):
        start_client(Member(0, "ps 0", server.address))


def test_a_port_in_use_is_an_error_that_says_so(start_server):
    server, _ = start_server()
    with pytest.raises(RendezvousError, match=r"ps 0.*cannot listen: port \d+ is in use"):
        start_server(server=server)


def test_a_port_is_free_again_after_close(start_server, server_member):
    server = server_member()
    for _ in range(3):
        _, serving = start_server(server=server)
        serving.close()


def test_beyond_loopback_a_token_is_asked_for(options, record, server_member):
    with pytest.raises(ValueError, match="PACELINE_TOKEN"):
        serve(server_member(), record.handler(echo), job_id="job", bind_host="0.0.0.0")


@pytest.mark.parametrize(
    ("change", "said"),
    [({"links": ["ipx"]}, "links must be some of"), ({"job_id": ""}, "job_id must have")],
    ids=str,
)
def test_arguments_that_make_no_sense_are_refused(change, said, options, record, server_member):
    arguments = {**options, **change}
    with pytest.raises(ValueError, match=said):
        serve(server_member(), record.handler(echo), **arguments)
    with pytest.raises(ValueError, match=said):
        connect(server_member(), WORKER, **arguments)


def test_without_a_kind_of_link_in_common_both_ends_say_so(start_server, start_client, record):
    server, _ = start_server(links=["tcp"])
    with pytest.raises(RendezvousError, match="no kind of link in common"):
        start_client(server, links=["grpc"], start_timeout_secs=3)
    assert record.events == []


class Failing:
    """A server whose owner makes mistakes when somebody comes or goes."""

    handle = staticmethod(echo)

    def joined(self, client):
        raise ZeroDivisionError

    def lost(self, client, reason):
        raise ZeroDivisionError

    def left(self, client):
        raise ZeroDivisionError


def test_owners_who_raise_harm_nobody(options, server_member, start_client, caplog):
    server = server_member()
    with closing(serve(server, Failing(), **options)):
        assert start_client(server).ask(Message(1, b"1")).body == b"1"
    assert "failed" in caplog.text


def test_a_handler_that_fails_is_logged_and_goes_on(start_server, start_client, caplog):
    def fail(client, request):
        raise ZeroDivisionError("division by zero")

    server, _ = start_server(fail)
    connection = start_client(server)
    for _ in range(2):
        with pytest.raises(RefusedRequest, match="division by zero"):
            connection.ask(Message(7))
    assert "request 7 of worker 1 failed" in caplog.text


def test_a_data_stream_with_a_wrong_ticket_is_turned_away(start_server):
    reports = []
    server, _ = start_server(report=reports.append)
    with closing(Channel(server.address)) as channel:
        stream = channel.open()
        stream.send(control_frames.encode(control_frames.Attach(rank=1, ticket="5a" * 32)))
        with pytest.raises(StreamError):
            list(stream)
    assert "a data stream with a wrong ticket" in reports[0]
