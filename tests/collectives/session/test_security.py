"""Who does not know the token gets nowhere, learns nothing and stops nobody (E3)."""

import hmac
import random
import socket
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from queue import SimpleQueue

import grpc
import numpy as np
import pytest

from paceline.cluster import free_ports
from paceline.collectives import Member
from paceline.collectives.errors import LinkBroken
from paceline.collectives.session import frames
from paceline.collectives.session.addresses import Address, host_fingerprint
from paceline.collectives.session.frames import FrameError, decode, encode
from paceline.collectives.session.grpc_link import DataStreams
from paceline.collectives.session.grpc_stream import Channel, Server, Stream, StreamError
from paceline.collectives.session.handshake import (
    STRANGER,
    TAG_BYTES,
    AuthenticatedStream,
    Identity,
    RefusedError,
    answer,
    call,
)
from paceline.collectives.session.links import LinkEnds, Negotiation
from paceline.collectives.session.ring import members_fingerprint
from paceline.collectives.session.sockets import Listener, TcpTransport, pack_hello
from paceline.collectives.session.visitors import CALL_SECS, SILENCE_SECS, OpenStreams, TurnedAway

TOKEN = "a secret that nobody guesses"
MEMBERS = tuple(Member(rank, f"worker {rank}", f"127.0.0.1:{rank + 1}") for rank in range(2))
REFUSED = (RefusedError, FrameError, StreamError)
FACTS = {
    "size": 2,
    "members": "66" * 16,
    "host": "11" * 16,
    "is_bound_to_loopback": True,
    "links": ("tcp", "grpc"),
}


def identity(rank, **changes):
    facts = {"me": MEMBERS[rank], "job_id": "the job's name", "token": TOKEN} | FACTS | changes
    return Identity(**facts)


@dataclass
class Heard:
    """What became of a conversation at its two ends."""

    caller: object = None
    other: object = None
    frames: list = field(default_factory=list)


def frames_said(stream):
    """What is sent over a stream that nothing carries."""
    for message in stream._messages():
        yield decode(message[:-TAG_BYTES])


def unchanged(direction, number, message):
    return [message]


@pytest.fixture
def converse():
    """Has rank 1 call rank 0 through somebody in the middle.

    `change(direction, number, message)` returns the messages that go on in its place; the caller
    says five frames when it is in.
    """

    def run(change=unchanged, caller=None):
        heard, done = Heard(), threading.Event()

        def serve(stream):
            messages = iter(stream)
            try:
                authenticated = answer(stream, messages, identity(0), decode(next(messages)))
                authenticated.send(frames.Accepted())
                heard.other = "in"
                for frame in authenticated:
                    heard.frames.append(frame)
            except REFUSED as error:
                heard.other = error
            finally:
                done.set()

        def relay(stream):
            onward = channel.open()
            back = threading.Thread(target=pass_on, args=("back", onward, stream), daemon=True)
            back.start()
            pass_on("forth", stream, onward)
            back.join(20)

        def pass_on(direction, source, target):
            with suppress(StreamError):
                for number, message in enumerate(source):
                    for each in change(direction, number, message):
                        target.send(each)
            target.finish()

        ports = free_ports(2)
        with ExitStack() as stack:
            for port, action in zip(ports, (serve, relay), strict=True):
                stack.callback(Server(f"127.0.0.1:{port}", 8, action).stop, 1.0)
            channel, mine = (Channel(f"127.0.0.1:{port}") for port in ports)
            stack.callback(channel.close)
            stack.callback(mine.close)
            stream = mine.open()
            try:
                _, authenticated = call(stream, caller or identity(1), MEMBERS[0])
                heard.caller = "in"
                for rank in range(5):
                    authenticated.send(frames.Lost(rank=rank, reason="x"))
                authenticated.finish()
            except REFUSED as error:
                heard.caller = error
                stream.finish()
            assert done.wait(20)
        return heard

    return run


def test_two_who_know_the_token_understand_each_other(converse):
    heard = converse()
    assert (heard.caller, heard.other) == ("in", "in")
    assert [frame.rank for frame in heard.frames] == list(range(5))


SAID = {
    "links": ("grpc",),
    "host": "22" * 16,
    "is_loopback": False,
    "incarnation": "33" * 16,
    "nonce": "44" * 16,
    "rank": 0,
    "task": "worker 7",
    "address": "127.0.0.1:9",
    "size": 3,
    "job_id": "another",
    "members": "55" * 16,
}


def changed(message, **changes):
    return encode(decode(message).model_copy(update=changes))


