"""The backend over links: it agrees on the call with the other ranks and picks the algorithm."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import final

import numpy as np

from . import algorithms
from .agreement import Agreement
from .arrays import Array, part_bounds
from .backend import SMALL_BYTES, Backend, RepeatedAllReduce, part_of
from .calls import (
    MAX_PAYLOAD_BYTES,
    RECORD_BYTES,
    Kind,
    Signature,
    child_tag,
    pack_header,
    transfer_call,
)
from .communicator import DEFAULT_TIMEOUT_SECS, Communicator
from .errors import ClosedError, PeerLostError
from .executor import Executor
from .full_duplex import Piece, receive_message, send_message
from .link import Health, Link
from .members import Member
from .peers import DEFAULT_REPORT_SECS, Peers, World
from .shared_arrays import Meeting, SharedAllReduce, SharedArray, SharedArrays
from .small_all_reduce import SmallAllReduce

DEFAULT_SPIN_SECS = 200e-6
_NO_DTYPE = np.dtype(bool)
_LENGTH = struct.Struct("<q")
_COLOR_AND_KEY = struct.Struct("<qq")
# What ranks that meet add up: a number, for nothing at all need not wait for anybody.
_SIGN = np.zeros(1, np.int64)


def linked_communicator(
    members: Sequence[Member],
    rank: int,
    connect: Callable[[int], Link],
    *,
    health: Health | None = None,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    spin_secs: float = DEFAULT_SPIN_SECS,
    short_spin_secs: float = DEFAULT_SPIN_SECS,
    on_close: Callable[[], None] | None = None,
    report_secs: float = DEFAULT_REPORT_SECS,
) -> Communicator:
    """Return a communicator whose ranks are joined by links.

    Args:
        members: All ranks by name, in order of rank.
        rank: This rank.
        connect: Returns the link to another rank; called once for each rank that is needed. It may
            block while that rank is on its way, and raises `LinkTimeout` or `LinkBroken`.
        health: News of the other ranks, looked at by every wait.
        timeout_secs: How long a wait without progress may last.
        spin_secs: How long a wait polls before it sleeps; 0 where ranks share a processor.
        short_spin_secs: The same for what is short, giving way to others where ranks share one.
        on_close: Called once, after the links have been closed.
        report_secs: When a wait that goes on is first logged; then after twice that, and so on.
    """
    world = World(members, rank, connect, health, spin_secs, on_close, report_secs, short_spin_secs)
    peers = Peers(world, range(len(members)), timeout_secs)
    executor = Executor(f"paceline-collectives-{rank}")
    return Communicator(LinkedBackend(peers, executor, members, tag=0))


@final
class _Guard(AbstractContextManager[None]):
    """Around each call; a class, because a generator would take a microsecond of a short one."""

    def __init__(self, backend: LinkedBackend, peers: Peers) -> None:
        self._backend = backend
        self._peers = peers

    def __enter__(self) -> None:
        self._backend.begin_call()

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if error is not None:
            self._peers.fail(error)


@final
class _SmallMeeting(Meeting):
    """A short all_reduce, for its own sake."""

    def __init__(self, small: SmallAllReduce) -> None:
        self._small = small

    def run(self) -> None:
        self._small.run(_SIGN)

    def meet(self) -> None:
        self._small.reduce(_SIGN)


@final
class LinkedBackend(Backend):
    def __init__(
        self, peers: Peers, executor: Executor, members: Sequence[Member], tag: int
    ) -> None:
        super().__init__(members, peers.rank, peers.timeout_secs, executor)
        self._peers = peers
        self._tag = tag
        self._agreement = Agreement(peers, tag)
        self._small: dict[Signature, SmallAllReduce] = {}
        self._shared = SharedArrays(peers.rank)
        self._num_sent: Counter[int] = Counter()
        self._num_received: Counter[int] = Counter()
        self._num_splits = 0
        self._is_closed = False
        self._guard = _Guard(self, peers)

    @property
    def failure(self) -> str:
        world = self._peers.world
        if world.closed or self._is_closed:
            return "it is closed"
        lost = world.health.lost() if world.health else None
        if world.failure is None and lost is not None:
            return f"lost {world.members[lost[0]]}: {lost[1]}"
        return str(world.failure or "")

    def guard(self) -> AbstractContextManager[None]:
        return self._guard

    def begin_call(self) -> None:
        """Refuse a call after a failure."""
        self._peers.step, self._peers.timeout_secs = self.step, self.timeout_secs
        self._peers.world.check_usable()
        if self._is_closed:
            raise ClosedError("this communicator is closed")

    def all_reduce(self, array: Array, signature: Signature) -> RepeatedAllReduce | None:
        peers, num_bytes = self._peers, array.nbytes
        shared = self._shared.find(array) if num_bytes > SMALL_BYTES else None
        if shared is not None:
            return self._shared_all_reduce(array, signature._replace(shared=shared.number), shared)
        agreed = self._agreement.next(signature)
        header, ufunc = agreed.header, agreed.ufunc
        if self.size == 1:
            return None
        if num_bytes <= SMALL_BYTES:
            small = self._small.get(signature)
            if small is None:
                small = SmallAllReduce(self, peers, self._agreement, agreed, array, signature.op)
                self._small[signature] = small
            small.reduce(array)
            return small
        if self.size == 2 and num_bytes <= peers.link(1 - self.rank).swap_bytes:
            algorithms.swap_all_reduce(peers, header, array, ufunc)
        elif algorithms.prefers_halves(num_bytes, self.size):
            algorithms.halving_all_reduce(peers, header, array, ufunc)
        else:
            algorithms.ring_all_reduce(peers, header, array, ufunc)
        return None

    def _shared_all_reduce(
        self, array: Array, signature: Signature, shared: SharedArray
    ) -> RepeatedAllReduce:
        agreed = self._agreement.next(signature)
        small = self._small.get(signature)
        if small is None:
            peers, op = self._peers, signature.op
            small = SmallAllReduce(self, peers, self._agreement, agreed, _SIGN, op)
            self._small[signature] = small
        meeting, fail = _SmallMeeting(small), self._peers.fail
        call = SharedAllReduce(meeting, fail, shared, self.rank, array, signature.op)
        call.begin()
        return call

    def empty(self, length: int, signature: Signature) -> Array:
        header = self._agreement.next(signature).header
        if self.size == 1 or length * signature.dtype.itemsize <= SMALL_BYTES:
            return super().empty(length, signature)
        gather = partial(algorithms.gather_rows, self._peers, header)
        return self._shared.make(length, signature.dtype, gather)

    def reduce_scatter(self, array: Array, signature: Signature) -> Array:
        agreed = self._agreement.next(signature)
        if self.size > 1:
            algorithms.ring_reduce_scatter(self._peers, agreed.header, array, agreed.ufunc)
        start, stop = part_bounds(len(array), self.size)[self.rank]
        return array[start:stop].copy()

    def all_gather(self, array: Array, signature: Signature) -> list[Array]:
        header = self._agreement.next(signature).header
        rows = algorithms.gather_rows(self._peers, header, _LENGTH.pack(len(array)))
        lengths = [_LENGTH.unpack(row)[0] for row in rows]
        width = array.shape[1]
        self._check_lengths(lengths, width * array.itemsize)
        arrays: list[Array] = [np.empty((length, width), array.dtype) for length in lengths]
        arrays[self.rank][...] = array
        num_bytes = max(lengths) * width * array.itemsize
        if num_bytes > SMALL_BYTES and self.size > 1:
            algorithms.ring_all_gather(self._peers, header, [a.reshape(-1) for a in arrays])
        elif num_bytes:
            padded = array.tobytes().ljust(
                num_bytes, b"\0"
            )  # as if all were as long as the longest
            rows = algorithms.gather_rows(self._peers, header, padded)
            for gathered, row in zip(arrays, rows, strict=True):
                flat: Array = np.frombuffer(row, array.dtype, gathered.size)
                gathered[...] = flat.reshape(gathered.shape)
        return arrays

    def _check_lengths(self, lengths: Sequence[int], row_bytes: int) -> None:
        for rank, length in enumerate(lengths):
            if not 0 <= length * max(1, row_bytes) <= MAX_PAYLOAD_BYTES:
                who = self._peers.name(rank)
                raise PeerLostError(f"{who} announces an impossible array of {length} rows")

    def broadcast(self, array: Array, signature: Signature) -> None:
        header = self._agreement.next(signature).header
        if self.size > 1:
            algorithms.tree_broadcast(self._peers, header, array, signature.root)

    def barrier(self, signature: Signature) -> None:
        header = self._agreement.next(signature).header
        algorithms.gather_rows(self._peers, header, b"")

    def transfer(self, array: Array, name: str, shape: Sequence[int], source: int, to: int) -> None:
        # Only these two take part: the message says in full what it is, and has a number of theirs.
        call = self._peers.call = transfer_call(name, array.dtype, shape, source, to)
        is_sent = source == self.rank
        peer, numbers = (to, self._num_sent) if is_sent else (source, self._num_received)
        numbers[peer] += 1
        header = pack_header(Kind.DIRECT, self._tag, numbers[peer], call.digest, call.num_bytes)
        if is_sent:
            record: Array = np.frombuffer(call.record, np.uint8)
            send_message(self._peers, peer, header, [record, array])
        else:
            record = np.empty(RECORD_BYTES, np.uint8)
            receive_message(self._peers, peer, header, [Piece(record), Piece(array)])

    def split(self, color: int, key: int) -> Backend:
        header = self._agreement.next(Signature("split", "", _NO_DTYPE, (0,))).header
        rows = algorithms.gather_rows(self._peers, header, _COLOR_AND_KEY.pack(color, key))
        ranks = part_of([_COLOR_AND_KEY.unpack(row) for row in rows], self.rank)
        self._num_splits += 1
        world_ranks = [self._peers.ranks[rank] for rank in ranks]
        peers = Peers(self._peers.world, world_ranks, self.timeout_secs)
        members = [replace(self.members[rank], rank=i) for i, rank in enumerate(ranks)]
        tag = child_tag(self._tag, self._num_splits, color)
        return LinkedBackend(peers, self.executor, members, tag)

    def close(self, reason: str) -> None:
        self._is_closed = True
        if self._tag and not reason:
            return  # a part of a communicator: the whole goes on
        self._peers.world.close(reason)
        self.executor.stop()
        self._peers.world.release()
