"""Addresses, and which host this is."""

from __future__ import annotations

import contextlib
import errno
import ipaddress
import os
import socket
import uuid
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from ..members import Member
from .errors import RendezvousError

_HOST_FILES = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Address:
    """Where a member listens, taken apart."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(member: Member) -> Address:
    """Return the address of ``member``.

    Raises:
        ValueError: It is not of the form host:port.
    """
    host, colon, port = member.address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not (colon and host and port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise ValueError(
            f"the address of {member.task} must be host:port with a port from 1 to 65535; "
            f"found {member.address!r}"
        )
    return Address(host, int(port))


def is_loopback(host: str) -> bool:
    """Return whether ``host``, by its looks, means "this machine" on every machine."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def local_ip(member: Member, bind_host: str | None = None) -> str:
    """Return the address of this machine at which ``member`` is to listen; its port is free.

    Args:
        member: This process.
        bind_host: Listen here instead of at the host of the member's address.

    Raises:
        RendezvousError: The name is unknown, belongs to another machine, or the port is taken.
    """
    address = parse_address(member)
    host = bind_host or address.host
    try:
        found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RendezvousError(f"{member} cannot listen: {host!r} is unknown ({error})") from error
    found.sort(key=lambda info: info[0] != socket.AF_INET)
    family, _, _, _, endpoint = found[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(endpoint)
        except OSError as error:
            raise RendezvousError(_cannot_listen(member, host, address.port, error)) from error
    return str(endpoint[0])


def check_is_private(member: Member, ip: str, token: str | None) -> None:
    """Check that strangers cannot come in where ``member`` is to listen.

    Raises:
        ValueError: Other machines can call there, and there is no token to ask them for.
    """
    if token or is_loopback(ip):
        return
    raise ValueError(
        f"{member} would listen at {ip}, where other machines can call, without asking "
        "them for a token: set the environment variable PACELINE_TOKEN to the same secret for "
        "all tasks, or PACELINE_TOKEN_FILE to a file with it, or pass "
        "CommunicationOptions(token=...)"
    )


def host_fingerprint() -> str:
    """Return what tells this host from others: two processes with the same share a loopback.

    That is a matter of the machine, the running kernel and the network namespace: two containers
    on one machine each have a localhost of their own.
    """
    parts = []
    for file in _HOST_FILES:
        with contextlib.suppress(OSError):
            parts.append(Path(file).read_text().strip())
    with contextlib.suppress(OSError):
        parts.append(os.readlink("/proc/self/ns/net"))
    parts = parts or [str(uuid.getnode())]
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def _cannot_listen(member: Member, host: str, port: int, error: OSError) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"{member} cannot listen: port {port} is in use by another process; "
                "end that process or give the task another port"
            )
        case errno.EADDRNOTAVAIL:
            return (
                f"{member} cannot listen: {host!r} is no address of this machine; is this process "
                f"really {member.task}?"
            )
        case _:
            return f"{member} cannot listen at {host!r}, port {port}: {error.strerror}"
