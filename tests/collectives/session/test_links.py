"""Each kind of link keeps the contract of `paceline.collectives.link.Link`."""

import fcntl
import mmap
import os
import random
import secrets
import socket
import threading
import time
from contextlib import ExitStack, closing
from typing import final

import numpy as np
import pytest

from paceline.collectives import Member
from paceline.collectives.errors import LinkBroken, LinkTimeout
from paceline.collectives.link import SMALL_SEND_BYTES
from paceline.collectives.session import (
    MPI_LINKS,
    Address,
    Transport,
    frames,
    links,
    register_transport,
    shared_memory,
)
from paceline.collectives.session.grpc_link import (
    SEGMENT_BYTES,
    WINDOW_BYTES,
    DataStreams,
    StreamLink,
)
from paceline.collectives.session.grpc_stream import Channel, Server, Stream
from paceline.collectives.session.handshake import TAG_BYTES, AuthenticatedStream
from paceline.collectives.session.links import LinkEnds, Negotiation
from paceline.collectives.session.shared_memory import SharedMemoryTransport
from paceline.collectives.session.sockets import TcpTransport, pack_hello

TICKET = secrets.token_hex(32)
# A wait that nobody ends takes as long, and the test fails.
LIMIT_SECS = 20.0


def soon():
    return time.monotonic() + LIMIT_SECS


def ends_of(caller_ip="127.0.0.1"):
    """Both ends of a session, as a transport sees them: who has called, and who was called."""
    streams = DataStreams()
    return (
        LinkEnds(caller=1, caller_ip="", ip="", called=Address("127.0.0.1", 1), streams=streams),
        LinkEnds(caller=1, caller_ip=caller_ip, ip="127.0.0.1", called=None, streams=streams),
    )


def pair_over(transport):
    caller, called = ends_of()
    with closing(transport.listen(called, TICKET)) as expected:
        first = transport.connect(caller, expected.address, TICKET)
        return first, expected.accept(soon())


def shared_memory_pair(stack, port):
    return pair_over(SharedMemoryTransport())


def tcp_pair(stack, port):
    return pair_over(TcpTransport())


def grpc_pair(stack, port):
    made = []
    is_made = threading.Event()

    def serve(stream):
        link = StreamLink(stream, iter(stream))
        made.append(link)
        is_made.set()
        link.pump()

    server = Server(f"127.0.0.1:{port}", 2, serve)
    stack.callback(server.stop, 1.0)
    channel = Channel(f"127.0.0.1:{port}")
    stack.callback(channel.close)
    stream = channel.open()
    link = StreamLink(stream, iter(stream))
    threading.Thread(target=link.pump, daemon=True).start()
    assert is_made.wait(LIMIT_SECS)
    return link, made[0]


def mpi_pair(stack, port):
    return pair_over(MPI_LINKS)


PAIRS = {"shm": shared_memory_pair, "tcp": tcp_pair, "grpc": grpc_pair}
if not MPI_LINKS.unavailable():  # `mpi_links.py` has joined
    PAIRS["mpi"] = mpi_pair


@pytest.fixture
def free_port(loopback):
    return int(loopback(1)[0].address.rpartition(":")[2])


@pytest.fixture(params=PAIRS)
def pair(request, free_port):
    """Both ends of a link within this process."""
    with ExitStack() as stack:
        ends = PAIRS[request.param](stack, free_port)
        for end in ends:
            stack.callback(end.close)
        yield ends


def receive(link, num_bytes):
    buffer = bytearray(num_bytes)
    link.receive_into(memoryview(buffer), soon())
    return bytes(buffer)


def peek(link, num_bytes):
    deadline = soon()
    while (view := link.try_peek(num_bytes)) is None:
        link.wait(LIMIT_SECS, to_send=False, to_receive=True)
        assert time.monotonic() < deadline
    return view


def take(link, num_bytes):
    while num_bytes:
        size = min(num_bytes, link.segment_bytes)
        peek(link, size)
        link.release(size)
        num_bytes -= size


