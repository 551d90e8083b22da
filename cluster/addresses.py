"""Addresses of this and other machines: looked up, loopback or not, and who listens on a port."""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import random
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from .spec import Address, split_address

LOOPBACK: Final = "127.0.0.1"
_LISTENING: Final = "0A"
_RETRY_SECS: Final = 0.5
_REPORT_SECS: Final = 10.0
_MOST_HELD: Final = 128
_held: Final[dict[Address, int]] = {}  # file descriptors, the oldest first

_logger = logging.getLogger("paceline")


def is_loopback(host: str) -> bool:
    """Whether each machine takes this host for itself, by its looks: nothing is looked up."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def look_up(address: Address, who: object, timeout_secs: float) -> tuple[int, Any]:
    """The family and the endpoint of an address for a socket, IPv4 if there is one.

    A name that is unknown is looked up again: in Kubernetes and other clusters that start a host
    and its name together, the name may come later.

    Args:
        address: Where to listen, or whom to call.
        who: Who wants to know, for the log.
        timeout_secs: How long to try.

    Raises:
        OSError: Its host is still unknown when time is up.
    """
    started, report_at = time.monotonic(), _REPORT_SECS
    while True:
        try:
            found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
            # The same family for who listens and who calls: who listens on ::1 is not at 127.0.0.1.
            family, _, _, _, endpoint = min(found, key=lambda info: info[0] != socket.AF_INET)
            return family, endpoint
        except OSError as error:
            waited_secs = time.monotonic() - started
            if waited_secs >= timeout_secs:
                raise
            if waited_secs >= report_at:
                report_at += _REPORT_SECS
                _logger.warning(
                    "%s cannot begin yet: %s; it has tried for %.0f s and gives up after %.0f s",
                    *(who, bind_problem(str(address), error), waited_secs, timeout_secs),
                )
        time.sleep(min(_RETRY_SECS, timeout_secs))


def port_owner(port: int) -> str | None:
    """The program that listens on a TCP port of this machine, None if the system does not tell.

    Returns:
        Its command line and process id, for instance "python train.py (pid 4711)".
    """
    inodes = set().union(*(_listening(Path("/proc/net", t), port) for t in ("tcp", "tcp6")))
    sockets = {f"socket:[{inode}]" for inode in inodes}
    for process in Path("/proc").glob("[0-9]*") if sockets else ():
        if sockets & _open_files(process):
            with suppress(OSError):
                words = (process / "cmdline").read_bytes().split(b"\0")
                command = b" ".join(words).decode(errors="replace").strip()
                return f"{command[:80]} (pid {process.name})"
    return None


def _open_files(process: Path) -> set[str]:
    """What a process has open, as far as we may see."""
    found = set()
    with suppress(OSError):
        for fd in list((process / "fd").iterdir()):
            with suppress(OSError):  # closed in between
                found.add(str(fd.readlink()))
    return found


def _listening(table: Path, port: int) -> set[str]:
    """The inodes of the sockets that listen on a port, from one of Linux's tables."""
    try:
        rows = [line.split() for line in table.read_text().splitlines()[1:]]
    except OSError:
        return set()
    return {
        row[9]
        for row in rows
        if row[3] == _LISTENING and int(row[1].rpartition(":")[2], 16) == port
    }


def bind_problem(address: str, error: OSError) -> str:
    """Why a task cannot listen on its own address, and what to do about it.

    Args:
        address: "host:port".
        error: What the attempt to bind or to look up the host raised.
    """
    host, port = split_address(address)
    if isinstance(error, socket.gaierror):
        return f"the host name {host} is not known here; correct it, or its DNS entry"
    if error.errno == errno.EADDRINUSE:
        owner = port_owner(port)
        by = f"by {owner}" if owner else f"('ss -ltnp sport = :{port}' shows by whom)"
        return f"port {port} is in use {by}; end that program, or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return (
            f"{host} is not an address of this machine; start this task on {host}, or correct "
            f"the address or the task's index"
        )
    if error.errno == errno.EACCES:
        return f"port {port} is for root only; choose one above 1023"
    return f"cannot listen there: {error}"


def free_ports(count: int, host: str = LOOPBACK) -> tuple[int, ...]:
    """Ports of this machine that nobody else has, and that nobody else is given; see `hold_port`.

    They are taken from below the range from which the system numbers outgoing connections, so that
    none of those takes one when it is let go.

    Raises:
        OSError: `host` is not of this machine.
    """
    candidates = _candidates()
    ports: list[int] = []
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if len(ports) == count:
            break
        try:
            ports.append(hold_port(host, port))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
    return tuple(ports)


def hold_port(host: str, port: int = 0) -> int:
    """Keep a port until its task listens on it, which may be another process and much later.

    What holds it is a socket that is bound and does not listen. A server, which sets SO_REUSEADDR,
    binds the same port beside it and listens. Who looks for a free port binds without, as we do at
    first, and is refused, in this process and in all others. The system lets a port go when this
    process ends, and we do when we hold `_MOST_HELD` newer ones.

    Args:
        host: An address of this machine.
        port: Which one; 0 for any that is free.

    Returns:
        Its number.

    Raises:
        OSError: Somebody has it, or the host is not of this machine.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        holder.bind((host.strip("[]"), port))
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        number = int(holder.getsockname()[1])
        _held[Address(host, number)] = holder.detach()
    for oldest in list(_held)[:-_MOST_HELD]:
        release_port(*oldest)
    return number


def release_port(host: str, port: int) -> None:
    """Hold a port no longer, where this process still does."""
    if (holder := _held.pop(Address(host, port), None)) is not None:
        os.close(holder)


def _candidates() -> range:
    return range(15_000, _first_outgoing_port())


def _first_outgoing_port() -> int:
    """Where the range of outgoing connections begins; Linux's default where it is not told."""
    try:
        first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 32_768
    return first if first > 16_000 else 60_000
