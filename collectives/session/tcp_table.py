"""The TCP sockets of this host and their users, as the kernel's tables name them.

Linux shows them in `/proc/net`. Where there are no such tables nothing is known.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_TABLES = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
ESTABLISHED, LISTENING = 0x01, 0x0A
_FEWEST_FIELDS = 10
_LOOKS = 3


class Peer(NamedTuple):
    """One end of a connection."""

    ip: str
    port: int


class TcpSocket(NamedTuple):
    """A socket of this host.

    Attributes:
        local, remote: Its two ends.
        state: As the kernel counts them.
        user: Who has opened it.
        inode: Its number.
    """

    local: Peer
    remote: Peer
    state: int
    user: int
    inode: int


def knows_users() -> bool:
    """Return whether this system tells whose the sockets of this host are."""
    return _TABLES[0].exists()


def sockets_about(port: int) -> list[TcpSocket]:
    """Return the sockets that processes of this host have, with ``port`` at one end.

    The tables are read in pieces, between which a socket may be missed.

    Raises:
        OSError: They cannot be read: this process has no file descriptor left.
    """
    return list(_rows(f":{port:04X} "))


def users_calling(peer: Peer, port: int) -> set[int]:
    """Return the users whose connection from ``peer`` to ``port`` is: one, or none if not found."""
    return _users(
        port,
        lambda each: each.local == peer and each.remote.port == port and each.state == ESTABLISHED,
    )


def users_at(where: Peer) -> set[int]:
    """Return the users that listen at this address of this host, or have taken calls there."""
    states = (ESTABLISHED, LISTENING)
    return _users(where.port, lambda each: each.local == where and each.state in states)


def _users(port: int, is_meant: Callable[[TcpSocket], bool]) -> set[int]:
    for _ in range(_LOOKS):
        with suppress(OSError):
            if users := {each.user for each in sockets_about(port) if is_meant(each)}:
                return users
    return set()


def plain_ip(ip: str) -> str:
    """Return an address without its zone, and as IPv4 if IPv6 only carries that."""
    address = ipaddress.ip_address(ip.partition("%")[0])
    return str(getattr(address, "ipv4_mapped", None) or address)


def _rows(wanted: str) -> Iterator[TcpSocket]:
    """Yield what the lines with ``wanted`` in them say: of long tables most lines are not read."""
    for table in _TABLES:
        try:
            text = table.read_text()
        except FileNotFoundError:  # a kernel without IPv6
            continue
        end = 0
        while (found := text.find(wanted, end)) >= 0:
            end = text.find("\n", found)
            # Number, local and remote address, state, queues, timer, retransmissions, user, ...
            fields = text[text.rfind("\n", 0, found) + 1 : end].split()
            # A socket without an inode has been closed by its process, and reads as root's.
            if len(fields) >= _FEWEST_FIELDS and fields[9] != "0":
                local, remote = _peer(fields[1]), _peer(fields[2])
                yield TcpSocket(local, remote, int(fields[3], 16), int(fields[7]), int(fields[9]))


def _peer(text: str) -> Peer:
    """Return an address that the kernel has written as 32-bit words in its own byte order."""
    digits, _, port = text.partition(":")
    words = [int(digits[i : i + 8], 16) for i in range(0, len(digits), 8)]
    packed = struct.pack(f"={len(words)}I", *words)
    return Peer(plain_ip(str(ipaddress.ip_address(packed))), int(port, 16))
