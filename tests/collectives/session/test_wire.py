"""Whatever arrives from outside: taken if it is right, refused if not, and no harm done (E3)."""

import json
import socket
import string
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.collectives.errors import LinkBroken
from paceline.collectives.session import frames
from paceline.collectives.session.grpc_stream import Channel, StreamError
from paceline.collectives.session.sockets import check_hello, pack_hello

TICKET = "5a" * 32
HEXADECIMAL = "0011223344556677"
HELLO = frames.Hello(
    job_id="job",
    size=2,
    members=HEXADECIMAL,
    rank=1,
    task="worker 1",
    address="host-b:2222",
    incarnation=HEXADECIMAL,
    host=HEXADECIMAL,
    is_loopback=True,
    links=("shm", "tcp", "grpc"),
    nonce=HEXADECIMAL,
)
FRAMES = [
    HELLO,
    frames.Welcome(hello=HELLO, proof=HEXADECIMAL),
    frames.Proof(proof=HEXADECIMAL),
    frames.Accepted(),
    frames.Refusal(reason="comes from job 'a' instead of 'b'", is_final=True),
    frames.Attach(rank=1, ticket=TICKET),
    frames.Offer(kind="tcp", address="40001", ticket=TICKET),
    frames.Answer(kind="tcp", problem="connection refused"),
    frames.Linked(kind="grpc", why="no TCP: connection refused"),
    frames.NoLink(reason="none in common"),
    frames.WantLink(),
    frames.ShowStacks(why="worker 1 has been waiting for worker 2 in all_reduce 'x': 60 s"),
    frames.Parent(address="host-b:2222"),
    frames.Missing(names="worker 1 (host-b:2222)", remarks=""),
    frames.Ready(waiting_for="worker 3"),
    frames.Table(
        first=64,
        entries=(frames.Entry(address="h:1", incarnation=HEXADECIMAL, host=HEXADECIMAL),),
    ),
    frames.Left(rank=1),
    frames.Heartbeat(),
    frames.Lost(rank=1, reason="connection reset by peer"),
    frames.GivingUp(reason="ValueError: ü"),
    frames.Goodbye(),
    frames.Challenge(nonce=HEXADECIMAL),
]

flips = st.lists(st.tuples(st.integers(0, 10_000), st.integers(1, 255)), min_size=1, max_size=8)


def mutate(data, changes):
    """`data` with some bytes changed."""
    mutated = bytearray(data)
    for position, mask in changes:
        mutated[position % len(mutated)] ^= mask
    return bytes(mutated)


def decode_or_refuse(data):
    try:
        return frames.decode(data)
    except frames.FrameError:
        return None


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame).__name__)
def test_frames_come_back_as_they_were(frame):
    assert frames.decode(frames.encode(frame)) == frame


def test_the_table_knows_every_kind_of_frame():
    assert {type(frame) for frame in FRAMES} == set(frames.Frame.__subclasses__())


@settings(max_examples=700, deadline=None)
@given(st.binary(max_size=200) | st.binary(max_size=200).map(frames.encode(HELLO)[:12].__add__))
def test_bytes_that_are_no_frame_are_refused(data):
    assert decode_or_refuse(data) is None


@settings(max_examples=700, deadline=None)
@given(st.sampled_from(FRAMES), flips)
def test_changed_frames_are_refused_or_are_frames(frame, changes):
    decoded = decode_or_refuse(mutate(frames.encode(frame), changes))
    assert decoded is None or frames.decode(frames.encode(decoded)) == decoded


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FRAMES), st.integers(0, 40), st.binary(max_size=40))
def test_frames_cut_short_or_with_something_behind_are_refused(frame, num_cut, behind):
    data = frames.encode(frame)
    changed = data[: len(data) - num_cut] + behind
    assert changed == data or decode_or_refuse(changed) is None


@pytest.mark.parametrize(
    "change",
    [
        {"rank": -1},
        {"rank": 1 << 20},
        {"rank": "1"},
        {"rank": 1.0},
        {"reason": "x" * 2001},
        {"reason": None},
        {"more": 1},
    ],
    ids=str,
)
def test_a_body_with_a_wrong_value_is_refused(change):
    body = json.dumps({"rank": 1, "reason": "x"} | change).encode()
    right = frames.encode(frames.Lost(rank=1, reason="x"))
    with pytest.raises(frames.FrameError, match="malformed Lost frame"):
        frames.decode(right[:8] + len(body).to_bytes(4, "little") + body)


def test_a_frame_that_is_too_long_is_refused_unread():
    with pytest.raises(frames.FrameError, match="not 40000"):
        frames.decode(bytes(40_000))


def test_another_protocol_version_is_named():
    data = bytearray(frames.encode(frames.Heartbeat()))
    data[4] += 1
    ours = frames.PROTOCOL_VERSION
    text = f"speaks protocol version {ours + 1}, this is {ours}"
    with pytest.raises(frames.VersionError, match=text):
        frames.decode(bytes(data))


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=100) | flips.map(lambda changes: mutate(pack_hello(1, TICKET), changes)))
def test_only_the_right_hello_is_taken(data):
    right = pack_hello(1, TICKET)
    if data == right:
        check_hello(data, 1, TICKET)
    else:
        with pytest.raises(LinkBroken):
            check_hello(data, 1, TICKET)


GARBAGE = [
    b"",
    b"\0" * 100,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 1000,
    string.printable.encode() * 1000,
]
STREAMS = [
    [b""],
    [b"x" * 100],
    [b"x" * 500_000],
    [frames.encode(frames.Goodbye())],
    [frames.encode(frames.Attach(rank=1, ticket=TICKET)), b"data"],
    [frames.encode(frames.Attach(rank=7, ticket=TICKET))],
    [frames.encode(HELLO)],
    [frames.encode(HELLO), frames.encode(frames.Proof(proof=HEXADECIMAL))],
    [b"PLCT\x09\x00" + bytes(6)],
]


def test_a_ring_at_work_does_not_mind_strange_callers(loopback, connect, run_at_once):
    members = loopback(2)
    ring = connect(members)
    host, _, port = members[0].address.partition(":")
    for data in GARBAGE:
        with socket.create_connection((host, int(port))) as caller:
            caller.sendall(data)
    channel = Channel(members[0].address)
    for messages in STREAMS:
        stream = channel.open()
        for message in messages:
            stream.send(message)
        try:
            answers = [frames.decode(data) for data in stream]
        except StreamError:
            continue
        assert all(isinstance(a, frames.Challenge | frames.Refusal) for a in answers)
    channel.close()
    arrays = [np.ones(1000), np.ones(1000)]
    run_at_once([partial(c.all_reduce, a, "x") for c, a in zip(ring, arrays, strict=True)])
    for array in arrays:
        assert array.tolist() == [2.0] * 1000
