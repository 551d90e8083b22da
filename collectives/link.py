"""The seam between algorithms and transports: a byte path to one peer, and news of the peers.

A transport writes a `Link` and, if it has a control channel, a `Health`. It moves bytes and reports
breakage; it does not wait, count time or know about collectives. All waiting is done in one place,
by the communicator, which thereby polls health and deadlines the same way over every transport.
"""

from __future__ import annotations

import os
import select
import time
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import final

from .errors import LinkTimeout

LinkKind = str
"""What a link is made of, by the name that options and messages use."""
DEFAULT_LINKS: tuple[LinkKind, ...] = ("shm", "tcp", "grpc")
ALL_LINKS: tuple[LinkKind, ...] = (*DEFAULT_LINKS, "mpi")
"""MPI is for networks on which it is faster than TCP, which only who is there can know."""

MAX_WAIT_SECS = 0.05
SMALL_SEND_BYTES = 64 << 10
MIN_SEGMENT_BYTES = 128 << 10
UNLIMITED_BYTES = 1 << 62


class Link(ABC):
    """One end of a two-way, ordered, reliable byte path to one peer.

    The path is a stream: what one `try_send` took need not arrive as one piece. One thread at a
    time uses an end; only `close` may come from another. What is under way is limited, but small
    sends do not depend on the peer: `SMALL_SEND_BYTES` can go before it takes anything.

    Attributes:
        segment_bytes: The most that `try_peek` is ever asked for, and the piece that this link
            moves best. A multiple of 64, at least `MIN_SEGMENT_BYTES`.
        swap_bytes: The longest array for which two ranks had better send each other the whole of it
            than halves back and forth. The bytes are the same; the one has no waiting in the
            middle, the other half the arithmetic.
        window_bytes: How far what is sent had better be ahead of what comes in meanwhile; at least
            a segment.
        spins: Whether a wait may poll before it sleeps; not where bytes come by threads of this
            process, which need the core.
    """

    def __init__(
        self,
        segment_bytes: int,
        swap_bytes: int = 1 << 20,
        window_bytes: int = UNLIMITED_BYTES,
        *,
        spins: bool = True,
    ) -> None:
        self.segment_bytes = segment_bytes
        self.swap_bytes = swap_bytes
        self.window_bytes = window_bytes
        self.spins = spins

    @abstractmethod
    def try_send(self, data: memoryview, *, more: bool = False) -> int:
        """Take as many leading bytes of ``data`` as can go now, and return how many.

        Does not wait. Bytes taken have been copied: the caller may change them on return.

        Args:
            data: Contiguous bytes (format "B"), not empty.
            more: Whether more follows at once: the other end need not wake up for these alone.

        Raises:
            LinkBroken: The other end is gone, or this end is closed.
        """

    @abstractmethod
    def try_peek(self, num_bytes: int) -> memoryview | None:
        """Return the next ``num_bytes`` in place, or None while not all of them have arrived.

        Does not wait. The view stays valid, and asking again gives the same bytes, until `release`.
        It starts at a 16-byte boundary if the bytes before it in the stream are a multiple of 16.
        Bytes that arrived before a break can still be read.

        Args:
            num_bytes: From 1 to `segment_bytes`.

        Raises:
            LinkBroken: They will never arrive: the other end is gone, or this end is closed.
        """

    @abstractmethod
    def try_receive(self, target: memoryview) -> int:
        """Move as many of the next bytes as have arrived to ``target``, and return how many.

        Does not wait. For bytes that are to lie there anyway: where it saves a copy it is made.

        Args:
            target: Where they go: contiguous bytes (format "B"), not empty.

        Raises:
            LinkBroken: None have arrived, and none ever will.
        """

    @abstractmethod
    def release(self, num_bytes: int) -> None:
        """Drop the next ``num_bytes``, which `try_peek` has shown: their memory may be reused."""

    @abstractmethod
    def begin_wait(self, *, to_send: bool, to_receive: bool) -> tuple[int, int] | None:
        """Ask to be woken when sending or receiving may get further; `end_wait` follows always.

        Called after `try_send` or `try_peek` was in vain. Being woken early or for nothing is fine,
        and so is a break (the next call reports it).

        Returns:
            The file descriptor and the events of `select.poll` that tell; None if there is nothing
            to wait for, because it may get further now or has broken. The descriptor stays open
            until `end_wait`, whoever closes the link meanwhile, which wakes up this end, too.
        """

    @abstractmethod
    def end_wait(self) -> None:
        """Wait no longer. Called once after each `begin_wait`, by the same thread."""

    @abstractmethod
    def close(self) -> None:
        """Close this end; the other end sees `LinkBroken` after reading what is under way.

        Never raises; may be called again, and from another thread.
        """

    @final
    def wait(self, timeout_secs: float, *, to_send: bool, to_receive: bool) -> None:
        """`wait_for_links`, for this one."""
        wait_for_links(timeout_secs, self if to_send else None, self if to_receive else None)

    @final
    def send(self, data: memoryview, deadline: float) -> None:
        """Send all of ``data`` (bytes) before ``deadline`` (a `time.monotonic()` value).

        Raises:
            LinkTimeout: The deadline passed.
            LinkBroken: The other end is gone, or this end is closed.
        """
        while len(data):
            sent = self.try_send(data)
            data = data[sent:]
            if not sent:
                self.wait(_left(deadline), to_send=True, to_receive=False)

    @final
    def receive_into(self, buffer: memoryview, deadline: float) -> None:
        """Fill ``buffer`` (bytes) before ``deadline`` (a `time.monotonic()` value).

        Raises:
            LinkTimeout: The deadline passed.
            LinkBroken: The other end is gone, or this end is closed.
        """
        while len(buffer):
            received = self.try_receive(buffer)
            buffer = buffer[received:]
            if not received:
                self.wait(_left(deadline), to_send=False, to_receive=True)


