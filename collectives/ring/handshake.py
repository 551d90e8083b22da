"""Two members make sure of each other before anything else is said between them.

caller                       other side
Hello        ->
                 <-              Challenge
Proof        ->
                 <-              Welcome (its own Hello, proof) or Refusal
                 <-              Accepted or Refusal, and all that follows, authenticated

The proofs are keyed hashes over everything that was said before, so that the job's token never
travels, an old conversation cannot be played back, and nothing that either side has said about
itself can be changed on the way. The caller proves first, and until it has, it learns nothing: not
the job's name, not its size, and nothing made with the token at which it could guess. Both sides
then derive the key by which they know each other's frames (`AuthenticatedStream`).
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from ..link import ALL_LINKS, LinkKind
from ..members import Member
from ._grpc import Stream, StreamError
from .authenticated import AuthenticatedStream
from .frames import (
    Accepted,
    Challenge,
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

STRANGER = "does not know this job's token"
"""Why a caller is turned away that has proved nothing; more than that it is not told."""


class RefusedError(Exception):
    """The other side does not belong to us, or says that we do not belong to it.

    The text goes on after the other's name: "worker 1 …".

    Attributes:
        is_final: Whether trying again is pointless.
    """

    def __init__(self, reason: str, is_final: bool) -> None:
        super().__init__(reason)
        self.is_final = is_final


class TermsError(RefusedError):
    """The other side knows the token, but describes another job: both have to end and say why."""


class HostsError(TermsError):
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

    def derive(self, role: str, said: Sequence[Frame]) -> bytes:
        """Return 32 bytes that only who knows the token can make.

        Args:
            role: What they are for.
            said: All that was said in this conversation so far.
        """
        transcript = hashlib.sha256()
        for data in map(encode, said):
            transcript.update(len(data).to_bytes(4, "little") + data)
        text = f"paceline {role} ".encode() + transcript.digest()
        return hmac.digest(self.token.encode(), text, "sha256")

    def prove(self, role: str, said: Sequence[Frame]) -> str:
        """Return the proof, by ``role``, that it knows the token in this conversation."""
        return self.derive(role, said).hex()

    def check_proof(self, proof: str, role: str, said: Sequence[Frame]) -> None:
        """Raise `RefusedError` if ``proof`` is not what `prove` gives."""
        if not hmac.compare_digest(proof, self.prove(role, said)):
            raise RefusedError(STRANGER, is_final=True)

    def check(self, hello: Hello, rank: int | None = None) -> None:
        """Check that ``hello`` comes from a member of this job, if given from ``rank``.

        Raises:
            TermsError: It does not; the text is about the other side.
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
        raise TermsError(problem, is_final=True)

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
) -> tuple[Hello, AuthenticatedStream]:
    """Introduce ourselves to ``rank``, who should be at the other end of ``stream``.

    Returns:
        What it says about itself, and the stream for all that will be said from now on.

    Raises:
        RefusedError: One side does not take the other.
        StreamError: Nobody is there, or it went away.
        FrameError: Whoever is there speaks something else.
    """
    messages = iter(stream)
    said: list[Frame] = [identity.hello(purpose)]
    stream.send(encode(said[0]))
    said.append(_expect(Challenge, messages))
    said.append(Proof(proof=identity.prove("caller", said)))
    stream.send(encode(said[-1]))
    welcome = _expect(Welcome, messages)
    said.append(welcome.hello)
    identity.check_proof(welcome.proof, "other", said)
    identity.check(welcome.hello, rank)
    key = identity.derive("session", said)
    authenticated = AuthenticatedStream(stream, messages, key, is_caller=True)
    for frame in authenticated:
        _check_kind(Accepted, frame)
        return welcome.hello, authenticated
    raise StreamError("it hung up")


def answer(
    stream: Stream, messages: Iterator[bytes], identity: Identity, hello: Hello
) -> AuthenticatedStream:
    """Make sure of a caller that has said ``hello``; telling it that it is in is left to others.

    Whether the hosts can reach each other is checked at this side only, so that both hear of it.

    Returns:
        The stream for all that will be said from now on.

    Raises:
        TermsError: It knows the token, but describes another job, and has been told so.
        RefusedError: It is a stranger, and has been told no more than that.
        StreamError, FrameError: As in `call`.
    """
    said: list[Frame] = [hello, Challenge(nonce=secrets.token_hex(16))]
    stream.send(encode(said[-1]))
    said.append(proof := _expect(Proof, messages))
    try:
        identity.check_proof(proof.proof, "caller", said[:-1])
        identity.check(hello)
        identity.check_hosts(hello)
    except RefusedError as error:
        stream.send(encode(refusal(error)))
        raise
    mine = identity.hello(hello.purpose)
    said.append(mine)
    stream.send(encode(Welcome(hello=mine, proof=identity.prove("other", said))))
    key = identity.derive("session", said)
    return AuthenticatedStream(stream, messages, key, is_caller=False)


def refusal(error: RefusedError) -> Refusal:
    """Return what tells the caller why it is not taken."""
    return Refusal(reason=cut(str(error)), is_final=error.is_final)


def _expect(kind: type[_FrameType], messages: Iterator[bytes]) -> _FrameType:
    data = next(messages, None)
    if data is None:
        raise StreamError("it hung up")
    return _check_kind(kind, decode(data))


def _check_kind(kind: type[_FrameType], frame: Frame) -> _FrameType:
    if isinstance(frame, Refusal):
        raise RefusedError(f"turned this process away, which {frame.reason}", frame.is_final)
    if not isinstance(frame, kind):
        raise FrameError(f"a {type(frame).__name__} frame instead of {kind.__name__}")
    return frame
