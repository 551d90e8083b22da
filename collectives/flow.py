"""Sending to one peer while receiving from another or the same: the loop of long algorithms."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from .agreement import check_header
from .arrays import as_bytes
from .communicator import Array
from .messages import HEADER_BYTES, padding
from .peers import Patience, Peers

_ZEROS = memoryview(bytes(HEADER_BYTES))


@dataclass(frozen=True)
class Piece:
    """An array that is to arrive.

    Attributes:
        array: Where it goes.
        ufunc: How it is combined with what is there; None to replace that.
        first: Whether what arrives is the first operand. It matters for the last bit (signed zeros,
            NaNs) where two ranks combine the same two values.
    """

    array: Array
    ufunc: np.ufunc | None = None
    first: bool = False


def flow(
    peers: Peers,
    header: bytearray,
    outgoing: tuple[int, Sequence[Array]],
    incoming: tuple[int, Sequence[Piece]],
    *,
    swap: bool = False,
) -> None:
    """Send one message and receive one, both at once, combining what arrives segment by segment.

    Args:
        peers: The other ranks.
        header: What both messages begin with.
        outgoing: To whom, and the arrays. Beyond the first array nothing goes out before as many
            bytes have come in: this is how a ring passes on sums.
        incoming: From whom, and the pieces.
        swap: Send everything regardless, and combine nothing before as many bytes have gone out:
            this is how two ranks send each other the array that they reduce.
    """
    out = _Outgoing(peers, outgoing[0], header, outgoing[1])
    if swap:
        out.allow_all()
    source, pieces = incoming
    arrivals = _Arrivals(peers, source, out, swap)
    check_header(peers, source, arrivals.next(HEADER_BYTES), header)
    arrivals.release(HEADER_BYTES)
    num_bytes = 0
    for segment, piece in _segments(pieces, peers.link(source).segment_bytes):
        _combine(segment, arrivals.next_payload(segment.nbytes), piece)
        arrivals.release(segment.nbytes)
        out.allow(segment.nbytes)
        num_bytes += segment.nbytes
    out.allow_all()
    if num_zeros := padding(num_bytes):
        arrivals.next(num_zeros)
        arrivals.release(num_zeros)
    out.finish()


@final
class _Outgoing:
    """A message on its way: header, arrays, zeros; no more of it than has been allowed."""

    def __init__(self, peers: Peers, to: int, header: bytearray, arrays: Sequence[Array]) -> None:
        num_bytes = sum(array.nbytes for array in arrays)
        parts = [memoryview(header), *map(as_bytes, arrays), _ZEROS[: padding(num_bytes)]]
        self.to = to
        self.sent_bytes = -HEADER_BYTES
        self._peers = peers
        self._parts = deque(part for part in parts if len(part))
        self._allowed_bytes = arrays[0].nbytes if arrays else 0
        self._total_bytes = num_bytes + padding(num_bytes)
        self._segment_bytes = peers.link(to).segment_bytes

    @property
    def stuck(self) -> bool:
        """Whether there is something that may go, so that only the link can be in the way."""
        return self.sent_bytes < min(self._allowed_bytes, self._total_bytes)

    def allow(self, num_bytes: int) -> None:
        self._allowed_bytes += num_bytes

    def allow_all(self) -> None:
        self._allowed_bytes = self._total_bytes

    def push(self) -> int:
        """Send a segment if it may go and the link takes it; return the number of bytes taken."""
        room = min(self._allowed_bytes - self.sent_bytes, self._segment_bytes)
        if room <= 0 or not self._parts:
            return 0
        part = self._parts[0]
        sent = self._peers.try_send(self.to, part[:room])
        if sent == len(part):
            self._parts.popleft()
        elif sent:
            self._parts[0] = part[sent:]
        self.sent_bytes += sent
        return sent

    def finish(self) -> None:
        """Wait until everything has been sent."""
        patience = Patience(self._peers)
        while self._parts:
            if self.push():
                patience.renew()
            else:
                patience.wait(to=self.to)


@final
class _Arrivals:
    """Waits for what comes in, and pushes what goes out meanwhile."""

    def __init__(self, peers: Peers, source: int, out: _Outgoing, swap: bool) -> None:
        self._peers = peers
        self._source = source
        self._out = out
        self._swap = swap
        self._payload_bytes = 0

    def next_payload(self, num_bytes: int) -> memoryview:
        """`next`, and in a swap only when the same stretch has been sent."""
        self._payload_bytes += num_bytes
        return self.next(num_bytes, self._payload_bytes if self._swap else 0)

    def next(self, num_bytes: int, after_bytes: int = 0) -> memoryview:
        """Return the next bytes in place, when they are there and ``after_bytes`` have gone out."""
        out, patience = self._out, Patience(self._peers)
        pushed = out.push()
        while True:
            view = self._peers.try_peek(self._source, num_bytes)
            if view is not None and out.sent_bytes >= after_bytes:
                return view
            if pushed:
                patience.renew()
            else:
                patience.wait(
                    to=out.to if out.stuck else None,
                    source=self._source if view is None else None,
                )
            pushed = out.push()

    def release(self, num_bytes: int) -> None:
        self._peers.release(self._source, num_bytes)


def _combine(target: Array, data: memoryview, piece: Piece) -> None:
    arrived: Array = np.frombuffer(data, target.dtype)
    if piece.ufunc is None:
        target[:] = arrived
    elif piece.first:
        piece.ufunc(arrived, target, out=target)
    else:
        piece.ufunc(target, arrived, out=target)


def _segments(pieces: Sequence[Piece], segment_bytes: int) -> Iterator[tuple[Array, Piece]]:
    for piece in pieces:
        step = segment_bytes // piece.array.itemsize
        for start in range(0, len(piece.array), step):
            yield piece.array[start : start + step], piece
