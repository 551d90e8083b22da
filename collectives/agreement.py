"""Whether all ranks are doing the same: full comparison at first use, headers ever after."""

from __future__ import annotations

from .calls import RECORD_BYTES, RULE, Call, differing_calls, record_text
from .errors import MismatchError
from .messages import HEADER_BYTES, Header, Kind, pack_header, unpack_header
from .peers import Peers


def check_header(peers: Peers, peer: int, data: memoryview, expected: bytearray) -> None:
    """Compare a header from ``peer`` with the one expected.

    Raises:
        MismatchError: They differ; the text has what both ranks called.
    """
    if data != expected:
        theirs, ours = unpack_header(data), unpack_header(memoryview(expected))
        assert ours is not None
        raise MismatchError(_difference(peers, peer, theirs, ours))


def receive_header(peers: Peers, peer: int, expected: bytearray) -> None:
    """Wait for a header from ``peer``, compare it, and move on to the payload."""
    check_header(peers, peer, peers.peek(peer, HEADER_BYTES), expected)
    peers.release(peer, HEADER_BYTES)


def compare_first_use(peers: Peers, tag: int, sequence: int, call: Call) -> None:
    """Compare ``call`` over all ranks.

    Raises:
        MismatchError: Some rank calls something else; the text lists who calls what.
    """
    header = pack_header(Kind.FIRST_USE, tag, sequence, bytes(16), RECORD_BYTES)
    records = gather_records(peers, header, call.record)
    if any(record != records[peers.rank] for record in records):
        texts = enumerate(map(record_text, records))
        error = MismatchError(differing_calls((peers.name(rank), text) for rank, text in texts))
        peers.world.failure = error  # all ranks have found this out: no need to tell them
        raise error


def gather_records(peers: Peers, header: bytearray, record: bytes) -> list[bytes]:
    """Return the short, equally long records of all ranks, in order, sent round the ring."""
    size, right, left = peers.size, (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size
    padded = record.ljust(-(-len(record) // HEADER_BYTES) * HEADER_BYTES, b"\0")
    records = [b""] * size
    records[peers.rank] = padded
    for step in range(size - 1):
        outgoing = records[(peers.rank - step) % size]
        peers.send(right, memoryview(bytes(header) + outgoing))
        receive_header(peers, left, header)
        records[(left - step) % size] = bytes(peers.peek(left, len(padded)))
        peers.release(left, len(padded))
    return [r[: len(record)] for r in records]


def _difference(peers: Peers, peer: int, theirs: Header | None, ours: Header) -> str:
    who, here = peers.name(peer), peers.name(peers.rank)
    if theirs is None:
        return (
            f"{peers.describe()} failed: {who} sent something that is no message of ours: "
            "it is not the same version of paceline, or memory was damaged"
        )
    if theirs.tag != ours.tag:
        what = "a collective on another communicator"
    else:
        what = _what_they_called(peers, peer, theirs)
    text = f"{who} called {what} as call {theirs.sequence} of this communicator, while "
    return f"{text}{here} called {peers.call.text} as call {ours.sequence}. {RULE}"


def _what_they_called(peers: Peers, peer: int, theirs: Header) -> str:
    if theirs.kind in (Kind.FIRST_USE, Kind.DIRECT):
        message = peers.peek(peer, HEADER_BYTES + RECORD_BYTES)
        return record_text(bytes(message[HEADER_BYTES:]))
    if theirs.digest == peers.call.digest:
        return peers.call.text
    known = peers.known_calls.get(theirs.digest)
    return "a collective that was never called here" if known is None else known.text
