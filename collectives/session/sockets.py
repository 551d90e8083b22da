"""Links over a TCP connection of their own, and what all links over sockets share.

A caller shows who it is by a hello of fixed size, before anything else is read:

    offset  bytes
         0      4   magic
         4      4   protocol version
         8      8   rank of the caller
        16     32   ticket, told over the control channel
"""

from __future__ import annotations

import contextlib
import hmac
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import final

import numpy as np

from ..errors import LinkBroken, LinkTimeout
from ..link import UNLIMITED_BYTES, Link
from .frames import PROTOCOL_VERSION
from .links import TICKET_BYTES, Expected, LinkEnds, Transport

CONNECT_SECS = 5.0

_MAGIC = b"PLDL"
_HELLO = struct.Struct(f"<4sIQ{TICKET_BYTES}s")
# More who have connected and not shown who they are do not wait at the same time.
_MAX_CALLERS = 16

# Between processes of one host a segment goes from cache to cache if no more than that is under
# way: 1 MiB takes half as long as with two. Elsewhere the network is to be kept busy.
SEGMENT_BYTES = 256 << 10
# Halves would have to wait for each other.
_SWAP_BYTES = 256 << 10
# Short messages are read in one go, whatever of them is asked for first.
_GREEDY_BYTES = 64 << 10
_ALIGNMENT = 64
_MORE = getattr(socket, "MSG_MORE", 0)


def pack_hello(rank: int, ticket: str) -> bytes:
    """Return the hello of ``rank``; ``ticket`` is in hexadecimal."""
    return _HELLO.pack(_MAGIC, PROTOCOL_VERSION, rank, bytes.fromhex(ticket))


def check_hello(data: bytes, rank: int, ticket: str) -> None:
    """Check that ``data`` is the hello of ``rank`` with that ticket.

    Raises:
        LinkBroken: It is not.
    """
    if len(data) != _HELLO.size:
        raise LinkBroken(f"a hello of {len(data)} bytes instead of {_HELLO.size}")
    magic, version, caller, shown = _HELLO.unpack(data)
    if magic != _MAGIC or version != PROTOCOL_VERSION:
        raise LinkBroken("no hello of this protocol")
    if caller != rank or not hmac.compare_digest(shown, bytes.fromhex(ticket)):
        raise LinkBroken("a hello with a wrong ticket")


@final
class Listener:
    """A listening socket at which one caller is expected; all others are sent away.

    Args:
        listening: A bound and listening socket, owned from here on.
        rank: Who is expected.
        ticket: What it will show.
        is_expected: Whether a connection comes from the right place.
    """

    def __init__(
        self,
        listening: socket.socket,
        rank: int,
        ticket: str,
        is_expected: Callable[[socket.socket], bool],
    ) -> None:
        self._listening = listening
        self._rank = rank
        self._ticket = ticket
        self._is_expected = is_expected

    def accept(self, deadline: float) -> tuple[socket.socket, list[int]]:
        """Return the connection of the expected caller, and the file descriptors it has sent.

        Others may connect too and say nothing, or little by little: they keep nobody waiting.

        Args:
            deadline: A `time.monotonic()` value.

        Raises:
            LinkTimeout: It has not come.
            LinkBroken: The listening socket does not work.
        """
        callers: dict[int, _Caller] = {}
        poll = select.poll()
        poll.register(self._listening, select.POLLIN)
        try:
            while (left := deadline - time.monotonic()) > 0:
                for fd, _ in poll.poll(left * 1000):
                    if fd == self._listening.fileno():
                        self._let_in(callers, poll)
                    elif self._has_shown(callers, poll, fd):
                        caller = callers.pop(fd)
                        return caller.connection, caller.fds
        finally:
            for caller in callers.values():
                caller.close()
        raise LinkTimeout("the other end has not connected")

    @property
    def port(self) -> int:
        """The TCP port."""
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()

    def _let_in(self, callers: dict[int, _Caller], poll: select.poll) -> None:
        """Take a connection; where there are too many, the one that came first has to go."""
        try:
            connection, _ = self._listening.accept()
        except OSError as error:
            raise LinkBroken(f"cannot accept: {error}") from error
        if not self._is_expected(connection):
            connection.close()
            return
        if len(callers) >= _MAX_CALLERS:
            self._send_away(callers, poll, next(iter(callers)))
        callers[connection.fileno()] = _Caller(connection)
        poll.register(connection, select.POLLIN)

    def _has_shown(self, callers: dict[int, _Caller], poll: select.poll, fd: int) -> bool:
        """Read what a caller has sent; return whether it is the one expected."""
        try:
            data = callers[fd].read()
            if len(data) == _HELLO.size:
                check_hello(data, self._rank, self._ticket)
                return True
        except (OSError, LinkBroken):
            self._send_away(callers, poll, fd)
        return False

    def _send_away(self, callers: dict[int, _Caller], poll: select.poll, fd: int) -> None:
        poll.unregister(fd)
        callers.pop(fd).close()


