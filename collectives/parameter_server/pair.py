"""The two ends of a connection as the handshake of all members sees them: a job of two."""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence
from functools import cache

from ..link import LinkKind
from ..members import Member
from ..ring.handshake import Identity
from ..ring.host import host_fingerprint

SERVER, CLIENT = 0, 1


def server_identity(
    server: Member,
    client: Member,
    *,
    job_id: str,
    token: str | None,
    links: Sequence[LinkKind],
    is_bound_to_loopback: bool,
    incarnation: str,
) -> Identity:
    """Return who the server is towards one client."""
    return Identity(
        members=(server, client),
        rank=SERVER,
        job_id=job_id,
        token=token or "",
        host=host_fingerprint(),
        is_bound_to_loopback=is_bound_to_loopback,
        links=tuple(links),
        incarnation=incarnation,
    )


def client_identity(
    server: Member, client: Member, *, job_id: str, token: str | None, links: Sequence[LinkKind]
) -> Identity:
    """Return who a client is towards one server."""
    return Identity(
        members=(server, client),
        rank=CLIENT,
        job_id=job_id,
        token=token or "",
        host=host_fingerprint(),
        is_bound_to_loopback=False,
        links=tuple(links),
        incarnation=_incarnation(os.getpid()),
    )


@cache
def _incarnation(pid: int) -> str:
    """Return what tells this process from one that had its place before."""
    return secrets.token_hex(16)
