"""Two members make sure of each other before anything else is said between them.

    caller                       other side
    Hello        ->
                 <-              Welcome (its own Hello, proof) or Refusal
    Proof        ->
                 <-              Accepted or Refusal

The proofs are keyed hashes over both nonces, so the job's token never travels and an old
conversation cannot be played back.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from ..link import ALL_LINKS, LinkKind
from ..members import Member
from ._grpc import Stream, StreamError
from .frames import (
    Accepted,
    Frame,
    FrameError,
    Hello,
    Proof,
    Refusal,
    Welcome,
    cut,
    decode,
    encode,
    members_fingerprint,
)
from .host import is_loopback, parse_address

Purpose = Literal["join", "greet"]
_FrameType = TypeVar("_FrameType", bound=Frame)


class RefusedError(Exception):
    """The other side does not belong to us, or says that we do not belong to it.

    The text goes on after the other's name: "worker 1 …".

    Attributes:
        is_final: Whether trying again is pointless.
    """

    def __init__(self, reason: str, is_final: bool) -> None:
        super().__init__(reason)
        self.is_final = is_final


class HostsError(RefusedError):
    """The members run on several machines, but their addresses do not lead from one to another."""


@dataclass(frozen=True)
class Identity:
    """Who this member is, and what it believes about the job.

    Attributes:
        members: All members.
        rank: This one.
        job_id: The job's name.
        token: The job's secret; empty for none.
        host: Fingerprint of this host.
        is_bound_to_loopback: Whether only this host can reach it.
        links: What it can use for data, best first.
        incarnation: Random, new in each process.
    """

    members: tuple[Member, ...]
    rank: int
    job_id: str
    token: str = field(repr=False)
    host: str
    is_bound_to_loopback: bool
    links: tuple[LinkKind, ...]
    incarnation: str = field(default_factory=lambda: secrets.token_hex(16))

    def hello(self, purpose: Purpose) -> Hello:
        """Return what it says first, with a new nonce."""
        return Hello(
            purpose=purpose,
            job_id=self.job_id,
            size=len(self.members),
            members=members_fingerprint(self.members),
            rank=self.rank,
            incarnation=self.incarnation,
            host=self.host,
            is_loopback=self.is_bound_to_loopback,
            links=self.links,
            nonce=secrets.token_hex(16),
        )

    def prove(self, role: str, caller: Hello, other: Hello) -> str:
        """Return the proof, by ``role``, that it knows the token in this conversation."""
        sides = f"{caller.rank} {caller.nonce} {other.rank} {other.nonce}"
        text = f"{role} {self.job_id} {caller.members} {sides}"
        return hmac.digest(self.token.encode(), text.encode(), "sha256").hex()

    def check_proof(self, proof: str, role: str, caller: Hello, other: Hello) -> None:
        """Raise `RefusedError` if ``proof`` is not what `prove` gives."""
        if not hmac.compare_digest(proof, self.prove(role, caller, other)):
            raise RefusedError("has another token", is_final=True)

    def check(self, hello: Hello, rank: int | None = None) -> None:
        """Check that ``hello`` comes from a member of this job, if given from ``rank``.

        Raises:
            RefusedError: It does not; the text is about the other side.
        """
        size = len(self.members)
        if hello.job_id != self.job_id:
            problem = f"comes from job {hello.job_id!r} instead of {self.job_id!r}"
        elif hello.size != size:
            problem = f"has a cluster of {hello.size} members instead of {size}"
        elif hello.members != members_fingerprint(self.members):
            problem = "has a list of members with other names, addresses or another order"
        elif not 0 <= hello.rank < size or hello.rank == self.rank:
            problem = f"claims rank {hello.rank} towards rank {self.rank} of {size}"
        elif rank is not None and hello.rank != rank:
            problem = f"has an address that leads to {self.members[hello.rank].task}"
        else:
            return
        raise RefusedError(problem, is_final=True)

    def check_hosts(self, hello: Hello) -> None:
        """Check that no address means "this machine" if there are several machines.

        Raises:
            HostsError: One does; no member can then reach all others.
        """
        if hello.host == self.host:
            return
        known = [member for member in self.members if member.address]
        local = [member for member in known if is_loopback(parse_address(member).host)]
        if hello.is_loopback:
            local.append(self.members[hello.rank])
        if self.is_bound_to_loopback:
            local.append(self.members[self.rank])
        if local:
            raise HostsError(
                f"runs on another machine, where the address of {local[0]} leads to that "
                "machine itself; give each task an address that all machines can reach",
                is_final=True,
            )


def check_terms(job_id: str, links: Sequence[str]) -> None:
    """Check what a caller says about the job.

    Raises:
        ValueError: The job's id is too long, or there are links that nobody knows.
    """
    if not 0 < len(job_id) <= 256:
        raise ValueError(f"job_id must have 1 to 256 characters; found {len(job_id)}")
    if not links or not set(links) <= set(ALL_LINKS) or len(set(links)) < len(links):
        raise ValueError(f"links must be some of {', '.join(ALL_LINKS)}; found {tuple(links)}")


def call(
    stream: Stream, identity: Identity, rank: int, purpose: Purpose
) -> tuple[Hello, Iterator[bytes]]:
    """Introduce ourselves to ``rank``, who should be at the other end of ``stream``.

    Returns:
        What it says about itself, and all that it will say from now on.

    Raises:
        RefusedError: One side does not take the other.
        StreamError: Nobody is there, or it went away.
        FrameError: Whoever is there speaks something else.
    """
    messages = iter(stream)
    mine = identity.hello(purpose)
    stream.send(encode(mine))
    welcome = _expect(Welcome, messages)
    identity.check(welcome.hello, rank)
    identity.check_proof(welcome.proof, "other", mine, welcome.hello)
    stream.send(encode(Proof(proof=identity.prove("caller", mine, welcome.hello))))
    _expect(Accepted, messages)
    return welcome.hello, messages


def answer(stream: Stream, messages: Iterator[bytes], identity: Identity, hello: Hello) -> None:
    """Make sure of a caller that has said ``hello``; telling it that it is in is left to others.

    Whether the hosts can reach each other is checked at this side only, so that both hear of it.

    Raises:
        RefusedError: It is none of ours, and has been told so.
        StreamError, FrameError: As in `call`.
    """
    try:
        identity.check(hello)
        mine = identity.hello(hello.purpose)
        proof = identity.prove("other", hello, mine)
        stream.send(encode(Welcome(hello=mine, proof=proof)))
        identity.check_proof(_expect(Proof, messages).proof, "caller", hello, mine)
        identity.check_hosts(hello)
    except RefusedError as error:
        refuse(stream, error)
        raise


def refuse(stream: Stream, error: RefusedError) -> None:
    """Tell the caller why it is not taken."""
    stream.send(encode(Refusal(reason=cut(str(error)), is_final=error.is_final)))


def _expect(kind: type[_FrameType], messages: Iterator[bytes]) -> _FrameType:
    data = next(messages, None)
    if data is None:
        raise StreamError("it hung up")
    frame = decode(data)
    if isinstance(frame, Refusal):
        raise RefusedError(f"turned this process away, which {frame.reason}", frame.is_final)
    if not isinstance(frame, kind):
        raise FrameError(f"a {type(frame).__name__} frame instead of {kind.__name__}")
    return frame
