"""Addresses of tasks, and which host this is."""

from __future__ import annotations

import contextlib
import os
import socket
import uuid
from dataclasses import replace
from functools import cache
from hashlib import blake2b
from pathlib import Path

from ...cluster import (
    Address,
    ClusterError,
    bind_problem,
    hold_port,
    is_loopback,
    look_up,
    split_address,
)
from ..errors import RendezvousError
from ..members import Member

_HOST_FILES = ("/etc/machine-id", "/proc/sys/kernel/random/boot_id")


def parse_address(member: Member) -> Address:
    """Return the address of ``member``.

    Raises:
        ValueError: It is not of the form host:port.
    """
    try:
        return split_address(member.address)
    except ClusterError:
        raise ValueError(
            f"the address of {member.task} must be host:port with a port from 1 to 65535; "
            f"found {member.address!r}"
        ) from None


def local_ip(member: Member, bind_host: str | None, timeout_secs: float) -> str:
    """Return the address of this machine at which ``member`` is to listen; its port is free.

    A name that is unknown is looked up again: in Kubernetes and other clusters that start a host
    and its name together, the name may come later.

    Args:
        member: This process.
        bind_host: Listen here instead of at the host of the member's address.
        timeout_secs: How long to look up the name.

    Raises:
        RendezvousError: The name is unknown, belongs to another machine, or the port is taken.
    """
    address = parse_address(member)
    where = Address(bind_host or address.host, address.port)
    try:
        family, endpoint = look_up(where, member, timeout_secs)
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(endpoint)
    except OSError as error:
        problem = bind_problem(str(where), error)
        raise RendezvousError(f"{member} cannot listen: {problem}") from error
    return str(endpoint[0])


def listening_place(me: Member, other: Member, timeout_secs: float) -> Member:
    """Return ``me`` with an address, at a held port, at which ``other`` may call back.

    Raises:
        RendezvousError: The other's name stays unknown, or no route leads to it.
    """
    try:
        family, endpoint = look_up(parse_address(other), me, timeout_secs)
        with socket.socket(family, socket.SOCK_DGRAM) as route:
            route.connect(endpoint)  # sends nothing: the system only picks a way
            ip = str(route.getsockname()[0])
        return replace(me, address=str(Address(ip, hold_port(ip))))
    except OSError as error:
        raise RendezvousError(f"{me} cannot reach {other}: {error}") from error


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


@cache
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
