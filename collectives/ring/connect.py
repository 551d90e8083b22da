"""Making a communicator of processes that know each other's addresses."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import NoReturn

from ...cluster import num_cores
from ..communicator import (
    DEFAULT_SILENCE_SECS,
    DEFAULT_TIMEOUT_SECS,
    MIN_SILENCE_SECS,
    Communicator,
)
from ..leaving import close_at_exit, forget
from ..link import ALL_LINKS, LinkKind
from ..linked import DEFAULT_SPIN_SECS, linked_communicator
from ..members import Member
from ..runner import has_core_to_spare
from .control import Control
from .handshake import Identity, check_terms
from .host import check_is_private, host_fingerprint, is_loopback, local_ip, parse_address
from .negotiation import KIND_NAMES, Picked
from .roster import Roster

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
    links: Sequence[LinkKind] = ALL_LINKS,
    bind_host: str | None = None,
    allow_unauthenticated: bool = False,
    report_secs: float = 10.0,
) -> Communicator:
    """Return the communicator of ``members``, of which this process is one.

    Every member calls it, with the same members and job. It listens at its own address and nowhere
    else, reaches all others, and returns when all have reached each other. While it waits it logs
    who is missing. Data goes through the first kind of ``links`` that both ends have and that
    works: memory shared by processes of one host, a TCP connection of its own at a random port, or
    a gRPC stream through the members' ports.

    Args:
        members: All members by rank; each address is "host:port".
        rank: This process.
        job_id: The job's name. A member of another job is turned away.
        token: The job's secret, the same for all members. It never travels: each member proves to
            each other one that it has it. Data is not encrypted.
        timeout_secs: How long a collective may wait without progress for members that give signs
            of life.
        silence_secs: A member that gives no sign of life for longer is lost, even if its host is
            switched off or it has been stopped; at least 3 s.
        start_timeout_secs: How long to wait for the others to come, and for this member's own name
            to be known.
        links: What to use for data, best first.
        bind_host: Where to listen if that is not the host in this member's address.
        allow_unauthenticated: Listen where other machines can call even without a token.
        report_secs: How often to log who is missing at the start.

    Raises:
        ValueError: The arguments make no sense, or there is no token and should be one.
        RendezvousError: The port is in use, or a member did not come or does not belong here.
    """
    members = tuple(members)
    _check(members, rank, job_id, links, silence_secs)
    if len(members) == 1:
        return linked_communicator(members, rank, _nobody, timeout_secs=timeout_secs)
    started = time.monotonic()
    ip = local_ip(members[rank], bind_host, start_timeout_secs)
    if not allow_unauthenticated:
        check_is_private(members[rank], ip, token)
    identity = Identity(
        members=members,
        rank=rank,
        job_id=job_id,
        token=token or "",
        host=host_fingerprint(),
        is_bound_to_loopback=is_loopback(ip),
        links=tuple(links),
    )
    roster = Roster(members, rank)
    control = Control(identity, roster, ip, silence_secs)
    try:
        # A warning shows even where nobody has set up logging yet.
        roster.wait_until_complete(started, start_timeout_secs, report_secs, _log.warning)
    except BaseException as error:
        control.announce(str(error) or type(error).__name__)
        control.close()
        raise
    picked = {peer.member.rank: peer.picked for peer in roster.peers.values() if peer.picked}
    _log.info("%s", describe_links(members, rank, picked))

    def leave() -> None:
        control.close()
        forget(communicator)

    num_here = _num_ranks_here(roster, identity.host)
    communicator = linked_communicator(
        members,
        rank,
        lambda peer: picked[peer].link,
        health=control,
        timeout_secs=timeout_secs,
        spin_secs=_spin_secs(num_here, picked),
        on_close=leave,
    )
    close_at_exit(communicator)
    communicator.overlaps = has_core_to_spare(num_here)
    return communicator


def describe_links(members: Sequence[Member], rank: int, picked: dict[int, Picked]) -> str:
    """Return one line that says which links were taken and why."""
    by_kind: dict[tuple[LinkKind, str], list[str]] = {}
    for peer, choice in sorted(picked.items()):
        by_kind.setdefault((choice.kind, choice.why), []).append(members[peer].task)
    parts = [
        f"{KIND_NAMES[kind]} to {', '.join(tasks)}" + (f" ({why})" if why else "")
        for (kind, why), tasks in by_kind.items()
    ]
    return f"ring of {len(members)}, here {members[rank]}: {'; '.join(parts)}"


def _check(
    members: Sequence[Member], rank: int, job_id: str, links: Sequence[str], silence_secs: float
) -> None:
    if not silence_secs >= MIN_SILENCE_SECS:
        raise ValueError(f"silence_secs must be at least {MIN_SILENCE_SECS}, it is {silence_secs}")
    if not 0 <= rank < len(members):
        raise ValueError(f"rank must be from 0 to {len(members) - 1}; found {rank}")
    if [member.rank for member in members] != list(range(len(members))):
        raise ValueError("members must be given in order of rank, from 0")
    check_terms(job_id, links)
    owners: dict[str, Member] = {}
    for member in members:
        other = owners.setdefault(str(parse_address(member)), member)
        if other is not member:
            raise ValueError(f"{other.task} and {member.task} have one address, {member.address}")


def _num_ranks_here(roster: Roster, host: str) -> int:
    """Return how many ranks share this host's processors."""
    hellos = [peer.hello for peer in roster.peers.values()]
    return 1 + sum(hello is not None and hello.host == host for hello in hellos)


def _spin_secs(num_here: int, picked: dict[int, Picked]) -> float:
    """Return how long waits should poll: not at all where that keeps others from working.

    Those others are the ranks that share this host's processors, and the threads that gRPC needs
    in this very process.
    """
    uses_threads = any(choice.kind == "grpc" for choice in picked.values())
    return 0.0 if uses_threads or num_here > num_cores() else DEFAULT_SPIN_SECS


def _nobody(rank: int) -> NoReturn:  # a world of one has no links
    raise AssertionError(rank)
