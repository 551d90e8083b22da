"""Ranks as threads of one process: the same algorithms over queues, for tests and local use."""

from __future__ import annotations

import threading
from collections import deque
from functools import partial

from .communicator import DEFAULT_TIMEOUT_SECS, Communicator
from .errors import LinkBroken
from .link import Bell, Health, Link
from .linked import linked_communicator
from .members import local_members

SEGMENT_BYTES = 1 << 20
CAPACITY_BYTES = 4 << 20


def threads(size: int, timeout_secs: float = DEFAULT_TIMEOUT_SECS) -> list[Communicator]:
    """Return the communicators of ``size`` ranks in this process, each for a thread of its own.

    They are for tests and for trying things out: the same algorithms and errors as between
    processes, over queues.

    Args:
        size: Number of ranks, at least 1.
        timeout_secs: How long a wait without progress may last.
    """
    ends = _all_pairs(size)
    notices = _Notices()
    return [
        linked_communicator(
            local_members(size),
            rank,
            ends[rank].__getitem__,
            health=_SharedHealth(notices, rank),
            timeout_secs=timeout_secs,
            spin_secs=0.0,
            short_spin_secs=0.0,
            on_close=partial(notices.left.add, rank),
        )
        for rank in range(size)
    ]


def in_process_link_pair(capacity_bytes: int = CAPACITY_BYTES) -> tuple[Link, Link]:
    """Return the two ends of a link within this process."""
    lock, bells = threading.Lock(), (Bell(), Bell())
    forth, back = _Pipe(capacity_bytes), _Pipe(capacity_bytes)
    first = _InProcessLink(forth, back, lock, bells)
    return first, _InProcessLink(back, forth, lock, bells[::-1])


def _all_pairs(size: int) -> list[dict[int, Link]]:
    ends: list[dict[int, Link]] = [{} for _ in range(size)]
    for low in range(size):
        for high in range(low + 1, size):
            ends[low][high], ends[high][low] = in_process_link_pair()
    return ends


class _Pipe:
    """Bytes on their way in one direction. Whoever touches it holds the link's condition."""

    def __init__(self, capacity_bytes: int) -> None:
        self.pieces: deque[memoryview] = deque()
        self.num_bytes = 0
        self.capacity_bytes = capacity_bytes
        self.closed = False

    def front(self, num_bytes: int) -> memoryview:
        """Return the first ``num_bytes`` (there are that many) as one view, joining if need be."""
        if len(self.pieces[0]) < num_bytes:
            joined = bytearray()
            while len(joined) < num_bytes:
                joined += self.pieces.popleft()
            self.pieces.appendleft(memoryview(joined))
        return self.pieces[0][:num_bytes]

    def drop(self, num_bytes: int) -> None:
        rest = self.pieces.popleft()[num_bytes:]
        if len(rest):
            self.pieces.appendleft(rest)
        self.num_bytes -= num_bytes


class _InProcessLink(Link):
    def __init__(
        self, outgoing: _Pipe, incoming: _Pipe, lock: threading.Lock, bells: tuple[Bell, ...]
    ) -> None:
        super().__init__(SEGMENT_BYTES)
        self._outgoing = outgoing
        self._incoming = incoming
        self._lock = lock
        self._bell, self._others_bell = bells
        self._wanted_bytes = 0

    def try_send(self, data: memoryview, *, more: bool = False) -> int:
        pipe = self._outgoing
        with self._lock:  # one lock for both directions and bells: no wake-up is missed
            if pipe.closed:
                raise LinkBroken("the link is closed")
            num_bytes = min(len(data), pipe.capacity_bytes - pipe.num_bytes)
            if num_bytes:
                pipe.pieces.append(memoryview(bytes(data[:num_bytes])))
                pipe.num_bytes += num_bytes
                self._others_bell.ring()
        return num_bytes

    def try_peek(self, num_bytes: int) -> memoryview | None:
        pipe = self._incoming
        with self._lock:
            if pipe.num_bytes >= num_bytes:
                return pipe.front(num_bytes)
            if pipe.closed:
                raise LinkBroken("the other end is closed")
            self._wanted_bytes = num_bytes
        return None

    def try_receive(self, target: memoryview) -> int:
        if self.try_peek(1) is None:
            return 0
        with self._lock:
            piece = self._incoming.pieces[0][: len(target)]
        target[: len(piece)] = piece
        self.release(len(piece))
        return len(piece)

    def release(self, num_bytes: int) -> None:
        with self._lock:
            self._incoming.drop(num_bytes)
            self._others_bell.ring()

    def begin_wait(self, *, to_send: bool, to_receive: bool) -> tuple[int, int] | None:
        out, incoming = self._outgoing, self._incoming
        with self._lock:
            if out.closed or (to_send and out.num_bytes < out.capacity_bytes):
                return None
            if to_receive and incoming.num_bytes >= self._wanted_bytes:
                return None
            return self._bell.begin_wait()

    def end_wait(self) -> None:
        with self._lock:
            self._bell.end_wait()

    def close(self) -> None:
        with self._lock:
            self._outgoing.closed = self._incoming.closed = True
            self._others_bell.ring()
            self._bell.close()


class _Notices:
    """What the ranks have told each other."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.first_lost: tuple[int, str] | None = None
        self.left: set[int] = set()


class _SharedHealth(Health):
    def __init__(self, notices: _Notices, rank: int) -> None:
        self._notices = notices
        self._rank = rank

    def last_heard(self, rank: int) -> float | None:
        return None

    def lost(self) -> tuple[int, str] | None:
        first = self._notices.first_lost
        return None if first is None or first[0] == self._rank else first

    def left(self, rank: int) -> bool:
        return rank in self._notices.left

    def announce(self, reason: str) -> None:
        with self._notices.lock:
            self._notices.first_lost = self._notices.first_lost or (self._rank, reason)

    def show_stacks(self, why: str) -> None:
        """All ranks are threads of this process."""
