"""The two directions of a link over MPI: bytes in a ring, and messages that MPI makes of them."""

from __future__ import annotations

import socket
import struct
from collections import deque
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..errors import LinkBroken
from ..link import SMALL_SEND_BYTES
from .ring_buffer import RingBuffer

SEGMENT_BYTES = 512 << 10
# Of what is under way in one direction. Both ends have as much, at the same places: a message never
# goes round the end, and is received where it will be read.
RING_BYTES = 4 << 20
_MAX_MESSAGES = 16
_LEAST_BYTES = 256

WORD = struct.Struct("<I")

Request = Any
"""An ``mpi4py.MPI.Request``."""


@final
@dataclass(frozen=True)
class Path:
    """How the messages of a link go.

    Attributes:
        mpi: The module ``mpi4py.MPI``.
        comm: The ranks of the job.
        peer: The other one.
        send_tag: Of what goes there.
        receive_tag: Of what comes from there.
    """

    mpi: Any
    comm: Any
    peer: int
    send_tag: int
    receive_tag: int

    def send(self, data: np.ndarray, *, tells: bool) -> Request:
        """Begin to send ``data``; with ``tells`` it ends only when the other end receives it."""
        send = self.comm.Issend if tells else self.comm.Isend
        return send((data, self.mpi.BYTE), self.peer, self.send_tag)

    def receive(self, place: np.ndarray) -> Request:
        """Begin to receive the next message, which fills ``place``."""
        return self.comm.Irecv((place, self.mpi.BYTE), self.peer, self.receive_tag)


class _Direction:
    """What both directions of a link have: a ring, and messages between it and MPI, in order."""

    def __init__(self, path: Path, bell: socket.socket) -> None:
        self._path = path
        self._bell = bell
        self._ring = RingBuffer(np.empty(RING_BYTES, np.uint8).data, SEGMENT_BYTES)
        self._under_way: deque[tuple[int, Request]] = deque()
        self.done = 0
        """So many bytes of the stream MPI has done with."""

    @property
    def is_moving(self) -> bool:
        """Whether MPI has something of it under way."""
        return bool(self._under_way)

    def settle(self) -> bool:
        """Take note of what MPI has done with; return whether that is something."""
        before = self.done
        while self._under_way and self._under_way[0][1].Test():
            self.done, _ = self._under_way.popleft()
        return self.done > before

    def _place(self, start: int, num_bytes: int) -> np.ndarray:
        return self._ring.array[start % RING_BYTES :][:num_bytes]


@final
class Outgoing(_Direction):
    """What this end sends. Bytes wait in the ring while many messages are under way."""

    def __init__(self, path: Path, bell: socket.socket) -> None:
        super().__init__(path, bell)
        self._written = self._given = 0
        self._unmatched_bytes = 0

    @property
    def room(self) -> int:
        """So many bytes can be taken."""
        return RING_BYTES - (self._written - self.done)

    @property
    def is_given(self) -> bool:
        """Whether MPI has been given everything."""
        return self._given == self._written

    def take(self, data: memoryview) -> int:
        """Copy as much of ``data`` as there is room for, at most a segment."""
        num_bytes = min(len(data), self.room, SEGMENT_BYTES)
        if num_bytes:
            self._ring.write(self._written, data[:num_bytes])
            self._written += num_bytes
        return num_bytes

    def give(self) -> None:
        """Give MPI what it may have."""
        while not self.is_given and len(self._under_way) < _MAX_MESSAGES:
            left_bytes = min(self._written - self._given, SEGMENT_BYTES)
            num_bytes = min(left_bytes, RING_BYTES - self._given % RING_BYTES)
            # Announced first: where nobody listens any more, nothing is sent that nobody receives.
            # The other end reads this before MPI can be done with the message, so no more are
            # unread than a socket keeps.
            self._bell.sendall(WORD.pack(num_bytes))
            # A message that tells when it is received holds up the ring: so much is under way, and
            # no more. Short ones MPI copies, and they are over; one of them in a while must tell.
            # As messages overtake none, it tells of all before it.
            # The least that each counts keeps the unread announcements of tiny ones few, too.
            self._unmatched_bytes += max(num_bytes, _LEAST_BYTES)
            tells = self._unmatched_bytes > SMALL_SEND_BYTES
            request = self._path.send(self._place(self._given, num_bytes), tells=tells)
            if tells:
                self._unmatched_bytes = 0
            self._given += num_bytes
            self._under_way.append((self._given, request))


@final
class Incoming(_Direction):
    """What this end receives.

    Attributes:
        is_ended: Whether nothing more will be announced.
    """

    def __init__(self, path: Path, bell: socket.socket) -> None:
        super().__init__(path, bell)
        self.is_ended = False
        self._heard = b""
        self._announced: deque[int] = deque()
        self._asked = self._read = 0

    @property
    def num_bytes(self) -> int:
        """So many have arrived and were not released."""
        return self.done - self._read

    @property
    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return self.is_ended and not self._announced and not self._under_way

    def hear(self) -> None:
        """Take note of what was announced.

        Raises:
            LinkBroken: The other end does not keep to the protocol.
        """
        try:
            said = self._bell.recv(4096)
        except BlockingIOError:
            return
        self.is_ended = not said
        self._heard += said
        stop = len(self._heard) // WORD.size * WORD.size
        sizes = [size for (size,) in WORD.iter_unpack(self._heard[:stop])]
        self._heard = self._heard[stop:]
        if not all(0 < size <= SEGMENT_BYTES for size in sizes):
            raise LinkBroken("it announced what this protocol does not allow")
        self._announced.extend(sizes)

    def ask(self) -> None:
        """Ask MPI for what was announced and has room.

        Raises:
            LinkBroken: The other end does not keep to the protocol.
        """
        while self._announced:
            num_bytes = self._announced[0]
            if self._asked + num_bytes - self._read > RING_BYTES:
                return
            if self._asked % RING_BYTES + num_bytes > RING_BYTES:
                raise LinkBroken("it announced what this protocol does not allow")
            request = self._path.receive(self._place(self._asked, num_bytes))
            self._asked += self._announced.popleft()
            self._under_way.append((self._asked, request))

    def view(self, num_bytes: int) -> memoryview:
        """Return the next bytes, which have arrived."""
        return self._ring.view(self._read, num_bytes)

    def release(self, num_bytes: int) -> None:
        """Their place may be used again."""
        self._read += num_bytes
