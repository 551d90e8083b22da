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

    Beyond the first array, or what the link had better have under way, nothing goes out before as
    many bytes have come in: this is how a ring passes on sums. With `swap` nothing is combined
    before as many bytes have gone out: this is how two ranks send each other the array that they
    reduce.
    """
    out = _Outgoing(peers, outgoing[0], header, outgoing[1])
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
        first_bytes = self._total_bytes if len(arrays) < 2 else arrays[0].nbytes
        self._allowed_bytes = min(first_bytes, self._link.window_bytes)

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
        sent = self._push_part()
        if sent and self.sent_bytes == 0:  # the header: what it announces goes along with it
            sent += self._push_part()
        return sent

    def _push_part(self) -> int:
        room = min(self._allowed_bytes - self.sent_bytes, self._link.segment_bytes)
        if room <= 0 or not self._parts:
            return 0
        part = self._parts[0]
        has_more = self.sent_bytes < 0 < self._allowed_bytes and len(self._parts) > 1
        try:
            sent = self._link.try_send(part[:room], more=has_more)
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
        """Take in all of it."""
        link, out = self._link, self._out
        self._peers.check_header(self._source, self._next(HEADER_BYTES), header)
        link.release(HEADER_BYTES)
        for piece in pieces:
            if piece.ufunc is None:
                self._fill(as_bytes(piece.array))
            else:
                self._combine(piece, piece.ufunc)
        if out is not None:
            out.allow_all()  # before the zeros: the peer may wait for ours before it sends its own
        if num_zeros := padding(sum(piece.array.nbytes for piece in pieces)):
            self._next(num_zeros)
            link.release(num_zeros)

    def _combine(self, piece: Piece, ufunc: np.ufunc) -> None:
        """Combine the next bytes with what is there, segment by segment."""
        num_bytes = 0
        for target in _segments(piece.array, self._link.segment_bytes):
            num_bytes += target.nbytes
            # In a swap the sum goes where the addend lies, which has to be on its way by then.
            view = self._next(target.nbytes, num_bytes if self._swap else 0)
            arrived: Array = np.frombuffer(view, target.dtype)
            ufunc(*((arrived, target) if piece.first else (target, arrived)), out=target)
            self._link.release(target.nbytes)
            self._allow(target.nbytes)

    def _fill(self, target: memoryview) -> None:
        """Let the next bytes replace what is there."""
        waiter = Waiter(self._peers)
        while target:
            pushed = self._out.push() if self._out else 0
            try:
                received = self._link.try_receive(target)
            except LinkBroken as error:
                self._peers.raise_lost(self._source, error)
            self._allow(received)
            target = target[received:]
            if target:
                self._wait(waiter, has_moved=pushed + received > 0)

    def _allow(self, num_bytes: int) -> None:
        """Let as much go out as has come in.

        In a ring the next outgoing array is what the piece that comes in has just completed, in the
        same order: what is allowed to go has always got its last value. And some rank can always go
        on. One that fills arrays passes on each byte that comes. One that combines them may hold
        back less than a segment, or than a piece, but it has sent ahead at least as much.
        """
        if self._out is not None:
            self._out.allow(num_bytes)

    def _next(self, num_bytes: int, after_bytes: int = 0) -> memoryview:
        """Return the next bytes in place, when they are there and ``after_bytes`` have gone out."""
        link, out, waiter = self._link, self._out, Waiter(self._peers)
        while True:
            pushed = out.push() if out else 0
            try:
                view = link.try_peek(num_bytes)
            except LinkBroken as error:
                self._peers.raise_lost(self._source, error)
            if view is not None and (out is None or out.sent_bytes >= after_bytes):
                return view
            self._wait(waiter, has_moved=pushed > 0, has_arrived=view is not None)

    def _wait(self, waiter: Waiter, *, has_moved: bool, has_arrived: bool = False) -> None:
        """Wait a little for what is to come and to go, unless something ``has_moved`` just now."""
        if has_moved:
            waiter.restart()
            return
        to = self._out.to if self._out is not None and self._out.is_stuck else None
        waiter.wait(to=to, source=None if has_arrived else self._source)


def _segments(array: Array, segment_bytes: int) -> Iterator[Array]:
    step = segment_bytes // array.itemsize
    for start in range(0, len(array), step):
        yield array[start : start + step]
