"""Links through memory that two processes of one host share.

The memory has no name anywhere: the caller makes it (`sealed_memory.py`) and hands its descriptor
through a Unix socket, so a small /dev/shm is no limit. The socket stays open as a bell: a side that
goes to sleep says so in the memory and is woken by a byte; if a process dies, the socket's end
tells the other one at once.

Layout: one page of 64-bit words, then a ring of bytes for each direction. Each word is written by
one side only, except that the flags of a sleeper are cleared by whoever wakes it.
"""

from __future__ import annotations

import mmap
import os
import secrets
import select
import socket
import struct
import threading
from typing import NoReturn, final

from ..errors import LinkBroken
from ..link import Link
from ..sealed_memory import map_sealed_memory, new_sealed_memory, unavailable
from .links import Expected, LinkEnds, Transport
from .ring_buffer import RingBuffer
from .sockets import CONNECT_SECS, Listener, WaitableSocket, close_all, pack_hello

# Large pieces, for what a piece costs beside its bytes, four of which fit into a ring; a ring that
# stays in the cache.
SEGMENT_BYTES = 512 << 10
RING_BYTES = 2 << 20
# Copying costs as much as adding here, so halves bring nothing.
_SWAP_BYTES = 1 << 62

_PAGE_BYTES = 4096
_TOTAL_BYTES = _PAGE_BYTES + 2 * RING_BYTES

# Words of a direction, each on a cache line of its own.
_WRITTEN, _READ, _READER_SLEEPS, _WRITER_SLEEPS, _WRITER_CLOSED, _READER_CLOSED = range(0, 48, 8)
_WORDS_A_DIRECTION = 64

_CREDENTIALS = struct.Struct("3i")


@final
class SharedMemoryTransport(Transport):
    """Memory of the caller's, for two processes of one user on one host."""

    def __init__(self) -> None:
        super().__init__("shm", "shared memory")

    def unavailable(self) -> str:
        return unavailable()

    def listen(self, ends: LinkEnds, proof: str) -> Expected:
        name = f"paceline-{secrets.token_hex(16)}"
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind("\0" + name)
            listening.listen(8)
        except OSError:
            listening.close()
            raise
        return _ExpectedMemory(name, Listener(listening, ends.caller, proof, _is_same_user))

    def connect(self, ends: LinkEnds, address: str, proof: str) -> Link:
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        fd = -1
        try:
            connected.settimeout(CONNECT_SECS)
            connected.connect("\0" + address)
            fd = new_sealed_memory("paceline-link", _TOTAL_BYTES)
            socket.send_fds(connected, [pack_hello(ends.caller, proof)], [fd])
            return SharedMemoryLink(connected, mmap.mmap(fd, _TOTAL_BYTES), outgoing=0)
        except OSError:
            connected.close()
            raise
        finally:
            close_all([fd])


@final
class _ExpectedMemory(Expected):
    def __init__(self, name: str, listener: Listener) -> None:
        super().__init__(name)
        self._listener = listener

    def accept(self, deadline: float) -> Link:
        return accept_shared_memory(*self._listener.accept(deadline))

    def close(self) -> None:
        self._listener.close()


def accept_shared_memory(connected: socket.socket, fds: list[int]) -> Link:
    """Return the end of a link that was called, from what the caller has sent.

    Raises:
        LinkBroken: It has not sent memory of the right kind.
    """
    try:
        if len(fds) != 1:
            raise LinkBroken(f"{len(fds)} file descriptors instead of one")
        return SharedMemoryLink(connected, map_sealed_memory(fds[0], _TOTAL_BYTES), outgoing=1)
    except (OSError, LinkBroken) as error:
        connected.close()
        raise LinkBroken(f"cannot share memory: {error}") from error
    finally:
        close_all(fds)


