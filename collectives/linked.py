"""The communicator over links: checks arguments, agrees on the call, picks the algorithm."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, final

import numpy as np

from . import algorithms
from .agreement import AgreedCall, Agreement
from .arrays import check_array, check_rank
from .calls import (
    ANY_LENGTH,
    MAX_PAYLOAD_BYTES,
    RECORD_BYTES,
    Call,
    Kind,
    child_tag,
    direct_call,
    pack_header,
)
from .communicator import DEFAULT_TIMEOUT_SECS, Array, Communicator, Handle, Op, part_bounds
from .errors import ClosedError, CollectiveError, PeerLostError
from .full_duplex import Piece, receive_message, send_message
from .link import Health, Link
from .members import Member
from .peers import DEFAULT_REPORT_SECS, Peers, World
from .runner import Runner
from .small_all_reduce import SMALL_BYTES, SmallAllReduce

DEFAULT_SPIN_SECS = 200e-6
_NO_DTYPE = np.dtype(bool)
_LENGTH = struct.Struct("<q")
_COLOR_AND_KEY = struct.Struct("<qq")


def linked_communicator(
    members: Sequence[Member],
    rank: int,
    connect: Callable[[int], Link],
    *,
    health: Health | None = None,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    spin_secs: float = DEFAULT_SPIN_SECS,
    on_close: Callable[[], None] | None = None,
    report_secs: float = DEFAULT_REPORT_SECS,
) -> LinkedCommunicator:
    """Return a communicator whose ranks are joined by links.

    Args:
        members: All ranks by name, in order of rank.
        rank: This rank.
        connect: Returns the link to another rank; called once for each rank that is needed. It may
            block while that rank is on its way, and raises `LinkTimeout` or `LinkBroken`.
        health: News of the other ranks, looked at by every wait.
        timeout_secs: How long a wait without progress may last.
        spin_secs: How long a wait polls before it sleeps; 0 where ranks share a processor.
        on_close: Called once, after the links have been closed.
        report_secs: When a wait that goes on is first logged; then after twice that, and so on.
    """
    world = World(members, rank, connect, health, spin_secs, on_close, report_secs)
    peers = Peers(world, range(len(members)), timeout_secs)
    runner = Runner(f"paceline-collectives-{rank}")
    return LinkedCommunicator(peers, runner, members, tag=0)


@final
class LinkedCommunicator(Communicator):
    """A communicator over links; made by `linked_communicator` and by `split`."""

    def __init__(self, peers: Peers, runner: Runner, members: Sequence[Member], tag: int) -> None:
        super().__init__(members, peers.rank, peers.timeout_secs)
        self._peers = peers
        self._runner = runner
        self._tag = tag
        self._agreement = Agreement(peers, tag)
        self._num_sent: Counter[int] = Counter()
        self._num_received: Counter[int] = Counter()
        self._num_splits = 0
        self._closed = False
        self._small: dict[str, SmallAllReduce] = {}

    @property
    def failure(self) -> str:
        world = self._peers.world
        if world.closed or self._closed:
            return "it is closed"
        lost = world.health.lost() if world.health else None
        if world.failure is None and lost is not None:
            return f"lost {world.members[lost[0]]}: {lost[1]}"
        return str(world.failure or "")

    def all_reduce(self, array: Array, name: str, op: Op = Op.SUM) -> None:
        small = self._small.get(name)
        if (
            small is None
            or self._runner.last is not None
            or self._peers.world.failure is not None
            or not small.is_for(array, op)
        ):
            check_array(array, name)
            self._run(self._all_reduce, array, name, op)
            return
        self._peers.step, self._peers.timeout_secs = self.step, self.timeout_secs
        try:
            small.repeat(array)
        except BaseException as error:
            self._fail(error)
            raise

    def start_all_reduce(self, array: Array, name: str, op: Op = Op.SUM) -> Handle:
        check_array(array, name)
        action = partial(self._guarded, self.step, self._all_reduce, array, name, op)
        return self._runner.start(action, at_once=self.overlaps)

    def reduce_scatter(self, array: Array, name: str, op: Op = Op.SUM) -> Array:
        check_array(array, name)
        self._run(self._reduce_scatter, array, name, op)
        start, stop = part_bounds(len(array), self.size)[self.rank]
        return array[start:stop].copy()

    def all_gather(self, array: Array, name: str) -> list[Array]:
        check_array(array, name, writeable=False)
        arrays: list[Array] = []
        self._run(self._all_gather, array, name, arrays)
        return arrays

    def broadcast(self, array: Array, name: str, root: int = 0) -> None:
        check_array(array, name)
        check_rank(root, "root", self.size)
        self._run(self._broadcast, array, name, root)

    def send(self, array: Array, name: str, to: int) -> None:
        check_array(array, name, writeable=False)
        check_rank(to, "to", self.size, other_than=self.rank)
        self._run(self._send, array, name, to)

    def receive(self, array: Array, name: str, source: int) -> None:
        check_array(array, name)
        check_rank(source, "source", self.size, other_than=self.rank)
        self._run(self._receive, array, name, source)

    def barrier(self, name: str) -> None:
        self._run(self._barrier, name)

    def split(self, color: int, key: int) -> Communicator:
        records: list[bytes] = []
        self._run(self._gather_colors, color, key, records)
        pairs = [_COLOR_AND_KEY.unpack(record) for record in records]
        ranks = [rank for rank in range(self.size) if pairs[rank][0] == color]
        ranks.sort(key=lambda rank: (pairs[rank][1], rank))
        self._num_splits += 1
        world_ranks = [self._peers.ranks[rank] for rank in ranks]
        peers = Peers(self._peers.world, world_ranks, self.timeout_secs)
        members = [replace(self.members[r], rank=i) for i, r in enumerate(ranks)]
        tag = child_tag(self._tag, self._num_splits, color)
        part = LinkedCommunicator(peers, self._runner, members, tag)
        part.overlaps = self.overlaps
        return part

    def close(self, reason: str = "") -> None:
        self._closed = True
        self._small.clear()
        if self._tag and not reason:
            return  # a part of a communicator: the whole goes on
        self._peers.world.close(reason)
        self._runner.stop()
        self._peers.world.release()

    def _run(self, action: Callable[..., None], *arguments: Any) -> None:
        """Do ``action`` here and now, or behind what has been started."""
        if self._runner.idle:
            self._guarded(self.step, action, *arguments)
        else:
            task = partial(self._guarded, self.step, action, *arguments)
            self._runner.start(task, at_once=self.overlaps).wait()

    def _guarded(self, step: int | None, action: Callable[..., None], *arguments: Any) -> None:
        world, self._peers.step = self._peers.world, step
        self._peers.timeout_secs = self.timeout_secs
        world.check_usable()
        if self._closed:
            raise ClosedError("this communicator is closed")
        try:
            action(*arguments)
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        """Note an error after which nobody knows how much of a message has gone out."""
        if not isinstance(error, CollectiveError):
            what = f"{type(error).__name__}: {error}"
            error = CollectiveError(f"{self._peers.describe()} was interrupted by {what}")
        self._peers.world.fail(error)

    def _all_reduce(self, array: Array, name: str, op: Op) -> None:
        peers, num_bytes = self._peers, array.nbytes
        agreed = self._agreement.next("all_reduce", name, array.dtype, len(array), op)
        header, ufunc = agreed.header, agreed.ufunc
        if self.size == 1:
            return
        if num_bytes <= SMALL_BYTES:
            self._small_all_reduce(agreed, array, name, op)
        elif self.size == 2 and num_bytes <= peers.link(1 - self.rank).swap_bytes:
            algorithms.swap_all_reduce(peers, header, array, ufunc)
        elif algorithms.prefers_halves(num_bytes, self.size):
            algorithms.halving_all_reduce(peers, header, array, ufunc)
        else:
            algorithms.ring_all_reduce(peers, header, array, ufunc)

    def _small_all_reduce(self, agreed: AgreedCall, array: Array, name: str, op: Op) -> None:
        """Reduce a short array, and make ready for the same call to come again."""
        small = self._small.get(name)
        if small is None or small.agreed is not agreed:
            small = SmallAllReduce(self._peers, self._agreement, agreed, array, op)
            self._small[name] = small
        small.remember(array)
        small.run(array)

    def _reduce_scatter(self, array: Array, name: str, op: Op) -> None:
        agreed = self._agreement.next("reduce_scatter", name, array.dtype, len(array), op)
        if self.size > 1:
            algorithms.ring_reduce_scatter(self._peers, agreed.header, array, agreed.ufunc)

    def _all_gather(self, array: Array, name: str, arrays: list[Array]) -> None:
        header = self._agreement.next("all_gather", name, array.dtype, ANY_LENGTH).header
        rows = algorithms.gather_rows(self._peers, header, _LENGTH.pack(len(array)))
        lengths = [_LENGTH.unpack(row)[0] for row in rows]
        self._check_lengths(lengths, array.itemsize)
        num_bytes = max(lengths) * array.itemsize
        if num_bytes <= SMALL_BYTES:  # all at once, as if all were as long as the longest
            row = array.tobytes().ljust(num_bytes, b"\0")
            rows = algorithms.gather_rows(self._peers, header, row)
            pairs = zip(rows, lengths, strict=True)
            arrays += [np.frombuffer(bytearray(r), array.dtype)[:length] for r, length in pairs]
            return
        arrays += [np.empty(length, array.dtype) for length in lengths]
        arrays[self.rank][:] = array
        if self.size > 1:
            algorithms.ring_all_gather(self._peers, header, arrays)

    def _check_lengths(self, lengths: Sequence[int], itemsize: int) -> None:
        for rank, length in enumerate(lengths):
            if not 0 <= length * itemsize <= MAX_PAYLOAD_BYTES:
                who = self._peers.name(rank)
                raise PeerLostError(f"{who} announces an impossible array of {length} elements")

    def _broadcast(self, array: Array, name: str, root: int) -> None:
        agreed = self._agreement.next("broadcast", name, array.dtype, len(array), root=root)
        if self.size > 1:
            algorithms.tree_broadcast(self._peers, agreed.header, array, root)

    def _barrier(self, name: str) -> None:
        agreed = self._agreement.next("barrier", name, _NO_DTYPE, 0)
        algorithms.gather_rows(self._peers, agreed.header, b"")

    def _send(self, array: Array, name: str, to: int) -> None:
        """Only two ranks take part, so the message says in full what it is."""
        self._num_sent[to] += 1
        call = self._peers.call = direct_call(name, array.dtype, len(array), self.rank, to)
        header = self._direct_header(call, self._num_sent[to])
        record: Array = np.frombuffer(call.record, np.uint8)
        send_message(self._peers, to, header, [record, array])

    def _receive(self, array: Array, name: str, source: int) -> None:
        self._num_received[source] += 1
        call = self._peers.call = direct_call(name, array.dtype, len(array), source, self.rank)
        header = self._direct_header(call, self._num_received[source])
        record = np.empty(RECORD_BYTES, np.uint8)
        receive_message(self._peers, source, header, [Piece(record), Piece(array)])

    def _direct_header(self, call: Call, number: int) -> bytearray:
        return pack_header(Kind.DIRECT, self._tag, number, call.digest, call.num_bytes)

    def _gather_colors(self, color: int, key: int, rows: list[bytes]) -> None:
        header = self._agreement.next("split", "", _NO_DTYPE, 0).header
        rows += algorithms.gather_rows(self._peers, header, _COLOR_AND_KEY.pack(color, key))
