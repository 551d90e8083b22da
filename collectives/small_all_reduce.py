"""All-reduces so short that what is done around them is most of their time.

A few ranks send each other everything, which takes one exchange; more of them double the number of
those whose arrays they have combined with each exchange (recursive doubling; Thakur, Rabenseifner
and Gropp, "Optimization of collective communication operations in MPICH", 2005). Ranks beyond the
largest power of two give their array to one below, and get the result back.

All ranks get the same bits: in each exchange all who take part combine the same values, in the
order of their ranks.
"""

from __future__ import annotations

from typing import final

import numpy as np

from .agreement import AgreedCall, Agreement
from .algorithms import MAX_RANKS_AT_ONCE
from .arrays import Array, Op
from .backend import Backend, RepeatedAllReduce
from .calls import HEADER_BYTES, padding, set_sequence
from .errors import LinkBroken
from .full_duplex import Piece, receive_message, send_message
from .link import Link
from .peers import Peers, Waiter


def partners(rank: int, size: int) -> list[list[int]]:
    """Return the ranks with which ``rank`` exchanges what it has, for each exchange.

    >>> partners(1, 3), partners(1, 8), partners(4, 5)
    ([[0, 2]], [[0], [3], [5]], [])
    """
    if size <= MAX_RANKS_AT_ONCE:
        return [[other for other in range(size) if other != rank]]
    num_active = _power_of_two(size)
    if rank >= num_active:
        return []
    return [[rank ^ 1 << i] for i in range(num_active.bit_length() - 1)]


def _power_of_two(size: int) -> int:
    return 1 << (size.bit_length() - 1)


@final
class SmallAllReduce(RepeatedAllReduce):
    """A short all_reduce, sent header and all from a buffer that is kept for the next one."""

    def __init__(
        self,
        backend: Backend,
        peers: Peers,
        agreement: Agreement,
        agreed: AgreedCall,
        array: Array,
        op: Op,
    ) -> None:
        super().__init__(array, op)
        num_bytes = HEADER_BYTES + array.nbytes + padding(array.nbytes)
        self._backend = backend
        self._peers = peers
        self._agreement = agreement
        self._agreed = agreed
        self._ufunc = agreed.ufunc
        self._dtype, self._length = array.dtype, len(array)
        self._rank = peers.rank
        self._message = memoryview(bytearray(num_bytes))
        self._message[:HEADER_BYTES] = agreed.header
        self._header = self._message[:HEADER_BYTES]
        self._payload: Array = np.frombuffer(self._message, array.dtype, len(array), HEADER_BYTES)
        self._exchanges = [
            [(peer, peers.link(peer)) for peer in group]
            for group in partners(peers.rank, peers.size)
        ]
        # The only other one, for whom a way straight to the exchange saves a tenth of the time.
        self._partner = self._exchanges[0][0] if peers.size == 2 else None
        is_at_once = peers.size <= MAX_RANKS_AT_ONCE
        num_active = peers.size if is_at_once else _power_of_two(peers.size)
        self._host = peers.rank - num_active if peers.rank >= num_active else None
        self._guest = peers.rank + num_active if peers.rank + num_active < peers.size else None

    def run(self, array: Array) -> None:
        peers, backend, partner = self._peers, self._backend, self._partner
        peers.step, peers.timeout_secs = backend.step, backend.timeout_secs
        if peers.world.closed or peers.world.failure is not None:
            peers.world.check_usable()  # raises; to ask it each time would take longer
        peers.call = self._agreed.call
        set_sequence(self._header, self._agreement.next_number())
        try:
            if partner is None:
                self._reduce(array)
            else:
                self._swap(*partner, array)
        except BaseException as error:
            peers.fail(error)
            raise

    def reduce(self, array: Array) -> None:
        """Reduce ``array`` in place; the call has its number already."""
        self._header[:] = self._agreed.header
        self._reduce(array)

    def _reduce(self, array: Array) -> None:
        peers = self._peers
        if self._host is not None:
            send_message(peers, self._host, self._header, [array])
            receive_message(peers, self._host, self._header, [Piece(array)])
            return
        if self._guest is not None:
            receive_message(peers, self._guest, self._header, [Piece(array, self._ufunc)])
        for group in self._exchanges:
            if len(group) == 1:
                self._swap(*group[0], array)
            else:
                self._exchange(group, array)
        if self._guest is not None:
            send_message(peers, self._guest, self._header, [array])

    def _swap(self, peer: int, link: Link, array: Array) -> None:
        """Combine ``array`` with that of one other: `_exchange` without its lists, in 3 µs."""
        message = self._message
        num_bytes = len(message)
        self._payload[:] = array
        try:
            num_sent = link.try_send(message)
            view = link.try_peek(num_bytes)
            if view is None or num_sent < num_bytes:
                view = self._wait(peer, link, message[num_sent:])
            if view[:HEADER_BYTES] != self._header:
                self._peers.check_header(peer, view[:HEADER_BYTES], self._header)
            theirs = np.frombuffer(view, self._dtype, self._length, HEADER_BYTES)
            if peer < self._rank:
                self._ufunc(theirs, array, out=array)
            else:
                self._ufunc(array, theirs, out=array)
            link.release(num_bytes)
        except LinkBroken as error:
            self._peers.raise_lost(peer, error)

    def _exchange(self, group: list[tuple[int, Link]], array: Array) -> None:
        """Combine ``array`` with those of a few others."""
        message, num_bytes, header = self._message, len(self._message), self._header
        # The peers may not have taken the last message yet: links copy what they take, so that
        # this buffer is free again as soon as `try_send` has returned.
        self._payload[:] = array
        operands: list[Array] = []
        unsent: dict[int, memoryview] = {}
        peer = self._rank
        try:
            for peer, link in group:
                num_sent = link.try_send(message)
                if num_sent < num_bytes:
                    unsent[peer] = message[num_sent:]
            for peer, link in group:
                view = link.try_peek(num_bytes)
                if view is None or unsent:
                    view = self._wait(peer, link, unsent.pop(peer, message[:0]))
                if view[:HEADER_BYTES] != header:
                    self._peers.check_header(peer, view[:HEADER_BYTES], header)
                operands.append(np.frombuffer(view, array.dtype, len(array), HEADER_BYTES))
            # Views of different links stay valid side by side until each is released. The own value
            # is read from the message, for the first result overwrites `array`.
            operands.insert(sum(peer < self._rank for peer, _ in group), self._payload)
            self._ufunc(operands[0], operands[1], out=array)
            for operand in operands[2:]:
                self._ufunc(array, operand, out=array)
            for _, link in group:
                link.release(num_bytes)
        except LinkBroken as error:
            self._peers.raise_lost(peer, error)

    def _wait(self, peer: int, link: Link, unsent: memoryview) -> memoryview:
        """Return the peer's message, when it has come and ours has gone out.

        Its header is looked at as soon as it comes: it may be all that does, if the peer is doing
        something else. All ranks wait for their peers in the same order, so that of those that wait
        two wait for each other.
        """
        waiter, has_header = Waiter(self._peers, is_short=True), False
        while True:
            waiter.wait(to=peer if unsent else None, source=peer)
            if unsent:
                unsent = unsent[link.try_send(unsent) :]
            view = link.try_peek(len(self._message) if has_header else HEADER_BYTES)
            if view is not None and not has_header:
                self._peers.check_header(peer, view, self._header)
                has_header = True
                view = link.try_peek(len(self._message))
            if view is not None and not unsent:
                return view
