"""Frames of those who have the key, changed by a seeded generator, at an endpoint that is at work.

What comes before authentication is in `test_security.py`.
"""

import json
import random
import struct
import threading
from contextlib import ExitStack, suppress

import pytest

from paceline.cluster import free_ports
from paceline.collectives import Member
from paceline.collectives.session import (
    Endpoint,
    FrameError,
    Identity,
    RefusedError,
    SessionHandler,
    StreamError,
    frames,
)
from paceline.collectives.session.grpc_stream import Channel
from paceline.collectives.session.handshake import TAG_BYTES, call

TOKEN = "a secret of the test"
WORDS = "5a" * 16
FRAMES = [
    frames.Heartbeat(),
    frames.Ready(waiting_for="worker 3"),
    frames.Lost(rank=1, reason="connection reset"),
    frames.GivingUp(reason="ValueError: x"),
    frames.Goodbye(),
    frames.WantLink(),
    frames.Offer(kind="tcp", address="40001", ticket=WORDS),
    frames.Answer(kind="tcp", problem=""),
    frames.Linked(kind="tcp", why=""),
    frames.NoLink(reason="none"),
    frames.Table(first=0, entries=(frames.Entry(address="h:1", incarnation=WORDS, host=WORDS),)),
    frames.Refusal(reason="x", is_final=True),
    frames.Proof(proof=WORDS),
]
ODD = [None, True, -1, 1 << 70, 1e308, "", "\0", "\n12:00 ERROR", "x" * 5000, [], [[]] * 9, {}]


class Counting(SessionHandler):
    """Takes everybody in, and expects an end for each."""

    def __init__(self):
        self._changed = threading.Condition()
        self.num_admitted = self.num_ended = 0
        self.texts = []

    def admit(self, session):
        with self._changed:
            self.num_admitted += 1

    def receive(self, session, frame):
        raise FrameError(f"a {type(frame).__name__} frame out of place")

    def ended(self, session):
        with self._changed:
            self.num_ended += 1
            self.texts.append(session.ended)
            self._changed.notify_all()

    def turned_away(self, caller, error):
        self.texts.append(f"{caller} {error}")

    def wait_for_ends(self):
        with self._changed:
            assert self._changed.wait_for(lambda: self.num_ended == self.num_admitted, 20)


def changed(rng, frame):
    """A frame with changed bytes, a changed size, or a value of another kind in its body."""
    data = bytearray(frames.encode(frame))
    how = rng.randrange(5)
    if how == 0:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif how == 1:
        del data[rng.randrange(len(data)) :]
    elif how == 2:
        struct.pack_into("<I", data, 8, rng.choice((0, 1, 1 << 31, (1 << 32) - 1)))
    elif how == 3:
        data += rng.randbytes(rng.choice((1, 16, 40_000)))
    else:
        body = json.loads(data[12:])
        body[rng.choice([*body, "more"])] = rng.choice(ODD)
        text = json.dumps(body).encode()
        data[8:] = struct.pack("<I", len(text)) + text
    return bytes(data)


def identity(rank, port):
    me = Member(rank, f"worker {rank}", f"127.0.0.1:{port}")
    return Identity(me=me, job_id="job", token=TOKEN, links=("tcp",), is_bound_to_loopback=True)


@pytest.mark.parametrize(
    "num_frames", [300, pytest.param(100_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_no_frames_after_authentication_harm_an_endpoint_at_work(num_frames):
    """Each session ends by the first frame that is wrong, and leaves nothing behind."""
    rng, [port], handler = random.Random(0), free_ports(1), Counting()
    me, server = identity(1, 1), identity(0, port)
    endpoint = Endpoint(server, handler, silence_secs=20.0, ip="127.0.0.1")
    num_threads, num_said = threading.active_count(), 0
    with ExitStack() as stack:
        stack.callback(endpoint.close)
        while num_said < num_frames:
            channel = Channel(server.me.address)
            stream = channel.open()
            _, authenticated = call(stream, me, server.me)
            for number in range(rng.randrange(1, 4)):
                data = changed(rng, rng.choice(FRAMES))
                tag = authenticated._tag(b"caller", number, data)
                stream.send(data + (tag if rng.random() < 0.9 else bytes(TAG_BYTES)))
                num_said += 1
            stream.finish()
            with suppress(StreamError, FrameError, RefusedError):
                for _ in authenticated:
                    pass
            channel.close()
        handler.wait_for_ends()
        assert threading.active_count() <= num_threads + 10
        channel = Channel(server.me.address)
        call(channel.open(), me, server.me)  # a good one is still let in
        channel.close()
        handler.wait_for_ends()
    assert all(text.isprintable() for text in handler.texts)
