"""A link between two ranks of an MPI communicator.

Nothing here blocks inside MPI, where no deadline would reach: messages are sent by Isend straight
from the caller's memory and received when they have arrived. MPI cannot be waited for without a
processor, so a wait looks again and again at first, and then less and less often.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any, final

import numpy as np

from ..errors import LinkBroken
from ..link import Link
from ..peers import give_way

SEGMENT_BYTES = 1 << 20
_EAGER_LOOKS = 30
_FIRST_PAUSE_SECS, _LONGEST_PAUSE_SECS = 50e-6, 0.5e-3
_CLOSING_SECS = 0.2


@final
class MpiLink(Link):
    """One end of a link. A message of no bytes ends the stream.

    Args:
        mpi: The module ``mpi4py.MPI``, initialised for calls from any thread.
        comm: A communicator.
        peer: The rank at the other end.
        tag: What tells this link's messages from all others between the two ranks.
    """

    def __init__(self, mpi: Any, comm: Any, peer: int, tag: int) -> None:
        super().__init__(SEGMENT_BYTES)
        self._mpi = mpi
        self._comm = comm
        self._peer = peer
        self._tag = tag
        self._sending: tuple[Any, memoryview] | None = None
        self._buffer = np.empty(2 * SEGMENT_BYTES, np.uint8).data
        self._start = 0
        self._stop = 0
        self._num_looks = 0
        self._has_ended = False
        self._is_closed = False

    def try_send(self, data: memoryview) -> int:
        self._check()
        if self._sending is None:
            piece = data[:SEGMENT_BYTES]
            request = self._comm.Isend((piece, self._mpi.BYTE), self._peer, self._tag)
            self._sending = (request, piece)
        # Whoever got 0 comes again with the same bytes, which have been on their way since.
        request, piece = self._sending
        if not request.Test():
            self._look_for_end()
            return 0
        self._sending = None
        self._num_looks = 0
        return len(piece)

    def try_peek(self, num_bytes: int) -> memoryview | None:
        while self._stop - self._start < num_bytes:
            self._check()
            if not self._read():
                return None
        return self._buffer[self._start : self._start + num_bytes]

    def release(self, num_bytes: int) -> None:
        self._start += num_bytes
        if self._start == self._stop:
            self._start = self._stop = 0

    def wait(self, timeout_secs: float, *, to_send: bool, to_receive: bool) -> None:
        deadline = time.monotonic() + timeout_secs
        while not (self._is_closed or self._has_ended) and time.monotonic() < deadline:
            if to_receive and self._comm.Iprobe(self._peer, self._tag):
                return
            if to_send and (self._sending is None or self._sending[0].Test()):
                return
            self._pause()
            if to_send:
                self._look_for_end()

    def close(self) -> None:
        if self._is_closed or self._mpi.Is_finalized():
            return
        self._is_closed = True
        with suppress(self._mpi.Exception):
            end = self._comm.Isend((bytearray(), self._mpi.BYTE), self._peer, self._tag)
            deadline = time.monotonic() + _CLOSING_SECS
            # What the other end is sending must be taken, or it would never be done with it.
            while not (self._has_ended and end.Test()) and time.monotonic() < deadline:
                if not self._drop():
                    time.sleep(_LONGEST_PAUSE_SECS)

    def _pause(self) -> None:
        """Give others the processor: just once at first, then for longer and longer."""
        self._num_looks += 1
        if self._num_looks <= _EAGER_LOOKS:
            give_way()
        else:
            doublings = min(self._num_looks - _EAGER_LOOKS - 1, 10)
            time.sleep(min(_FIRST_PAUSE_SECS * 2**doublings, _LONGEST_PAUSE_SECS))

    def _check(self) -> None:
        if self._is_closed:
            raise LinkBroken("this end is closed")
        if self._has_ended:
            raise LinkBroken("it has closed its end")

    def _look_for_end(self) -> None:
        """Take in what has come, as far as there is room: the end may be behind it."""
        while len(self._buffer) - (self._stop - self._start) >= SEGMENT_BYTES and self._read():
            pass

    def _read(self) -> bool:
        """Take in the next message; return whether there is one."""
        status = self._mpi.Status()
        message = self._comm.Improbe(self._peer, self._tag, status)
        if message is None:
            return False
        num_bytes = status.Get_count(self._mpi.BYTE)
        if self._stop + num_bytes > len(self._buffer):
            self._move_to_front()
        stop = self._stop + num_bytes
        message.Recv((self._buffer[self._stop : stop], self._mpi.BYTE))
        self._stop = stop
        self._num_looks = 0
        self._has_ended = self._has_ended or not num_bytes
        return True

    def _drop(self) -> bool:
        """Take in the next message and forget it; return whether there is one."""
        status = self._mpi.Status()
        message = self._comm.Improbe(self._peer, self._tag, status)
        if message is None:
            return False
        num_bytes = status.Get_count(self._mpi.BYTE)
        message.Recv((bytearray(num_bytes), self._mpi.BYTE))
        self._has_ended = self._has_ended or not num_bytes
        return True

    def _move_to_front(self) -> None:
        num_bytes = self._stop - self._start
        self._buffer[:num_bytes] = self._buffer[self._start : self._stop]
        self._start, self._stop = 0, num_bytes
