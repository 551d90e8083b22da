"""Whatever arrives on a link: a frame is taken if it is right, refused if not, and no harm is done.

Frames that were recorded are changed, cut, joined and invented anew, more than 10^4 in a run.
"""

import json
import math
import random
import re
import struct
from contextlib import closing, suppress
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.collectives import Member
from paceline.collectives.errors import LinkError
from paceline.collectives.in_process import in_process_link_pair
from paceline.collectives.parameter_server import (
    Connection,
    Message,
    RefusedRequest,
    ServerLost,
    connect,
    serve,
)
from paceline.collectives.parameter_server.frames import (
    DTYPES,
    HEADER_BYTES,
    ConnectionId,
    FrameKind,
    elements,
    pack,
)
from paceline.collectives.parameter_server.service import Ending, Service
from paceline.collectives.parameter_server.wire import Wire

SERVER, CLIENT = Member(0, "ps 0"), Member(1, "worker 1")
SESSION = ConnectionId.of("job", "0123456789abcdef" * 2)
MAX_FRAME_BYTES = 1 << 20

MESSAGES = [
    Message(1, b"{}"),
    Message(2, b'{"ids": [1, 2, 3], "rows": [false, true, false]}', [np.arange(3)]),
    Message(3, b"{}", [np.linspace(0, 1, 12, dtype=np.float32).reshape(3, 4), np.array([True])]),
    Message(4, b"", [np.zeros((2, 0, 3)), np.array(1j), np.array(5, np.int8)] * 20),
    Message(5, b"[" + b"1," * 300 + b"1]", [np.zeros(1000, np.float16)] * 3),
]


def frame(kind, message, sequence=1):
    """The bytes of a frame as they are on a link."""
    parts = [pack(kind, SESSION, sequence, message)]
    for array in message.arrays:
        parts += [elements(array), bytes(-array.nbytes % HEADER_BYTES)]
    return b"".join(parts)


RECORDED = [
    *(
        frame(kind, message)
        for message in MESSAGES
        for kind in (FrameKind.REQUEST, FrameKind.REPLY)
    ),
    frame(FrameKind.REFUSAL, Message(1, b'{"kind": "ValueError", "text": "no such shard"}')),
    frame(FrameKind.GOODBYE, Message(0)),
    frame(FrameKind.CLOSING, Message(0, b"a disk is full")),
]

# Where numbers of the header and of the first entry behind an empty body are, and their sizes.
NUMBERS = [(4, 2), (6, 2), (8, 8), (16, 8), (24, 8), (32, 4), (36, 4), (40, 4), (44, 4), (48, 8)]
NUMBERS += [(56, 8), (64, 1), (65, 1), (66, 6), (72, 8), *((80 + 8 * i, 8) for i in range(8))]
TELLING = [0, 1, 2, 7, 8, 9, 63, 64, 65, 255, 256, 1 << 14, (1 << 14) + 1, 1 << 16, 1 << 20]
TELLING += [
    (1 << 20) + 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    1 << 61,
    1 << 62,
    1 << 63,
    (1 << 64) - 1,
]

recorded = st.sampled_from(RECORDED)
flips = st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 7)), min_size=1, max_size=6)


def flipped(data, changes):
    changed = bytearray(data)
    for position, bit in changes:
        changed[position % len(changed)] ^= 1 << bit
    return bytes(changed)


def overwritten(data, changes):
    changed = bytearray(data)
    for (position, size), value in changes:
        if position + size <= len(changed):
            changed[position : position + size] = (value % (1 << 8 * size)).to_bytes(size, "little")
    return bytes(changed)


overwrites = st.lists(
    st.tuples(st.sampled_from(NUMBERS), st.sampled_from(TELLING) | st.integers(0, 1 << 64)),
    min_size=1,
    max_size=3,
)
changed_frames = (
    st.builds(flipped, recorded, flips)
    | st.builds(overwritten, recorded, overwrites)
    | st.builds(overwritten, recorded, overwrites)
    | st.builds(lambda data, stop: data[: stop % len(data)], recorded, st.integers(0, 8000))
    | st.builds(lambda data, start: data[start % len(data) :], recorded, st.integers(0, 8000))
    | st.builds(lambda one, more, other: one + more + other, recorded, st.binary(), recorded)
    | st.builds(lambda data: RECORDED[0][:24] + data, st.binary(max_size=300))
    | st.binary(max_size=300)
)
streams = st.lists(changed_frames | recorded, min_size=1, max_size=3).map(b"".join)


