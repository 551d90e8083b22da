"""Messages of any length: one goes out while another comes in, and is combined as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from .arrays import Array, as_bytes
from .calls import HEADER_BYTES, padding
from .errors import LinkBroken
from .peers import Peers, Waiter

Header: TypeAlias = "bytearray | memoryview"
# What is short goes in one piece: to wake up the peer twice takes longer than the copy.
_JOINED_BYTES = 32 << 10
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


def send_message(peers: Peers, to: int, header: Header, arrays: Sequence[Array]) -> None:
    out = _Outgoing(peers, to, header, arrays)
    out.allow_all()
    out.finish()


def receive_message(peers: Peers, source: int, header: Header, pieces: Sequence[Piece]) -> None:
    _Incoming(peers, source, None).receive(header, pieces)


def exchange_messages(
    peers: Peers,
    header: Header,
    outgoing: tuple[int, Sequence[Array]],
    incoming: tuple[int, Sequence[Piece]],
    *,
    swap: bool = False,
) -> None:
    """Send one message and receive one, both at once, combining what arrives segment by segment.

    Beyond the first array nothing goes out before as many bytes have come in: this is how a ring
    passes on sums. With `swap` everything goes out regardless, and nothing is combined before as
    many bytes have gone out: this is how two ranks send each other the array that they reduce.
    """
    out = _Outgoing(peers, outgoing[0], header, outgoing[1])
    if swap:
        out.allow_all()
    _Incoming(peers, incoming[0], out, swap).receive(header, incoming[1])
    out.finish()


@final
class _Outgoing:
    """A message on its way: header, arrays, zeros; no more of it than has been allowed."""

    def __init__(self, peers: Peers, to: int, header: Header, arrays: Sequence[Array]) -> None:
        num_bytes = sum(array.nbytes for array in arrays)
        parts = [memoryview(header), *map(as_bytes, arrays), _ZEROS[: padding(num_bytes)]]
        if len(arrays) == 1 and num_bytes <= _JOINED_BYTES:
            parts = [memoryview(b"".join(parts))]
        self.to = to
        self.sent_bytes = -HEADER_BYTES
        self._peers = peers
        self._link = peers.link(to)
        self._parts = deque(part for part in parts if len(part))
        self._total_bytes = num_bytes + padding(num_bytes)
        self._allowed_bytes = self._total_bytes if len(arrays) < 2 else arrays[0].nbytes

    @property
    def is_stuck(self) -> bool:
        """Whether there is something that may go, so that only the link can be in the way."""
        return self.sent_bytes < min(self._allowed_bytes, self._total_bytes)

    def allow(self, num_bytes: int) -> None:
        self._allowed_bytes += num_bytes

    def allow_all(self) -> None:
        self._allowed_bytes = self._total_bytes

    def push(self) -> int:
        """Send a segment if it may go and the link takes it; return the number of bytes taken."""
        room = min(self._allowed_bytes - self.sent_bytes, self._link.segment_bytes)
        if room <= 0 or not self._parts:
            return 0
        part = self._parts[0]
        try:
            sent = self._link.try_send(part[:room])
        except LinkBroken as error:
            self._peers.raise_lost(self.to, error)
        # A link has copied what it took: the array may be overwritten from there on.
        if sent == len(part):
            self._parts.popleft()
        elif sent:
            self._parts[0] = part[sent:]
        self.sent_bytes += sent
        return sent

    def finish(self) -> None:
        self.allow_all()
        waiter = Waiter(self._peers)
        while self._parts:
            if self.push():
                waiter.restart()
            else:
                waiter.wait(to=self.to)


@final
class _Incoming:
    """A message that comes in, during which another one goes out."""

    def __init__(
        self, peers: Peers, source: int, out: _Outgoing | None, swap: bool = False
    ) -> None:
        self._peers = peers
        self._source = source
        self._link = peers.link(source)
        self._out = out
        self._swap = swap

    def receive(self, header: Header, pieces: Sequence[Piece]) -> None:
        """Take in all of it, segment by segment."""
        link, out, num_bytes = self._link, self._out, 0
        self._peers.check_header(self._source, self._next(HEADER_BYTES), header)
        link.release(HEADER_BYTES)
        for target, piece in _segments(pieces, link.segment_bytes):
            num_bytes += target.nbytes
            # In a swap the sum goes where the addend lies, which has to be on its way by then.
            view = self._next(target.nbytes, num_bytes if self._swap else 0)
            _combine(target, view, piece)
            link.release(target.nbytes)
            if out is not None:
                # In a ring the next outgoing array is what this piece has just completed, in the
                # same order: what is allowed to go has always got its last value.
                out.allow(target.nbytes)
        if out is not None:
            out.allow_all()  # before the zeros: the peer may wait for ours before it sends its own
        if num_zeros := padding(num_bytes):
            self._next(num_zeros)
            link.release(num_zeros)

    def _next(self, num_bytes: int, after_bytes: int = 0) -> memoryview:
        """Return the next bytes in place, when they are there and ``after_bytes`` have gone out."""
        link, out = self._link, self._out
        waiter, pushed = Waiter(self._peers), out.push() if out else 0
        while True:
            try:
                view = link.try_peek(num_bytes)
            except LinkBroken as error:
                self._peers.raise_lost(self._source, error)
            if view is not None and (out is None or out.sent_bytes >= after_bytes):
                return view
            if pushed:
                waiter.restart()
            else:
                to = out.to if out is not None and out.is_stuck else None
                waiter.wait(to=to, source=self._source if view is None else None)
            pushed = out.push() if out else 0


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
