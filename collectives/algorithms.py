"""Collective algorithms over byte links, written once for every transport.

Long arrays go round a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", 2009): a reduce-scatter and an all-gather, here one continuous stream in
which a piece is sent on as soon as it has been added, so that adding and both directions of
transfer overlap. Where the ring has too many hops for the length of the array, halves are exchanged
instead (Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in
MPICH", 2005). Short arrays have a file of their own, `small_all_reduce`.

All ranks get the same bits: each element is combined at one place, and copied from there.

Whatever the algorithm, a rank talks only to ranks whose number differs from its own by a power of
two, modulo the number of ranks: a rank of n needs at most 2 log2(n) links.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .arrays import Array, as_bytes, part_bounds
from .calls import HEADER_BYTES, padding
from .full_duplex import Piece, exchange_messages, receive_message, send_message
from .peers import Peers

# What a link moves in the time of a further hop of a ring, and of an exchange of halves, for which
# both ranks have to have come. Measured over shared memory with up to 8 ranks.
_HOP_BYTES, _EXCHANGE_BYTES = 16 << 10, 64 << 10
# So many ranks send each other short messages all at once. Four would wait once less for it and
# send one message more each, which takes longer where they share two cores.
MAX_RANKS_AT_ONCE = 3
_ZEROS = memoryview(bytes(HEADER_BYTES))


def prefers_halves(num_bytes: int, size: int) -> bool:
    """Whether an array of so many bytes is reduced by halves, and not round a ring.

    Both move 2 (n - 1) / n of the array. The ring takes 2 (n - 1) hops, halves take 2 log2(n)
    exchanges, and where n is no power of two further ones of the whole array. Parts that take
    longer than a hop hide it: then nothing is faster than the ring.
    """
    num_halvings = size.bit_length() - 1
    has_guests = size != 1 << num_halvings
    ring_bytes = 2 * (size - 1) * _HOP_BYTES
    halves_bytes = 2 * num_halvings * _EXCHANGE_BYTES
    halves_bytes += 2 * (num_bytes + _EXCHANGE_BYTES) if has_guests else 0
    return halves_bytes < ring_bytes and num_bytes <= size * _EXCHANGE_BYTES


def swap_all_reduce(peers: Peers, header: bytearray, array: Array, ufunc: np.ufunc) -> None:
    """Reduce ``array`` in place between two ranks, each sending the whole of it to the other."""
    peer = 1 - peers.rank
    piece = Piece(array, ufunc, first=peer < peers.rank)
    exchange_messages(peers, header, (peer, [array]), (peer, [piece]), swap=True)


def ring_all_reduce(peers: Peers, header: bytearray, array: Array, ufunc: np.ufunc) -> None:
    """Reduce ``array`` in place, sending and receiving 2 (n - 1) / n of it.

    Launchers number the ranks of a host one after the other, so each host sends and receives that
    much once, however many ranks it has: going round within each host first would save nothing.
    """
    order = _ring_order(peers, array, 2 * peers.size - 1)
    num_reduced = peers.size - 1
    pieces = [Piece(p, ufunc if i < num_reduced else None) for i, p in enumerate(order[1:])]
    _around(peers, header, order[:-1], pieces)


def halving_all_reduce(peers: Peers, header: bytearray, array: Array, ufunc: np.ufunc) -> None:
    """Reduce ``array`` in place by exchanging halves, halves of halves and so on, and back.

    Near ranks come first, which are mostly of one host: what goes between hosts is then the smaller
    part, as in a hierarchy of hosts and ranks. Ranks beyond the largest power of two give their
    array to one below, and get the result back.
    """
    rank, num_active = peers.rank, 1 << (peers.size.bit_length() - 1)
    if rank >= num_active:
        send_message(peers, rank - num_active, header, [array])
        receive_message(peers, rank - num_active, header, [Piece(array)])
        return
    guest = rank + num_active if rank + num_active < peers.size else None
    if guest is not None:
        receive_message(peers, guest, header, [Piece(array, ufunc)])
    start, stop, halvings = 0, len(array), []
    for bit in range(num_active.bit_length() - 1):
        peer, middle = rank ^ 1 << bit, (start + stop) // 2
        lower, upper = array[start:middle], array[middle:stop]
        mine, theirs = (upper, lower) if rank & 1 << bit else (lower, upper)
        start, stop = (middle, stop) if rank & 1 << bit else (start, middle)
        exchange_messages(peers, header, (peer, [theirs]), (peer, [Piece(mine, ufunc)]))
        halvings.append((peer, mine, theirs))
    for peer, mine, theirs in reversed(halvings):
        exchange_messages(peers, header, (peer, [mine]), (peer, [Piece(theirs)]))
    if guest is not None:
        send_message(peers, guest, header, [array])


def ring_reduce_scatter(peers: Peers, header: bytearray, array: Array, ufunc: np.ufunc) -> None:
    """Reduce this rank's part of ``array`` in place; the rest becomes undefined."""
    order = _ring_order(peers, array, peers.size)
    _around(peers, header, order[:-1], [Piece(part, ufunc) for part in order[1:]])


