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
# A caller that has connected but says nothing is not waited for any longer.
_HELLO_SECS = 1.0


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

        Args:
            deadline: A `time.monotonic()` value.

        Raises:
            LinkTimeout: It has not come.
            LinkBroken: The listening socket does not work.
        """
        while (left := deadline - time.monotonic()) > 0:
            self._listening.settimeout(left)
            try:
                connection, _ = self._listening.accept()
            except TimeoutError:
                break
            except OSError as error:
                raise LinkBroken(f"cannot accept: {error}") from error
            fds: list[int] = []
            try:
                self._check(connection, fds)
            except (OSError, LinkBroken):
                connection.close()
                close_all(fds)
            else:
                return connection, fds
        raise LinkTimeout("the other end has not connected")

    def close(self) -> None:
        """Stop listening."""
        self._listening.close()

    def _check(self, connection: socket.socket, fds: list[int]) -> None:
        if not self._is_expected(connection):
            raise LinkBroken("a connection from somewhere else")
        connection.settimeout(_HELLO_SECS)
        data = b""
        while len(data) < _HELLO.size:
            more, new_fds, _, _ = socket.recv_fds(connection, _HELLO.size - len(data), 4)
            fds += new_fds
            if not more:
                raise LinkBroken("closed before its hello was complete")
            data += more
        check_hello(data, self._rank, self._ticket)


@final
class WaitableSocket:
    """A non-blocking socket on which one thread waits and which another may close."""

    def __init__(self, connected: socket.socket) -> None:
        connected.setblocking(False)
        self.socket = connected
        self._in_use = threading.Lock()

    def wait(self, events: int, timeout_secs: float) -> bool:
        """Return whether one of ``events`` (of `select.poll`) or a break came in time."""
        with self._in_use:
            if self.socket.fileno() < 0:
                return True
            poll = select.poll()
            poll.register(self.socket, events)
            return bool(poll.poll(timeout_secs * 1000))

    def close(self) -> None:
        """Close the socket. Whoever waits on it wakes up."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        with self._in_use:
            self.socket.close()


def close_all(fds: list[int]) -> None:
    """Close file descriptors."""
    for fd in fds:
        with contextlib.suppress(OSError):
            os.close(fd)