class _Caller:
    """Somebody who has connected and not yet shown its whole hello."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self.connection = connection
        self.fds: list[int] = []
        self._data = b""

    def read(self) -> bytes:
        """Return what has come of the hello.

        Raises:
            LinkBroken: No more will come.
        """
        wanted = _HELLO.size - len(self._data)
        more, fds, _, _ = socket.recv_fds(self.connection, wanted, 4)
        self.fds += fds
        if not more:
            raise LinkBroken("closed before its hello was complete")
        self._data += more
        return self._data

    def close(self) -> None:
        self.connection.close()
        close_all(self.fds)


@final
class WaitableSocket:
    """A non-blocking socket on which one thread waits and which another may close."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self._in_use = threading.Lock()

    def begin_wait(self, events: int) -> tuple[int, int] | None:
        """`Link.begin_wait` for these events; None if the socket is closed."""
        self._in_use.acquire()
        fd = self.socket.fileno()
        return None if fd < 0 else (fd, events)

    def end_wait(self) -> None:
        """`Link.end_wait`."""
        self._in_use.release()

    def close(self) -> None:
        """Close the socket. Whoever waits on it wakes up."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with self._in_use:  # a descriptor that is polled must not become another file's
            self.socket.close()


def close_all(fds: list[int]) -> None:
    """Close file descriptors."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)


@final
class TcpTransport(Transport):
    """A connection of its own to a free port of the end that was called."""

    def __init__(self) -> None:
        super().__init__("tcp", "TCP")

    def unavailable(self) -> str:
        return ""

    def listen(self, ends: LinkEnds, proof: str) -> Expected:
        return _ExpectedConnection(listen_for_caller(ends, proof))

    def connect(self, ends: LinkEnds, address: str, proof: str) -> Link:
        return TcpLink(call_listener(ends, address, proof))


def listen_for_caller(ends: LinkEnds, proof: str) -> Listener:
    """Expect the caller at a free TCP port of this end, which was called.

    Raises:
        OSError: There is none.
    """
    family = socket.AF_INET6 if ":" in ends.ip else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.bind((ends.ip, 0))
        listening.listen(8)
    except OSError:
        listening.close()
        raise
    return Listener(
        listening,
        ends.caller,
        proof,
        is_expected=lambda connection: bool(connection.getpeername()[0] == ends.caller_ip),
    )


def call_listener(ends: LinkEnds, port: str, proof: str) -> socket.socket:
    """Return the connection to where the end that was called expects us.

    Raises:
        LinkBroken: That is no port.
        OSError: Nobody is there.
    """
    if ends.called is None or not (port.isascii() and port.isdigit()):
        raise LinkBroken(f"a port {port!r}")
    connected = socket.create_connection((ends.called.host, int(port)), CONNECT_SECS)
    try:
        connected.sendall(pack_hello(ends.caller, proof))
    except OSError:
        connected.close()
        raise
    return connected


@final
class _ExpectedConnection(Expected):
    def __init__(self, listener: Listener) -> None:
        super().__init__(str(listener.port))
        self._listener = listener

    def accept(self, deadline: float) -> Link:
        connected, _ = self._listener.accept(deadline)
        return TcpLink(connected)

    def close(self) -> None:
        self._listener.close()


@final
class TcpLink(Link):
    """A link over a connected socket, which it owns.

    What arrives is read into one buffer, at a place that keeps the alignment of the stream; the
    buffer starts again from its beginning whenever everything has been released.
    """

    def __init__(self, connected: socket.socket) -> None:
        is_local = connected.getsockname()[0] == connected.getpeername()[0]
        window_bytes = SEGMENT_BYTES if is_local else UNLIMITED_BYTES
        super().__init__(SEGMENT_BYTES, _SWAP_BYTES, window_bytes)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._waitable = WaitableSocket(connected)
        self._socket = connected
        self._buffer = np.empty(2 * SEGMENT_BYTES, np.uint8).data
        self._start = 0
        self._stop = 0

    def try_send(self, data: memoryview, *, more: bool = False) -> int:
        try:
            return self._socket.send(data, _MORE if more else 0)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LinkBroken(_reason(error)) from error

    def try_peek(self, num_bytes: int) -> memoryview | None:
        while self._stop - self._start < num_bytes:
            if self._start + num_bytes > len(self._buffer):
                self._move_to_front()
            stop = self._start + max(num_bytes, _GREEDY_BYTES)
            num_read = self._read(self._buffer[self._stop : stop])
            if not num_read:
                return None
            self._stop += num_read
        return self._buffer[self._start : self._start + num_bytes]

    def try_receive(self, target: memoryview) -> int:
        if self._start == self._stop:
            num_read = self._read(target)
            self._stop += num_read  # as if they had been in the buffer
        else:
            num_read = min(self._stop - self._start, len(target))
            target[:num_read] = self._buffer[self._start : self._start + num_read]
        self.release(num_read)
        return num_read

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

    def _read(self, target: memoryview) -> int:
        """Read into ``target`` what has come; return how much that was."""
        try:
            num_read = self._socket.recv_into(target)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise LinkBroken(_reason(error)) from error
        if num_read == 0:
            raise LinkBroken("it has closed its end")
        return num_read

    def _move_to_front(self) -> None:
        start = self._start % _ALIGNMENT
        stop = start + self._stop - self._start
        self._buffer[start:stop] = self._buffer[self._start : self._stop]
        self._start, self._stop = start, stop


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