def ring_all_gather(peers: Peers, header: bytearray, arrays: Sequence[Array]) -> None:
    """Fill the arrays of the other ranks; each rank comes with its own filled."""
    order = [arrays[(peers.rank - i) % peers.size] for i in range(peers.size)]
    _around(peers, header, order[:-1], [Piece(array) for array in order[1:]])


def gather_rows(peers: Peers, header: bytearray, row: bytes) -> list[bytes]:
    """Return the equally long ``row`` of each rank, in log2(n) exchanges; in one of few ranks.

    Each time a rank passes on all that it has to one twice as far (Bruck et al., "Efficient
    algorithms for all-to-all communications in multiport message-passing systems", 1997). Rows of
    no bytes are a barrier: who has heard of all ranks knows that all have come (Hensgen, Finkel and
    Manber, "Two algorithms for barrier synchronization", 1988).
    """
    rank, size, width = peers.rank, peers.size, len(row)
    table = np.zeros((size, width), np.uint8)  # row i is that of rank - i
    table[0] = np.array(bytearray(row), np.uint8)
    num_known = 1
    if size <= MAX_RANKS_AT_ONCE:  # as many messages, and all are waited for at once
        others = [(i, (rank - i) % size) for i in range(1, size)]
        for _, other in others:  # goes before the peer takes anything, for it is short
            send_message(peers, other, header, [table[0]])
        for i, other in others:
            receive_message(peers, other, header, [Piece(table[i])])
        num_known = size
    while num_known < size:
        count = min(num_known, size - num_known)
        known, unknown = table[:count], table[num_known : num_known + count]
        to, source = (rank + num_known) % size, (rank - num_known) % size
        arriving = Piece(unknown.reshape(-1))
        exchange_messages(peers, header, (to, [known.reshape(-1)]), (source, [arriving]))
        num_known += count
    return [table[(rank - other) % size].tobytes() for other in range(size)]


def tree_broadcast(peers: Peers, header: bytearray, array: Array, root: int) -> None:
    """Overwrite ``array`` by the root's, along a binomial tree, segment by segment."""
    parent, children = tree_neighbours(peers.rank, peers.size, root)
    if parent is not None:
        peers.check_header(parent, peers.peek(parent, HEADER_BYTES), header)
        peers.link(parent).release(HEADER_BYTES)
    for child in children:
        peers.send(child, memoryview(header))
    around = [*children] if parent is None else [parent, *children]
    segment_bytes = min(peers.link(peer).segment_bytes for peer in around)
    for segment in _segments(as_bytes(array), segment_bytes):
        if parent is not None:
            segment[:] = peers.peek(parent, len(segment))
            peers.link(parent).release(len(segment))
        for child in children:
            peers.send(child, segment)
    num_zeros = padding(array.nbytes)
    for child in children:
        peers.send(child, _ZEROS[:num_zeros])
    if parent is not None and num_zeros:
        peers.peek(parent, num_zeros)
        peers.link(parent).release(num_zeros)


def tree_neighbours(rank: int, size: int, root: int) -> tuple[int | None, list[int]]:
    """Return the parent (None at the root) and the children in a binomial tree.

    >>> tree_neighbours(0, 5, root=0), tree_neighbours(2, 5, root=0)
    ((None, [4, 2, 1]), (0, [3]))
    """
    position = (rank - root) % size
    span = position & -position or 1 << (size - 1).bit_length()
    parent = None if position == 0 else (position - span + root) % size
    steps = (1 << i for i in reversed(range(span.bit_length() - 1)))
    return parent, [(position + s + root) % size for s in steps if position + s < size]


def _around(peers: Peers, header: bytearray, out: Sequence[Array], pieces: Sequence[Piece]) -> None:
    """Pass arrays round the ring: what comes in as one piece goes out as the next array."""
    right, left = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size
    exchange_messages(peers, header, (right, out), (left, pieces))


def _ring_order(peers: Peers, array: Array, count: int) -> list[Array]:
    """Return the parts of ``array`` in the order in which they pass this rank."""
    parts = [array[start:stop] for start, stop in part_bounds(len(array), peers.size)]
    return [parts[(peers.rank - 1 - i) % peers.size] for i in range(count)]


def _segments(data: memoryview, segment_bytes: int) -> Iterator[memoryview]:
    for start in range(0, len(data), segment_bytes):
        yield data[start : start + segment_bytes]
