"""Ports of this machine: who listens on one, and whether we could."""

from __future__ import annotations

import errno
import re
import socket
from contextlib import suppress
from pathlib import Path

from .spec import split_address

_LISTENING = "0A"


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


def is_loopback(host: str) -> bool:
    """Whether each machine takes this host for itself."""
    name = host == "localhost" or host.endswith(".localhost")
    return name or host == "::1" or bool(re.fullmatch(r"127(\.\d+){3}", host))