@pytest.mark.parametrize("name", SAID)
def test_nothing_that_a_caller_says_of_itself_can_be_changed_on_the_way(converse, name):
    def change(direction, number, message):
        if (direction, number) == ("forth", 0):
            return [changed(message, **{name: SAID[name]})]
        return [message]

    heard = converse(change)
    assert isinstance(heard.other, RefusedError)
    assert str(heard.other) == STRANGER
    assert isinstance(heard.caller, RefusedError)


@pytest.mark.parametrize("name", SAID)
def test_nothing_that_the_other_side_says_of_itself_can_be_changed_on_the_way(converse, name):
    def change(direction, number, message):
        if (direction, number) == ("back", 1):
            hello = decode(message).hello.model_copy(update={name: (SAID | {"rank": 1})[name]})
            return [changed(message, hello=hello)]
        return [message]

    heard = converse(change)
    assert isinstance(heard.caller, RefusedError)
    assert STRANGER in str(heard.caller)


@pytest.mark.parametrize("token", ["", "another secret"])
def test_a_caller_without_the_token_learns_nothing_of_the_job(converse, token):
    seen = []

    def change(direction, number, message):
        if direction == "back":
            seen.append(message)
        return [message]

    heard = converse(change, identity(1, token=token))
    assert isinstance(heard.other, RefusedError)
    challenge, refusal = map(decode, seen)
    assert isinstance(challenge, frames.Challenge)
    assert refusal == frames.Refusal(reason=STRANGER, is_final=True)


FORGED = "\n12:00:00 ERROR worker 1: the disk is full\x1b]0;owned\x07" + "x" * 1900


@pytest.mark.parametrize(("direction", "number"), [("back", 0), ("forth", 1)])
def test_what_a_stranger_gives_as_its_reason_stays_on_one_line(converse, direction, number):
    """Logs of the one that reads it get no lines, escapes and pages of the stranger's own."""

    def change(where, index, message):
        if (where, index) == (direction, number):
            return [encode(frames.Refusal(reason=FORGED, is_final=True))]
        return [message]

    heard = converse(change)
    text = str(heard.caller if direction == "back" else heard.other)
    assert text.isprintable()
    assert len(text) < 700
    assert r"'\n12:00:00 ERROR" in text


def test_the_status_of_a_stranger_stays_on_one_line():
    def behave(requests, context):
        context.abort(grpc.StatusCode.INTERNAL, FORGED)

    handlers = {"Open": grpc.stream_stream_rpc_method_handler(behave)}
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        server = grpc.server(
            pool, handlers=[grpc.method_handlers_generic_handler("paceline.Session", handlers)]
        )
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        stack.callback(lambda: server.stop(None).wait())
        channel = Channel(f"127.0.0.1:{port}")
        stack.callback(channel.close)
        with pytest.raises(StreamError) as caught:
            deque(channel.open(), maxlen=0)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 700


@pytest.mark.parametrize(
    "what", [{"job_id": "another"}, {"size": 3}, {"members": "77" * 16}], ids=str
)
def test_a_stranger_is_told_the_same_whatever_it_guesses(converse, what):
    """Neither the job's name nor its size can be tried out."""
    heard = converse(caller=identity(1, token="guessed", **what))
    assert str(heard.other) == STRANGER


def test_an_old_conversation_cannot_be_played_back(converse):
    first = []

    def record(direction, number, message):
        if direction == "forth":
            first.append(message)
        return [message]

    def play_back(direction, number, message):
        if direction == "forth":
            return [first[number]]
        return [message]

    assert converse(record).other == "in"
    assert isinstance(converse(play_back).other, RefusedError)


