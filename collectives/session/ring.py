"""Making a communicator of processes that find each other by their addresses."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from hashlib import blake2b
from typing import NoReturn

from ...cluster import is_loopback, num_cores
from ..communicator import (
    DEFAULT_SILENCE_SECS,
    DEFAULT_TIMEOUT_SECS,
    MIN_SILENCE_SECS,
    Communicator,
)
from ..executor import has_core_to_spare
from ..leaving import close_at_exit
from ..link import DEFAULT_LINKS, LinkKind
from ..linked import DEFAULT_SPIN_SECS, linked_communicator
from ..members import Member
from ..peers import DEFAULT_REPORT_SECS
from .addresses import check_is_private, listening_place, local_ip, parse_address
from .handshake import Identity, check_job_id
from .links import check_links
from .membership import Membership

DEFAULT_START_TIMEOUT_SECS = 600.0

_log = logging.getLogger("paceline")


def connect_ring(
    members: Sequence[Member],
    rank: int,
    *,
    job_id: str,
    token: str | None = None,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
    start_timeout_secs: float = DEFAULT_START_TIMEOUT_SECS,
    links: Sequence[LinkKind] = DEFAULT_LINKS,
    bind_host: str | None = None,
    report_secs: float = 10.0,
    wait_report_secs: float = DEFAULT_REPORT_SECS,
) -> Communicator:
    """Return the communicator of ``members``, of which this process is one.

    Every member calls it, with the same members and job. It listens at its own address and nowhere
    else, comes to rank 0, and returns when all are there. While it waits it logs who is missing.
    Data goes through the first kind of ``links`` that both ends have and that works, tried when two
    members first need each other: memory shared by processes of one host, a TCP connection of its
    own at a random port, or a gRPC stream through the members' ports.

    Args:
        members: All members by rank; each address is "host:port". Those of others than rank 0 may
            be empty: such a member listens at any port where rank 0 can call it.
        rank: This process.
        job_id: The job's name. A member of another job is turned away.
        token: The job's secret, the same for all members. It never travels: each member proves to
            each other one that it has it. Data is not encrypted.
        timeout_secs: How long a collective may wait without progress for members that give signs
            of life.
        silence_secs: A member that gives no sign of life for longer is lost, even if its host is
            switched off or it has been stopped; at least 3 s.
        start_timeout_secs: How long to wait for the others to come, and for names to be known.
        links: What to use for data, best first.
        bind_host: Where to listen if that is not the host in this member's address.
        report_secs: How often to log who is missing at the start.
        wait_report_secs: When a collective that waits says for whom, and has all members log what
            their threads do; then after twice that, and so on.

    Raises:
        ValueError: The arguments make no sense, or there is no token and should be one.
        RendezvousError: The port is in use, or a member did not come or does not belong here.
    """
    members = tuple(members)
    _check(members, rank, job_id, links, silence_secs)
    if len(members) == 1:
        return linked_communicator(members, rank, _nobody, timeout_secs=timeout_secs)
    started = time.monotonic()
    me = members[rank]
    if not me.address:
        me = listening_place(me, members[0], start_timeout_secs)
    ip = local_ip(me, bind_host, start_timeout_secs)
    check_is_private(me, ip, token)
    identity = Identity(
        me=me,
        job_id=job_id,
        token=token or "",
        links=tuple(links),
        is_bound_to_loopback=is_loopback(ip),
        size=len(members),
        members=members_fingerprint(members),
    )
    known = tuple(me if member.rank == rank else member for member in members)
    membership = Membership(identity, known, ip, silence_secs)
    try:
        # A warning shows even where nobody has set up logging yet.
        membership.wait_until_complete(started, start_timeout_secs, report_secs, _log.warning)
    except BaseException as error:
        membership.announce(str(error) or type(error).__name__)
        membership.close()
        raise
    num_here = membership.num_members_here()
    communicator = linked_communicator(
        membership.members,
        rank,
        membership.connect,
        health=membership,
        timeout_secs=timeout_secs,
        # To poll would keep ranks from working that share this host's processors.
        spin_secs=0.0 if num_here > num_cores() else DEFAULT_SPIN_SECS,
        on_close=membership.close,
        report_secs=wait_report_secs,
    )
    close_at_exit(communicator)
    communicator.overlaps = has_core_to_spare(num_here)
    return communicator


def _check(
    members: Sequence[Member], rank: int, job_id: str, links: Sequence[str], silence_secs: float
) -> None:
    if not silence_secs >= MIN_SILENCE_SECS:
        raise ValueError(f"silence_secs must be at least {MIN_SILENCE_SECS}, it is {silence_secs}")
    if not 0 <= rank < len(members):
        raise ValueError(f"rank must be from 0 to {len(members) - 1}; found {rank}")
    if [member.rank for member in members] != list(range(len(members))):
        raise ValueError("members must be given in order of rank, from 0")
    check_job_id(job_id)
    check_links(links)
    owners: dict[str, Member] = {}
    for member in members:
        if member.address or member.rank == 0:
            other = owners.setdefault(str(parse_address(member)), member)
            if other is not member:
                raise ValueError(
                    f"{other.task} and {member.task} have one address, {member.address}"
                )


def members_fingerprint(members: Sequence[Member]) -> str:
    """Return what two members compare instead of their lists of members."""
    text = "\n".join(f"{member.rank} {member.task} {member.address}" for member in members)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _nobody(rank: int) -> NoReturn:  # a world of one has no links
    raise AssertionError(rank)