@final
class SharedMemoryLink(Link):
    """One end of a link through shared memory.

    Args:
        bell: A connected socket, owned from here on.
        memory: `_TOTAL_BYTES` of it, zeros at first.
        outgoing: Which direction this end writes, 0 or 1.
    """

    def __init__(self, bell: socket.socket, memory: mmap.mmap, outgoing: int) -> None:
        super().__init__(SEGMENT_BYTES, _SWAP_BYTES)
        self._bell = WaitableSocket(bell)
        self._words = memoryview(memory)[:_PAGE_BYTES].cast("Q")
        self._out, self._in = (_ring(memory, direction) for direction in (outgoing, 1 - outgoing))
        # Where the words of the two directions begin.
        self._out_words = outgoing * _WORDS_A_DIRECTION
        self._in_words = (1 - outgoing) * _WORDS_A_DIRECTION
        self._in_written = self._in_words + _WRITTEN
        self._written = 0
        self._read = 0
        self._asked_bytes = 1
        self._broken = ""
        self._may_have_rung = False
        # To take it lets earlier stores be seen before later loads: it is a full fence on x86.
        self._fence = threading.Lock()

    def try_send(self, data: memoryview, *, more: bool = False) -> int:
        words = self._words
        if self._broken or words[self._out_words + _READER_CLOSED]:
            raise LinkBroken(self._broken or "it has closed its end")
        used_bytes = self._written - words[self._out_words + _READ]
        if not 0 <= used_bytes <= RING_BYTES:
            self._distrust()
        num_bytes = min(RING_BYTES - used_bytes, SEGMENT_BYTES)
        if num_bytes == 0:
            return 0
        if num_bytes < len(data):
            data = data[:num_bytes]
        num_bytes = len(data)
        self._out.write(self._written, data)
        self._written += num_bytes
        words[self._out_words + _WRITTEN] = self._written
        with self._fence:
            pass
        if words[self._out_words + _READER_SLEEPS]:
            self._ring_bell(self._out_words + _READER_SLEEPS)
        return num_bytes

    def try_peek(self, num_bytes: int) -> memoryview | None:
        if not num_bytes <= self._words[self._in_written] - self._read <= RING_BYTES:
            closed = self._broken or self._words[self._in_words + _WRITER_CLOSED]
            # Looked at once more: it may have written and then closed.
            if self._arrived_bytes() < num_bytes:
                if closed:
                    raise LinkBroken(self._broken or "it has closed its end")
                self._asked_bytes = num_bytes
                return None
        return self._in.view(self._read, num_bytes)

    def try_receive(self, target: memoryview) -> int:
        if self.try_peek(1) is None:
            return 0
        num_bytes = min(self._arrived_bytes(), len(target), SEGMENT_BYTES)
        self._in.read(self._read, target[:num_bytes])
        self.release(num_bytes)
        return num_bytes

    def release(self, num_bytes: int) -> None:
        self._read += num_bytes
        self._words[self._in_words + _READ] = self._read
        with self._fence:
            pass
        # A writer that sleeps has filled the ring. It is woken when half of that has been read: in
        # time, for the other half is still to be read, and not once for each segment.
        flag = self._in_words + _WRITER_SLEEPS
        if self._words[flag] and self._arrived_bytes() <= RING_BYTES // 2:
            self._ring_bell(flag)

    def begin_wait(self, *, to_send: bool, to_receive: bool) -> tuple[int, int] | None:
        words = self._words
        if to_receive:
            words[self._in_words + _READER_SLEEPS] = 1
        if to_send:
            words[self._out_words + _WRITER_SLEEPS] = 1
        # The other side writes its counter and then looks at our flag; we set the flag and then
        # look at its counter. With a fence in between on both sides, one of the two sees the other.
        with self._fence:
            pass
        watched = self._bell.begin_wait(select.POLLIN)
        if self._can_go_on(to_send, to_receive):
            return None
        self._may_have_rung = True
        return watched

    def end_wait(self) -> None:
        words = self._words
        if self._may_have_rung:
            self._may_have_rung = False
            self._hear()
        words[self._in_words + _READER_SLEEPS] = 0
        words[self._out_words + _WRITER_SLEEPS] = 0
        self._bell.end_wait()

    def close(self) -> None:
        self._broken = self._broken or "this end is closed"
        self._words[self._out_words + _WRITER_CLOSED] = 1
        self._words[self._in_words + _READER_CLOSED] = 1
        self._bell.close()

    def _arrived_bytes(self) -> int:
        num_bytes = self._words[self._in_words + _WRITTEN] - self._read
        if not 0 <= num_bytes <= RING_BYTES:
            self._distrust()
        return num_bytes

    def _distrust(self) -> NoReturn:
        """Do not believe the other side's counters beyond what can be."""
        self._broken = "its counters in shared memory make no sense"
        raise LinkBroken(self._broken)

    def _can_go_on(self, to_send: bool, to_receive: bool) -> bool:
        words = self._words
        if self._broken:
            return True
        if to_receive and (
            self._arrived_bytes() >= self._asked_bytes or words[self._in_words + _WRITER_CLOSED]
        ):
            return True
        return to_send and (
            self._written - words[self._out_words + _READ] <= RING_BYTES // 2
            or bool(words[self._out_words + _READER_CLOSED])
        )

    def _ring_bell(self, flag: int) -> None:
        """Wake the other side, which sleeps."""
        self._words[flag] = 0
        try:
            self._bell.socket.send(b"\0")
        except BlockingIOError:
            pass  # so many rings are under way that it will wake up
        except OSError:
            self._broken = self._broken or "its process has ended"

    def _hear(self) -> None:
        """Take up what the bell says; its end means that the other process is gone."""
        try:
            if self._bell.socket.recv(4096):
                return
        except BlockingIOError:
            return
        except OSError:
            pass
        self._broken = self._broken or "it has closed its end"


def _ring(memory: mmap.mmap, direction: int) -> RingBuffer:
    start = _PAGE_BYTES + direction * RING_BYTES
    return RingBuffer(memoryview(memory)[start : start + RING_BYTES], SEGMENT_BYTES)


def _is_same_user(connection: socket.socket) -> bool:
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(_CREDENTIALS.unpack(credentials)[1] == os.geteuid())