LATER = 2  # the caller's first frame after the handshake
ATTACKS = {
    "changed": lambda number, message: [message[:-20] + b"!" + message[-19:]] * (number == LATER),
    "left out": lambda number, message: [message] * (number != LATER + 1),
    "repeated": lambda number, message: [message] * (2 if number == LATER else 1),
    "made up": lambda number, message: [message] + [bytes(len(message))] * (number == LATER),
    "without its tag": lambda number, message: [message[:-16] if number >= LATER else message],
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_frame_that_is_not_the_next_one_of_the_other_end_ends_the_stream(converse, attack):
    def change(direction, number, message):
        if direction == "forth" and number >= LATER:
            return ATTACKS[attack](number, message)
        return [message]

    heard = converse(change)
    assert isinstance(heard.other, FrameError)
    assert "authenticator" in str(heard.other)
    assert len(heard.frames) <= 1


def test_a_frame_sent_back_to_its_sender_is_not_taken(converse):
    """What one end says is no frame of the other, though both have one key."""
    echoed = SimpleQueue()

    def change(direction, number, message):
        if direction == "back" and number >= 2:
            echoed.put(message)
        if direction == "forth" and number >= LATER:
            return [echoed.get()] if number == LATER else []
        return [message]

    heard = converse(change)
    assert isinstance(heard.other, FrameError)


def test_forty_silent_streams_do_not_keep_a_job_from_starting(loopback, connect):
    """As many as a job of two lets in, and each comes again when it is cut off."""
    members, stop = loopback(2), threading.Event()

    def hold(channel):
        while not stop.is_set():
            with suppress(StreamError):
                for _ in channel.open():
                    pass
            stop.wait(0.05)

    channels = [Channel(members[0].address) for _ in range(40)]
    threads = [threading.Thread(target=hold, args=(channel,), daemon=True) for channel in channels]
    for thread in threads:
        thread.start()
    try:
        ring = connect(members, start_timeout_secs=30.0)
    finally:
        stop.set()
        for channel in channels:
            channel.close()
        for thread in threads:
            thread.join(20)
    assert [communicator.size for communicator in ring] == [2, 2]


def test_a_caller_that_says_nothing_is_cut_off(loopback, connect):
    members = loopback(2)
    connect(members)
    channel = Channel(members[0].address)
    began = time.monotonic()
    with pytest.raises(StreamError):
        for _ in channel.open():
            pass
    assert SILENCE_SECS <= time.monotonic() - began < SILENCE_SECS + 8
    channel.close()


class Watched:
    """A stream that says whether it was broken."""

    def __init__(self):
        self.is_broken = False

    def cancel(self):
        self.is_broken = True


def test_a_caller_that_has_said_something_has_time_for_its_proof():
    """A member of a busy machine may need seconds."""
    streams = OpenStreams()
    speaking, silent = Watched(), Watched()
    for stream in (speaking, silent):
        streams.add(stream)
    streams.hear(speaking)
    streams.cancel_overdue(SILENCE_SECS)
    assert silent.is_broken
    assert not speaking.is_broken
    streams.cancel_overdue(CALL_SECS)
    assert speaking.is_broken


def test_silent_and_slow_connections_do_not_keep_the_expected_one_out():
    ticket = "5a" * 32
    hello = pack_hello(1, ticket)
    with ExitStack() as stack:
        listener = Listener(socket.create_server(("127.0.0.1", 0)), 1, ticket, lambda _: True)
        stack.callback(listener.close)
        address = listener._listening.getsockname()
        for _ in range(40):
            stack.enter_context(socket.create_connection(address)).send(hello[:5])
        impostor = stack.enter_context(socket.create_connection(address))
        impostor.send(pack_hello(1, "00" * 32))
        right = stack.enter_context(socket.create_connection(address))
        right.send(hello)
        began = time.monotonic()
        accepted, fds = listener.accept(began + 20)
        stack.enter_context(accepted)
        assert time.monotonic() - began < 10  # one after the other would take 80 s
        assert (accepted.getpeername(), fds) == (right.getsockname(), [])


def test_who_overhears_the_offer_of_a_link_cannot_take_it():
    """The ticket is no secret: what is shown is made of it with the key of the two."""
    streams = [Stream(), Stream()]
    caller = LinkEnds(
        caller=1, caller_ip="", ip="", called=Address("127.0.0.1", 1), streams=DataStreams()
    )
    called = LinkEnds(
        caller=1, caller_ip="127.0.0.1", ip="127.0.0.1", called=None, streams=DataStreams()
    )
    taker, offerer = (
        Negotiation(
            AuthenticatedStream(stream, iter(()), b"k" * 32, is_caller=ends is caller),
            MEMBERS[0],
            ["tcp"],
            ends,
        )
        for stream, ends in zip(streams, (caller, called), strict=True)
    )
    offers = frames_said(streams[1])
    offerer.take(frames.WantLink())
    assert isinstance(next(offers), frames.Accepted)
    offer = next(offers)
    impostor = TcpTransport().connect(caller, offer.address, offer.ticket)
    taker.take(offer)
    offerer.take(next(frames_said(streams[0])))
    here = offerer.pick().link
    taker.take(next(offers))
    there = taker.pick().link
    soon = time.monotonic() + 20
    here.send(memoryview(b"for rank 1 only"), soon)
    heard = bytearray(15)
    there.receive_into(memoryview(heard), soon)
    assert heard == b"for rank 1 only"
    with pytest.raises(LinkBroken):
        impostor.receive_into(memoryview(heard), soon)
    for link in (here, there, impostor):
        link.close()


def test_callers_that_are_turned_away_do_not_fill_the_log():
    lines, now = [], [0.0]
    turned_away = TurnedAway(lines.append, clock=lambda: now[0])
    for index in range(1000):
        turned_away.add(f"turned away {index}")
        now[0] += 0.1
    assert lines == ["turned away 0", "turned away 600 (599 others since the last such line)"]


HELLO = identity(1).hello()
FIRST = [
    encode(HELLO),
    encode(frames.Proof(proof="00" * 32)),
    encode(frames.Attach(rank=1, ticket="00" * 32)),
    encode(frames.Goodbye()),
    b"",
]


def mutations(seed):
    """Endless messages: frames of ours with some bytes changed, cut off or added."""
    rng = random.Random(seed)
    while True:
        data = bytearray(rng.choice(FIRST))
        for _ in range(rng.choice((0, 0, 1, 1, 4))):
            if data:
                data[rng.randrange(len(data))] = rng.randrange(256)
        yield bytes(data[: rng.choice((len(data), rng.randrange(len(data) + 1)))])


def bombard(address, seed, num_frames):
    """Open streams and send three mutated frames over each."""
    channel, source = Channel(address), mutations(seed)
    for _ in range(0, num_frames, 3):
        stream = channel.open()
        for _ in range(3):
            stream.send(next(source))
        stream.finish()
        with suppress(StreamError):
            for message in stream:
                found = decode(message)
                assert isinstance(found, frames.Challenge) or found.reason == STRANGER
    channel.close()


@pytest.mark.parametrize(
    "num_frames", [600, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]
)
def test_no_frames_before_authentication_harm_a_ring_at_work(
    loopback, connect, run_at_once, num_frames
):
    members = loopback(2)
    ring = connect(members)
    threads = [
        threading.Thread(target=bombard, args=(members[0].address, seed, num_frames // 4))
        for seed in range(4)
    ]
    before = threading.active_count()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert threading.active_count() <= before + 20
    arrays = [np.ones(1000), np.ones(1000)]
    run_at_once([partial(c.all_reduce, a, "x") for c, a in zip(ring, arrays, strict=True)])
    for array in arrays:
        assert array.tolist() == [2.0] * 1000


def authenticator(key, direction, number, data):
    """The 16 bytes behind a frame."""
    return hmac.digest(key, b"%s %d " % (direction, number) + data, "sha256")[:16]


LATER_FRAMES = [
    frames.Heartbeat(),
    frames.Ready(waiting_for="worker 3"),
    frames.Lost(rank=1, reason="connection reset"),
    frames.GivingUp(reason="ValueError: x"),
    frames.Offer(kind="tcp", address="40001", ticket="5a" * 32),
    frames.Answer(kind="tcp", problem=""),
]


def later_frame(rng):
    data = bytearray(encode(rng.choice(LATER_FRAMES)))
    for _ in range(rng.choice((0, 1, 1, 4))):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return bytes(data)


@pytest.mark.parametrize("num_frames", [2000, pytest.param(100_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("knows_key", [True, False])
def test_frames_after_authentication_are_taken_only_as_they_were_sent(num_frames, knows_key):
    """Who is in the middle can make none; who has the key can make only frames of ours."""
    rng, key, num_taken = random.Random(0), bytes(32), 0
    for _ in range(num_frames):
        data, number = later_frame(rng), rng.randrange(2)
        tag = authenticator(key, b"caller", number, data) if knows_key else rng.randbytes(16)
        reader = AuthenticatedStream(Stream(), iter([data + tag]), key, is_caller=False)
        try:
            [frame] = reader
        except FrameError:
            continue
        assert number == 0
        assert isinstance(frame, frames.Frame)
        num_taken += 1
    assert (num_taken > 0) == knows_key


@pytest.mark.parametrize("data", [b"", b"x" * 40_000, encode(HELLO)], ids=["none", "long", "hello"])
def test_a_member_that_sends_nonsense_is_named_and_harms_nobody(loopback, connect_beside, data):
    """It knows the token: that opens the door, and nothing else."""
    members = loopback(2)
    wait = connect_beside(members, [0], start_timeout_secs=3.0)
    facts = FACTS | {"host": host_fingerprint(), "members": members_fingerprint(members)}
    hostile = Identity(me=members[1], job_id="test", token="secret", **facts)
    channel = Channel(members[0].address)
    while True:
        stream = channel.open()
        with suppress(StreamError):
            _, authenticated = call(stream, hostile, members[0])
            break
    stream.send(data)
    with suppress(StreamError, FrameError):
        deque(authenticated, maxlen=0)
    channel.close()
    [outcome] = wait()
    assert "gave up: waiting for worker 1" in str(outcome)
