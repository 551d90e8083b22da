"""Collective algorithms over byte links, written once for every transport.

Long arrays go round a ring (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for
clusters of workstations", 2009): a reduce-scatter and an all-gather, here one continuous stream in
which a piece is sent on as soon as it has been added, so that adding and both directions of
transfer overlap. Short arrays are exchanged by recursive doubling (Thakur, Rabenseifner and Gropp,
"Optimization of collective communication operations in MPICH", 2005).

All ranks get the same bits: in the ring each element is combined at one place, one rank after the
other; in recursive doubling both partners combine the same two values, the lower rank's first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from .agreement import check_header, receive_header
from .arrays import as_bytes
from .communicator import Array, part_bounds
from .errors import LinkBroken
from .flow import Piece, flow
from .messages import HEADER_BYTES, padding
from .peers import Peers
from .plans import Plan
from .short import exchange


def double_all_reduce(peers: Peers, plan: Plan, array: Array) -> None:
    """Reduce a short ``array`` in place, in log2(n) exchanges of the whole of it.

    Where the number of ranks is no power of two, the ranks above it hand their array to one below
    and get the result back.
    """
    rank, size = peers.rank, peers.size
    num_active = 1 << (size.bit_length() - 1)
    if rank >= num_active:
        _send_small(peers, rank - num_active, plan, array)
        _receive_small(peers, rank - num_active, plan, array, None)
        return
    has_guest = rank + num_active < size
    if has_guest:
        _receive_small(peers, rank + num_active, plan, array, plan.ufunc)
    distance = 1
    while distance < num_active:
        _exchange_small(peers, rank ^ distance, plan, array)
        distance *= 2
    if has_guest:
        _send_small(peers, rank + num_active, plan, array)


def swap_all_reduce(peers: Peers, plan: Plan, array: Array) -> None:
    """Reduce ``array`` in place between two ranks, each sending the whole of it to the other."""
    peer = 1 - peers.rank
    piece = Piece(array, plan.ufunc, first=peer < peers.rank)
    flow(peers, plan.header, (peer, [array]), (peer, [piece]), swap=True)


def ring_all_reduce(peers: Peers, plan: Plan, array: Array) -> None:
    """Reduce ``array`` in place, sending and receiving 2 (n - 1) / n of it."""
    order = _ring_order(peers, array, 2 * peers.size - 1)
    num_reduced = peers.size - 1
    pieces = [Piece(p, plan.ufunc if i < num_reduced else None) for i, p in enumerate(order[1:])]
    _around(peers, plan, order[:-1], pieces)


def ring_reduce_scatter(peers: Peers, plan: Plan, array: Array) -> None:
    """Reduce this rank's part of ``array`` in place; the rest becomes undefined."""
    order = _ring_order(peers, array, peers.size)
    _around(peers, plan, order[:-1], [Piece(part, plan.ufunc) for part in order[1:]])


def ring_all_gather(peers: Peers, plan: Plan, arrays: Sequence[Array]) -> None:
    """Fill the arrays of the other ranks; each rank comes with its own filled."""
    order = [arrays[(peers.rank - i) % peers.size] for i in range(peers.size)]
    _around(peers, plan, order[:-1], [Piece(array) for array in order[1:]])


def tree_broadcast(peers: Peers, plan: Plan, array: Array, root: int) -> None:
    """Overwrite ``array`` by the root's, along a binomial tree, segment by segment."""
    parent, children = tree_neighbours(peers.rank, peers.size, root)
    if parent is not None:
        receive_header(peers, parent, plan.header)
    for child in children:
        peers.send(child, memoryview(plan.header))
    around = [*children] if parent is None else [parent, *children]
    segment_bytes = min(peers.link(peer).segment_bytes for peer in around)
    for segment in _segments(as_bytes(array), segment_bytes):
        if parent is not None:
            segment[:] = peers.peek(parent, len(segment))
            peers.release(parent, len(segment))
        for child in children:
            peers.send(child, segment)
    num_zeros = padding(array.nbytes)
    for child in children:
        peers.send(child, _ZEROS[:num_zeros])
    if parent is not None and num_zeros:
        peers.peek(parent, num_zeros)
        peers.release(parent, num_zeros)


def dissemination_barrier(peers: Peers, plan: Plan) -> None:
    """Return when all ranks have come, after log2(n) rounds (Hensgen, Finkel and Manber, 1988)."""
    distance = 1
    while distance < peers.size:
        peers.send((peers.rank + distance) % peers.size, memoryview(plan.header))
        receive_header(peers, (peers.rank - distance) % peers.size, plan.header)
        distance *= 2


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


_ZEROS = memoryview(bytes(HEADER_BYTES))


def _exchange_small(peers: Peers, partner: int, plan: Plan, array: Array) -> None:
    link = peers.link(partner)
    try:
        view = exchange(peers, partner, link, plan.fill(array))
        theirs: Array = np.frombuffer(view, plan.dtype, plan.length, HEADER_BYTES)
        if partner < peers.rank:
            plan.ufunc(theirs, array, out=array)
        else:
            plan.ufunc(array, theirs, out=array)
        link.release(len(view))
    except LinkBroken as error:
        peers.raise_lost(partner, error)


def _send_small(peers: Peers, peer: int, plan: Plan, array: Array) -> None:
    peers.send(peer, plan.fill(array))


def _receive_small(
    peers: Peers, peer: int, plan: Plan, array: Array, ufunc: np.ufunc | None
) -> None:
    check_header(peers, peer, peers.peek(peer, HEADER_BYTES), plan.header)
    view = peers.peek(peer, len(plan.message))
    theirs: Array = np.frombuffer(view, plan.dtype, plan.length, HEADER_BYTES)
    if ufunc is None:
        array[:] = theirs
    else:
        ufunc(array, theirs, out=array)
    peers.release(peer, len(view))


def _around(peers: Peers, plan: Plan, out: Sequence[Array], pieces: Sequence[Piece]) -> None:
    """Pass arrays round the ring: what comes in as one piece goes out as the next array."""
    right, left = (peers.rank + 1) % peers.size, (peers.rank - 1) % peers.size
    flow(peers, plan.header, (right, out), (left, pieces))


def _ring_order(peers: Peers, array: Array, count: int) -> list[Array]:
    """Return the parts of ``array`` in the order in which they pass this rank."""
    parts = [array[start:stop] for start, stop in part_bounds(len(array), peers.size)]
    return [parts[(peers.rank - 1 - i) % peers.size] for i in range(count)]


def _segments(data: memoryview, segment_bytes: int) -> Iterator[memoryview]:
    for start in range(0, len(data), segment_bytes):
        yield data[start : start + segment_bytes]