def wait_for_links(timeout_secs: float, to_send: Link | None, to_receive: Link | None) -> None:
    """Sleep until the link that took no more, or the one that had too little, gets further."""
    poll, begun = select.poll(), []
    try:
        for link in (to_receive, to_send):
            if link is None or link in begun:
                continue
            begun.append(link)
            watched = link.begin_wait(to_send=link is to_send, to_receive=link is to_receive)
            if watched is None:
                return
            poll.register(*watched)
        poll.poll(timeout_secs * 1000)
    finally:
        for link in begun:  # also where another link could get further at once
            link.end_wait()


@final
class Bell:
    """Wakes up a thread that sleeps in `wait_for_links`, for links whose news come from threads.

    Each method is called under the lock of the link that the bell belongs to: so nobody rings
    between the look at what has come and the sleep, and a descriptor that is polled stays open.
    """

    def __init__(self) -> None:
        self._ends: tuple[int, ...] = ()
        self._is_waited_for = False
        self._is_closed = False

    def begin_wait(self) -> tuple[int, int] | None:
        """`Link.begin_wait`, where nothing can get further now."""
        if self._is_closed:
            return None
        if not self._ends:
            self._ends = os.pipe()
            for end in self._ends:
                os.set_blocking(end, False)
        self._is_waited_for = True
        return self._ends[0], select.POLLIN

    def ring(self) -> None:
        """Wake up the thread that waits, if one does."""
        if self._is_waited_for:
            self._is_waited_for = False
            os.write(self._ends[1], b"\0")

    def end_wait(self) -> None:
        """`Link.end_wait`."""
        if self._ends and not self._is_waited_for:
            with suppress(BlockingIOError):
                os.read(self._ends[0], 64)
        self._is_waited_for = False
        if self._is_closed:
            self._release()

    def close(self) -> None:
        """Wake up the thread that waits, and let nobody wait any more."""
        self._is_closed = True
        if self._is_waited_for:
            self.ring()  # the descriptors are released when it has woken up
        else:
            self._release()

    def _release(self) -> None:
        ends, self._ends = self._ends, ()
        for end in ends:
            os.close(end)

    def __del__(self) -> None:
        self._release()


class Health(ABC):
    """What the control channel knows about the other ranks. Polled often: answers at once."""

    @abstractmethod
    def last_heard(self, rank: int) -> float | None:
        """Return how many seconds ago ``rank`` gave a sign of life, or None if unknown."""

    @abstractmethod
    def lost(self) -> tuple[int, str] | None:
        """Return the first rank that was lost and why, or None if none was.

        Lost is a rank that died, fell silent, or announced that it gives up; one that has left in
        order is not, for it may have done all that the others need.
        """

    @abstractmethod
    def left(self, rank: int) -> bool:
        """Whether ``rank`` has said goodbye."""

    @abstractmethod
    def announce(self, reason: str) -> None:
        """Tell all other ranks that this one gives up, and why. Does not wait, never raises."""

    @abstractmethod
    def show_stacks(self, why: str) -> None:
        """Let all other processes log what their threads do. Does not wait, never raises."""


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise LinkTimeout("nothing moved before the deadline")
    return min(left, MAX_WAIT_SECS)
