"""Links over a TCP connection of their own, for members on different hosts."""

from __future__ import annotations

import select
import socket
from typing import final

import numpy as np

from ..errors import LinkBroken
from ..link import Link
from .links import Expected, LinkEnds, Transport
from .sockets import CONNECT_SECS, Listener, WaitableSocket, pack_hello

SEGMENT_BYTES = 1 << 20

# Halves would have to wait for each other.
_SWAP_BYTES = 1 << 62
# Short messages are read in one go, whatever of them is asked for first.
_GREEDY_BYTES = 64 << 10
_ALIGNMENT = 64


@final
class TcpTransport(Transport):
    """A connection of its own to a free port of the end that was called."""

    def __init__(self) -> None:
        super().__init__("tcp", "TCP")

    def unavailable(self) -> str:
        return ""

    def listen(self, ends: LinkEnds, proof: str) -> Expected:
        family = socket.AF_INET6 if ":" in ends.ip else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.bind((ends.ip, 0))
            listening.listen(8)
        except OSError:
            listening.close()
            raise
        return _ExpectedConnection(listening, ends, proof)

    def connect(self, ends: LinkEnds, address: str, proof: str) -> Link:
        if ends.called is None or not (address.isascii() and address.isdigit()):
            raise LinkBroken(f"a port {address!r}")
        connected = socket.create_connection((ends.called.host, int(address)), CONNECT_SECS)
        try:
            connected.sendall(pack_hello(ends.caller, proof))
            return TcpLink(connected)
        except OSError:
            connected.close()
            raise


@final
class _ExpectedConnection(Expected):
    def __init__(self, listening: socket.socket, ends: LinkEnds, proof: str) -> None:
        super().__init__(str(listening.getsockname()[1]))
        self._ip = ends.caller_ip
        self._listener = Listener(listening, ends.caller, proof, self._is_from_caller)

    def accept(self, deadline: float) -> Link:
        connected, _ = self._listener.accept(deadline)
        return TcpLink(connected)

    def close(self) -> None:
        self._listener.close()

    def _is_from_caller(self, connection: socket.socket) -> bool:
        return bool(connection.getpeername()[0] == self._ip)


@final
class TcpLink(Link):
    """A link over a connected socket, which it owns.

    What arrives is read into one buffer, at a place that keeps the alignment of the stream; the
    buffer starts again from its beginning whenever everything has been released.
    """

    def __init__(self, connected: socket.socket) -> None:
        super().__init__(SEGMENT_BYTES, _SWAP_BYTES)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waitable = WaitableSocket(connected)
        self._socket = connected
        self._buffer = np.empty(2 * SEGMENT_BYTES, np.uint8).data
        self._start = 0
        self._stop = 0

    def try_send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LinkBroken(_reason(error)) from error

    def try_peek(self, num_bytes: int) -> memoryview | None:
        while self._stop - self._start < num_bytes:
            if not self._read(num_bytes):
                return None
        return self._buffer[self._start : self._start + num_bytes]

    def release(self, num_bytes: int) -> None:
        self._start += num_bytes
        if self._start == self._stop:
            self._start = self._stop = self._start % _ALIGNMENT

    def begin_wait(self, *, to_send: bool, to_receive: bool) -> tuple[int, int] | None:
        events = (select.POLLOUT if to_send else 0) | (select.POLLIN if to_receive else 0)
        return self._waitable.begin_wait(events)

    def end_wait(self) -> None:
        self._waitable.end_wait()

    def close(self) -> None:
        self._waitable.close()

    def _read(self, num_bytes: int) -> bool:
        """Read towards having ``num_bytes``; return whether anything came."""
        if self._start + num_bytes > len(self._buffer):
            self._move_to_front()
        stop = self._start + max(num_bytes, _GREEDY_BYTES)
        try:
            num_read = self._socket.recv_into(self._buffer[self._stop : stop])
        except BlockingIOError:
            return False
        except OSError as error:
            raise LinkBroken(_reason(error)) from error
        if num_read == 0:
            raise LinkBroken("it has closed its end")
        self._stop += num_read
        return True

    def _move_to_front(self) -> None:
        start = self._start % _ALIGNMENT
        stop = start + self._stop - self._start
        self._buffer[start:stop] = self._buffer[self._start : self._stop]
        self._start, self._stop = start, stop


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
