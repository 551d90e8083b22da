"""What links over sockets share: a listener for one expected caller, and a socket to wait for.

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

from ..errors import LinkBroken, LinkTimeout
from .frames import PROTOCOL_VERSION

TICKET_BYTES = 32
CONNECT_SECS = 5.0

_MAGIC = b"PLDL"
_HELLO = struct.Struct(f"<4sIQ{TICKET_BYTES}s")
# More who have connected and not shown who they are do not wait at the same time.
_MAX_CALLERS = 16


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