def wire(link, me, other):
    return Wire(
        link,
        me,
        other,
        SESSION,
        health=None,
        timeout_secs=10,
        max_frame_bytes=MAX_FRAME_BYTES,
    )


def check_message(message):
    """What the transport promises of whatever it hands on."""
    assert 0 <= message.verb < 1 << 16
    assert len(message.body) <= 1 << 20
    assert message.num_bytes <= MAX_FRAME_BYTES
    for array in message.arrays:
        assert array.dtype in DTYPES
        assert array.nbytes == math.prod(array.shape) * array.itemsize
        assert array.dtype != bool or set(array.view(np.uint8).ravel().tolist()) <= {0, 1}


def serve_stream(data):
    """What comes of it when a client sends these bytes and is gone."""
    near, far = in_process_link_pair(16 << 20)

    def handler(client, request):
        assert client is CLIENT
        check_message(request)
        return Message(request.verb, request.body, request.arrays)

    service = Service(wire(far, SERVER, CLIENT), CLIENT, SimpleNamespace(handle=handler))
    near.send(memoryview(data), math.inf)
    near.close()
    return service.run()


def read_reply(data):
    """What comes of it when a server answers with these bytes and is gone."""
    near, far = in_process_link_pair(16 << 20)
    connection = Connection(wire(near, CLIENT, SERVER), SERVER, "00" * 16, timeout_secs=10)
    with closing(connection):
        pending = connection.start(Message(1, b"{}"))
        far.send(memoryview(data), math.inf)
        far.close()
        return pending.wait()


def check_server(data):
    ending = serve_stream(data)
    assert isinstance(ending, Ending)
    assert ending.has_left or ending.reason


def check_client(data):
    """It gets a reply, or one of the two errors that there are."""
    with suppress(ServerLost, RefusedRequest):
        check_message(read_reply(data))


def examples(count):
    return settings(max_examples=count, deadline=None, database=None)


@examples(300)
@given(streams)
def test_a_server_survives_whatever_a_client_sends(data):
    check_server(data)


@examples(300)
@given(streams)
def test_a_client_survives_whatever_a_server_sends(data):
    check_client(data)


@pytest.mark.slow
@examples(6000)
@given(streams)
def test_a_server_survives_thousands_of_streams(data):
    check_server(data)


@pytest.mark.slow
@examples(6000)
@given(streams)
def test_a_client_survives_thousands_of_streams(data):
    check_client(data)


@pytest.mark.parametrize("data", RECORDED, ids=range(len(RECORDED)))
def test_what_was_recorded_is_right(data):
    """Otherwise the tests above would change what is wrong anyway."""
    kind = struct.unpack_from("<H", data, 6)[0]
    if kind == FrameKind.REQUEST:
        reason = serve_stream(data + frame(FrameKind.GOODBYE, Message(0))).reason
        assert "closed" in reason or not reason  # the client did not wait for its reply
    if kind == FrameKind.REPLY:
        assert frame(FrameKind.REPLY, read_reply(data)) == data


@pytest.mark.parametrize(
    ("position", "size", "value", "text"),
    [
        (0, 4, 0, "no frame of a parameter server"),
        (4, 2, 1, "version 1 instead of 3"),
        (6, 2, 9, "kind 9"),
        (6, 2, FrameKind.REPLY, "kind 2 out of place"),
        (8, 8, 5, "another job"),
        (16, 8, 5, "another incarnation"),
        (32, 4, 1 << 16, "verb 65536"),
        (36, 4, (1 << 20) + 1, "a body of 1048577 bytes; 1048576 are allowed"),
        (40, 4, (1 << 14) + 1, "16385 arrays; 16384 are allowed"),
        (44, 4, (1 << 14) + 1, "16385 arrays; 16384 are allowed"),
        (48, 8, 1 << 40, "1048576 are allowed"),
        (48, 8, 128, "do not add up"),
        (56, 8, 2, "wrong header"),
        (64, 1, 14, "unknown dtype 14"),
        (65, 1, 9, "9 dimensions with a wrong entry"),
        (65, 1, 0, "0 dimensions with a wrong entry"),
        (66, 6, 1, "do not add up"),
        (72, 8, 8, r"shape \(2,\) with a size of 8 bytes"),
        (80, 8, 1 << 62, "with a size of 16 bytes"),
        (88, 8, 1, "1 dimensions with a wrong entry"),
        (150, 1, 1, "something other than zeros"),
    ],
)
def test_a_malformed_frame_is_refused_by_name(position, size, value, text):
    good = frame(FrameKind.REQUEST, Message(1, b"", [np.zeros(2)]))
    bad = overwritten(good, [((position, size), value)])
    ending = serve_stream(bad)
    assert not ending.has_left
    assert re.search(text, ending.reason), ending.reason