def test_bytes_arrive_in_order_in_whatever_pieces(pair, run_at_once):
    """4 MB in each direction at once, sent and taken in pieces of random sizes."""
    data = random.Random(1).randbytes(4_000_000)

    def swap(link, seed):
        rng, rest, arrived, deadline = random.Random(seed), memoryview(data), bytearray(), soon()
        wanted = 1
        while rest or len(arrived) < len(data):
            piece = rest[: rng.choice([1, 63, 64, 5_000, 70_000, 600_000])]
            sent = link.try_send(piece) if piece else 0
            rest = rest[sent:]
            view = link.try_peek(wanted) if wanted else None
            if view is not None:
                arrived += view
                link.release(wanted)
                wanted = rng.choice([1, 64, 100, 9_999, link.segment_bytes])
                wanted = min(wanted, len(data) - len(arrived))
            elif not sent:
                link.wait(LIMIT_SECS, to_send=bool(rest), to_receive=bool(wanted))
                assert time.monotonic() < deadline
        return bytes(arrived)

    outcomes = run_at_once([lambda i=i: swap(pair[i], i) for i in range(2)])
    assert [outcome for outcome, _ in outcomes] == [data, data]


def test_what_is_received_into_a_place_comes_before_what_is_looked_at_next(pair, run_at_once):
    """3 MB, taken in turn as they come and in place; what follows is aligned as ever."""
    first, second = pair
    data = random.Random(4).randbytes(3_000_000)

    def take_all():
        rng, arrived, deadline = random.Random(5), bytearray(len(data)), soon()
        position = 0
        while position < len(data):
            size = min(rng.choice([1, 64, 5_000, 200_000]), len(data) - position)
            if rng.random() < 0.5:
                received = second.try_receive(memoryview(arrived)[position : position + size])
                if not received:
                    second.wait(LIMIT_SECS, to_send=False, to_receive=True)
                position += received
            else:
                size = min(size, second.segment_bytes)
                view = peek(second, size)
                if position % 16 == 0:
                    assert np.frombuffer(view, np.uint8).ctypes.data % 16 == 0
                arrived[position : position + size] = view
                second.release(size)
                position += size
            assert time.monotonic() < deadline
        return bytes(arrived)

    send = [lambda: first.send(memoryview(data), soon()), take_all]
    assert [outcome for outcome, _ in run_at_once(send)] == [None, data]
    assert second.try_receive(memoryview(bytearray(1))) == 0
    first.close()
    with pytest.raises(LinkBroken):
        receive(second, 1)


def test_what_announces_more_arrives_with_it(pair):
    first, second = pair
    assert first.try_send(memoryview(b"abc"), more=True) == 3
    first.send(memoryview(b"def"), soon())
    assert bytes(peek(second, 6)) == b"abcdef"


def test_what_starts_at_a_multiple_of_16_is_aligned(pair):
    first, second = pair
    rng, position = random.Random(2), 0
    while position < 8 * second.segment_bytes:
        size = rng.choice([64, 1, 15, 16, 4_096 + 64, 40_001, second.segment_bytes])
        first.send(memoryview(bytes(size)), soon())
        view = peek(second, size)
        if position % 16 == 0:
            assert np.frombuffer(view, np.uint8).ctypes.data % 16 == 0
        second.release(size)
        position += size


def test_asking_again_shows_the_same_bytes_until_they_are_released(pair):
    first, second = pair
    first.send(memoryview(b"abcdef"), soon())
    assert bytes(peek(second, 4)) == b"abcd"
    assert bytes(peek(second, 6)) == b"abcdef"
    second.release(3)
    assert bytes(peek(second, 3)) == b"def"
    assert second.try_peek(4) is None


def test_short_messages_can_be_sent_before_the_other_side_takes_anything(pair):
    first, second = pair
    data = random.Random(3).randbytes(SMALL_SEND_BYTES)
    first.send(memoryview(data), soon())
    second.send(memoryview(data), soon())
    assert receive(second, len(data)) == receive(first, len(data)) == data


def fill(link):
    """Send until the link takes nothing; return how much it took."""
    data, num_bytes = memoryview(bytes(1 << 20)), 0
    while sent := link.try_send(data):
        num_bytes += sent
        assert num_bytes < 64 << 20
    return num_bytes


def test_a_sender_gets_only_so_far_ahead(pair):
    """Memory on the way is bounded."""
    assert fill(pair[0]) >= SMALL_SEND_BYTES


def test_a_full_link_goes_on_when_the_other_side_takes_something(pair, run_at_once):
    first, second = pair
    for _ in range(3):
        num_bytes = fill(first)
        deadline = time.monotonic() + LIMIT_SECS

        def send_more(deadline=deadline):
            while not first.try_send(memoryview(b"x")):
                first.wait(LIMIT_SECS, to_send=True, to_receive=False)
                assert time.monotonic() < deadline

        outcomes = run_at_once([send_more, lambda n=num_bytes + 1: take(second, n)])
        assert [outcome for outcome, _ in outcomes] == [None, None]