def test_a_bool_that_is_none_is_refused():
    good = frame(FrameKind.REQUEST, Message(1, b"", [np.zeros(2, bool)]))
    assert "other bytes than 0 and 1" in serve_stream(overwritten(good, [((192, 1), 7)])).reason


def test_an_empty_shape_that_numpy_cannot_take_is_refused():
    entry = overwritten(
        frame(FrameKind.REQUEST, Message(1, b"", [np.zeros((0, 3, 3))])),
        [((88, 8), 1 << 40), ((96, 8), 1 << 40)],
    )
    assert "with a size of 0 bytes" in serve_stream(entry).reason


def test_memory_that_there_is_not_is_no_disaster(monkeypatch):
    def no_memory(*about):
        raise MemoryError

    large = frame(FrameKind.REQUEST, Message(1, b"", [np.zeros(1 << 15)]))
    monkeypatch.setattr("paceline.collectives.parameter_server.wire.np.empty", no_memory)
    assert "no memory" in serve_stream(large).reason


@pytest.mark.parametrize("link", ["shm", "tcp", "grpc"])
def test_others_are_served_right_while_one_sends_nonsense(link, server_member, options, record):
    """Over each link, with a connection anew for each malformed frame."""
    server, sent = server_member(), np.arange(2000.0)
    reports = []

    def handler(client, request):
        return Message(request.verb, request.body, request.arrays)

    with (
        closing(serve(server, record.handler(handler), **options, report=reports.append)),
        closing(connect(server, Member(2, "worker 2"), **options, links=[link])) as good,
    ):
        nonsense = [*RECORDED[:3], bytes(64), RECORDED[0] + b"1" * 200]
        for index, data in enumerate(nonsense):
            with closing(connect(server, CLIENT, **options, links=[link])) as bad:
                bad._wire._link.send(memoryview(flipped(data, [(index, 1)])), math.inf)
                with pytest.raises(ServerLost, match="ps 0"):
                    bad.ask(Message(1), timeout_secs=10)
            reply = good.ask(Message(7, json.dumps(index).encode(), [sent]))
            assert reply.arrays[0].tobytes() == sent.tobytes()
        lost = record.wait_for(lambda events: sum(event[0] == "lost" for event in events) == 5)
    assert all("it sent" in event[2] for event in lost if event[0] == "lost")


@pytest.mark.parametrize(
    "num_streams", [60, pytest.param(20_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_a_server_at_work_survives_what_members_send(num_streams, server_member, options, record):
    """One connection after the other, each with up to three frames of a seeded generator."""
    rng, server, sent = random.Random(0), server_member(), np.arange(2000.0)

    def handler(client, request):
        check_message(request)
        return Message(request.verb, request.body, request.arrays)

    def hostile_data():
        frames = [rng.choice(RECORDED) for _ in range(rng.randrange(1, 4))]
        changes = [(rng.randrange(4000), rng.randrange(8)) for _ in range(rng.randrange(1, 5))]
        numbers = [(rng.choice(NUMBERS), rng.choice(TELLING))] if rng.random() < 0.5 else []
        return overwritten(flipped(b"".join(frames), changes), numbers)

    with (
        closing(serve(server, record.handler(handler), **options, report=lambda text: None)),
        closing(connect(server, Member(2, "worker 2"), **options, links=["tcp"])) as good,
    ):
        for _ in range(num_streams):
            with (
                closing(connect(server, CLIENT, **options, links=["tcp"])) as bad,
                suppress(LinkError),
            ):
                bad._wire._link.send(memoryview(hostile_data()), math.inf)
        reply = good.ask(Message(7, b"{}", [sent]))
        assert reply.arrays[0].tobytes() == sent.tobytes()
        ends = ("lost", "left")
        record.wait_for(lambda events: sum(event[0] in ends for event in events) == num_streams)