def test_a_stream_that_sends_more_than_its_window_is_broken(free_port):
    """The other side could send anything: no more than a window of it is ever kept."""
    with ExitStack() as stack:
        first, second = grpc_pair(stack, free_port)
        stack.callback(second.close)
        first._taken = 1 << 40
        num_bytes = WINDOW_BYTES + 3 * SEGMENT_BYTES
        for _ in range(num_bytes // SEGMENT_BYTES):
            first.try_send(memoryview(bytes(SEGMENT_BYTES)))
        with pytest.raises(LinkBroken):
            peek(first, 1)
        with pytest.raises(LinkBroken, match="what this protocol does not allow"):
            take(second, num_bytes)


def test_waits_end_when_bytes_arrive(pair, run_at_once):
    """A hundred turns, in which each side waits for the other."""

    def play(link, is_first):
        for _ in range(100):
            if is_first:
                link.send(memoryview(b"x"), soon())
            take(link, 1)
            if not is_first:
                link.send(memoryview(b"x"), soon())

    outcomes = run_at_once([lambda i=i: play(pair[i], i == 0) for i in range(2)])
    assert [outcome for outcome, _ in outcomes] == [None, None]


def test_a_wait_ends_at_its_limit(pair):
    started = time.monotonic()
    pair[0].wait(0.02, to_send=False, to_receive=True)
    assert time.monotonic() - started < LIMIT_SECS


def test_what_was_sent_before_closing_arrives_and_then_the_link_is_broken(pair):
    first, second = pair
    first.send(memoryview(b"last words"), soon())
    first.close()
    first.close()
    assert receive(second, 10) == b"last words"
    with pytest.raises(LinkBroken, match="it has closed its end"):
        peek(second, 1)
    with pytest.raises(LinkBroken):
        second.send(memoryview(bytes(8 << 20)), soon())
    with pytest.raises(LinkBroken):
        first.send(memoryview(b"x"), soon())


def test_closing_ends_a_wait_of_another_thread(pair, run_at_once):
    first, _ = pair
    (error, _), _ = run_at_once([lambda: peek(first, 1), first.close])
    assert isinstance(error, LinkBroken)


def test_shared_memory_has_no_name_in_the_file_system():
    before = set(os.listdir("/dev/shm"))
    with ExitStack() as stack:
        for end in shared_memory_pair(stack, 0):
            stack.callback(end.close)
        assert set(os.listdir("/dev/shm")) == before


def test_counters_that_make_no_sense_break_a_shared_memory_link():
    """The other side could write anything there: nothing beyond the ring is ever read."""
    with ExitStack() as stack:
        first, second = shared_memory_pair(stack, 0)
        stack.callback(first.close)
        stack.callback(second.close)
        first.send(memoryview(b"x"), soon())
        first._words[shared_memory._WRITTEN] = 1 << 40
        with pytest.raises(LinkBroken, match="make no sense"):
            second.try_peek(1)


def connected(name, fds):
    """A caller with file descriptors of its own choosing."""
    caller = socket.socket(socket.AF_UNIX)
    caller.connect("\0" + name)
    socket.send_fds(caller, [pack_hello(1, TICKET)], fds)
    return caller


def test_only_sealed_memory_of_the_right_size_is_shared(tmp_path):
    """Memory that its owner could cut off would kill whoever reads it."""
    right_size = mmap.PAGESIZE + 2 * shared_memory.RING_BYTES
    with ExitStack() as stack:
        expected = SharedMemoryTransport().listen(ends_of()[1], TICKET)
        stack.callback(expected.close)
        small = os.memfd_create("small", os.MFD_ALLOW_SEALING)
        os.ftruncate(small, 4096)
        fcntl.fcntl(small, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        unsealed = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
        os.ftruncate(unsealed, right_size)
        file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
        stack.callback(lambda: [os.close(fd) for fd in (small, unsealed, file)])
        for fds in ([], [small], [unsealed], [file], [small, unsealed]):
            stack.enter_context(connected(expected.address, fds))
            with pytest.raises(LinkBroken, match="cannot share memory"):
                expected.accept(soon())


def test_a_caller_without_the_ticket_is_sent_away_and_the_right_one_still_gets_in():
    with ExitStack() as stack:
        expected = TcpTransport().listen(ends_of()[1], TICKET)
        stack.callback(expected.close)
        port = expected.address
        callers = [
            b"",
            b"GET / HTTP/1.1\r\n\r\n" * 10,
            pack_hello(1, secrets.token_hex(32)),
            pack_hello(2, TICKET),
            pack_hello(1, TICKET)[:20],
        ]
        for data in callers:
            wrong = stack.enter_context(socket.create_connection(("127.0.0.1", int(port))))
            wrong.sendall(data)
            wrong.shutdown(socket.SHUT_WR)
        right = stack.enter_context(socket.create_connection(("127.0.0.1", int(port))))
        right.sendall(pack_hello(1, TICKET))
        link = expected.accept(soon())
        stack.callback(link.close)
        link.send(memoryview(b"x"), soon())
        assert right.recv(1) == b"x"


def test_a_caller_from_another_address_is_sent_away():
    caller, called = ends_of(caller_ip="127.0.0.9")
    with closing(TcpTransport().listen(called, TICKET)) as expected:
        TcpTransport().connect(caller, expected.address, TICKET).close()
        with pytest.raises(LinkTimeout):
            expected.accept(time.monotonic() + 0.2)


def test_a_pair_that_misses_a_faster_link_because_one_was_slow_says_so(monkeypatch, caplog):
    """It is for the whole job, and nothing else would tell why arrays travel slowly."""
    monkeypatch.setattr(links, "ACCEPT_SECS", 0.5)
    streams = [Stream(), Stream()]
    taker, offerer = (
        Negotiation(
            AuthenticatedStream(stream, iter(()), b"k" * 32, is_caller=ends.called is not None),
            Member(1, "worker 1", "host-b:2222"),
            ["shm", "tcp"],
            ends,
        )
        for stream, ends in zip(streams, ends_of(), strict=True)
    )

    def relay(source, target, unheard):
        for message in source._messages():
            frame = frames.decode(message[:-TAG_BYTES])
            if not isinstance(frame, frames.Accepted) and getattr(frame, "kind", "") != unheard:
                target.take(frame)

    for source, target in (streams[1], taker), (streams[0], offerer):
        relaying = threading.Thread(target=relay, args=(source, target, "shm"), daemon=True)
        relaying.start()
    picked = offerer.pick()
    for each in (picked, taker.pick()):
        each.link.close()
    for stream in streams:
        stream.finish()
    assert picked.kind == "tcp"
    [line] = [record.getMessage() for record in caplog.records]
    assert line == (
        "arrays to and from worker 1 (host-b:2222) travel over TCP for the whole job "
        "(no shared memory: no answer)"
    )


def test_nobody_waits_for_the_stream_of_an_end_that_went_away_when_it_had_answered():
    stream = Stream()
    offerer = Negotiation(
        AuthenticatedStream(stream, iter(()), b"k" * 32, is_caller=False),
        Member(1, "worker 1", "host-b:2222"),
        ["grpc", "tcp"],
        ends_of()[1],
    )
    offerer.take(frames.WantLink())
    said = (frames.decode(message[:-TAG_BYTES]) for message in stream._messages())
    offer = next(frame for frame in said if isinstance(frame, frames.Offer))
    offerer.take(frames.Answer(kind=offer.kind, problem=""))
    [offering] = [each for each in threading.enumerate() if each.name == "paceline-link"]
    offerer.end("it went away")
    offering.join(timeout=links.ACCEPT_SECS / 4)
    assert not offering.is_alive()
    with pytest.raises(LinkBroken, match="it went away"):
        offerer.pick()


def test_a_transport_is_added_by_one_registration(monkeypatch):
    """Two ends that both know it take it, and an end that does not know it is left in peace."""
    monkeypatch.setattr(links, "TRANSPORTS", dict(links.TRANSPORTS))

    @final
    class Pipes(Transport):
        """Stands for another transport, and is TCP."""

        def __init__(self):
            super().__init__("pipes", "pipes")

        def unavailable(self):
            return ""

        def listen(self, ends, proof):
            return TcpTransport().listen(ends, proof)

        def connect(self, ends, address, proof):
            return TcpTransport().connect(ends, address, proof)

    with pytest.raises(ValueError, match=r"links must be some of .*; found \('pipes',\)"):
        links.check_links(("pipes",))
    register_transport(Pipes())
    links.check_links(("pipes", "tcp"))
