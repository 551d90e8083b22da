"""Two processes make sure of each other before anything else is said between them.

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
then derive the key by which they know each other's frames.

From then on each frame is followed by 16 bytes of a keyed hash over the direction, the frame's
number in that direction, and the frame. A frame that was made up, changed, left out, repeated or
put elsewhere ends the stream. What is said is not encrypted.

Links are not streams of this kind. That the right two ends opened one is shown by a proof made with
the same key (`AuthenticatedStream.prove`); the bytes of arrays are then as safe as the network
between the two hosts, which is as fast as it is because nothing is computed over them. Shared
memory has no name that another process could open.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, final

from ...cluster import is_loopback
from ..members import Member
from .addresses import host_fingerprint, parse_address
from .frames import (
    MAX_FRAME_BYTES,
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
)
from .grpc_stream import MAX_QUOTED_CHARACTERS, Stream, StreamError

TAG_BYTES = 16
STRANGER = "does not know this job's token"
"""Why a caller is turned away that has proved nothing; more than that it is not told."""

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


class TermsError(RefusedError):
    """The other side knows the token, but describes another job: both have to end and say why."""


class HostsError(TermsError):
    """Two processes run on two machines, but an address leads from one only back to itself."""


class UserError(RefusedError):
    """There is no token, and the other side is not, or may not be, a process of the same user."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """Who this process is, and what it believes about the job.

    Attributes:
        me: Its rank among those of its kind, its task, and where it listens, if it does.
        job_id: The job's name, of 1 to 256 characters.
        token: The job's secret; empty for none.
        links: What it can use for data, best first.
        is_bound_to_loopback: Whether only this host can reach it.
        size: Number of members, if there is a fixed list of them; else 0.
        members: Fingerprint of that list.
        host: Fingerprint of this host.
        incarnation: Random, by default another one for each identity: one and the same process may
            leave a job and join it anew, and is not to be taken for whom others knew there.
    """

    me: Member
    job_id: str
    token: str = field(repr=False)
    links: tuple[str, ...]
    is_bound_to_loopback: bool = False
    size: int = 0
    members: str = ""
    host: str = field(default_factory=host_fingerprint)
    incarnation: str = field(default_factory=lambda: secrets.token_hex(16))

    def hello(self) -> Hello:
        """Return what it says first, with a new nonce."""
        return Hello(
            job_id=self.job_id,
            size=self.size,
            members=self.members,
            rank=self.me.rank,
            task=self.me.task,
            address=self.me.address,
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
        # With lengths, so that no two conversations give the same bytes.
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

    def check(self, hello: Hello, expected: Member | None = None) -> None:
        """Check that ``hello`` comes from this job, if given from the one that was called.

        Raises:
            TermsError: It does not; the text is about the other side.
        """
        if hello.job_id != self.job_id:
            problem = f"comes from job {hello.job_id!r} instead of {self.job_id!r}"
        elif hello.size != self.size:
            problem = f"has a cluster of {hello.size} members instead of {self.size}"
        elif hello.members != self.members:
            problem = "has a list of members with other names, addresses or another order"
        elif self.size and (hello.rank >= self.size or hello.rank == self.me.rank):
            problem = f"claims rank {hello.rank} towards rank {self.me.rank} of {self.size}"
        elif expected is not None and (hello.rank, hello.task) != (expected.rank, expected.task):
            problem = f"has an address that leads to {hello.task}"
        else:
            return
        raise TermsError(problem, is_final=True)

    def check_hosts(self, hello: Hello) -> None:
        """Check that neither address means "this machine" if there are two machines.

        Raises:
            HostsError: One does; somebody could then not be reached.
            FrameError: The other's address is none.
        """
        if hello.host == self.host:
            return
        other = Member(hello.rank, hello.task, hello.address)
        for member, is_local in (other, hello.is_loopback), (self.me, self.is_bound_to_loopback):
            if is_local or (member.address and is_loopback(_host_of(member))):
                raise HostsError(on_another_machine(member), is_final=True)


def check_job_id(job_id: str) -> None:
    """Raise `ValueError` if a job cannot have this name."""
    if not 0 < len(job_id) <= 256:
        raise ValueError(f"job_id must have 1 to 256 characters; found {len(job_id)}")


def on_another_machine(member: Member) -> str:
    """Return why a process on another machine than ``member`` cannot take part."""
    return (
        f"runs on another machine, where the address of {member} leads to that machine itself; "
        "give each task an address that all machines can reach"
    )


def _host_of(member: Member) -> str:
    try:
        return parse_address(member).host
    except ValueError as error:
        raise FrameError(str(error)) from None


@final
class AuthenticatedStream:
    """A stream after its handshake: every frame shows that it is the next one of the other end.

    One thread iterates over the frames that come; any thread sends. Iteration raises `FrameError`
    if a frame is not what the other end sent next, and `StreamError` if the stream breaks.

    Args:
        stream: What carries it.
        messages: What comes in over that.
        key: The key of this conversation.
        is_caller: Whether this end has opened it. The other one says `Accepted` before all else.

    Attributes:
        is_caller: The same.
        peer_ip: From where it was opened; empty at the end that opened it.
    """

    def __init__(
        self, stream: Stream, messages: Iterator[bytes], key: bytes, *, is_caller: bool
    ) -> None:
        self.is_caller = is_caller
        self.peer_ip = stream.peer_ip
        self._stream = stream
        self._messages = messages
        self._key = key
        self._outgoing, self._incoming = (
            (b"caller", b"other") if is_caller else (b"other", b"caller")
        )
        self._sending = threading.Lock()
        self._num_sent = self._num_received = 0

    @property
    def pending_bytes(self) -> int:
        """Bytes that wait to be sent."""
        return self._stream.pending_bytes

    def accept(self) -> None:
        """Tell the caller that it is in, if it has not been told."""
        # Whoever sends first says it: once a session was admitted any thread may send, and the
        # caller expects `Accepted` before all else.
        with self._sending:
            if not self.is_caller and not self._num_sent:
                self._send(Accepted())

    def send(self, frame: Frame) -> None:
        """Queue ``frame``, behind `Accepted`. Never waits, never raises; lost if all is broken."""
        if not isinstance(frame, Refusal):
            self.accept()
        with self._sending:  # in the order of their numbers
            self._send(frame)

    def finish(self) -> None:
        """Send nothing more after what is queued."""
        self._stream.finish()

    def cancel(self) -> None:
        """Break the stream now, at both ends."""
        self._stream.cancel()

    def prove(self, ticket: str) -> str:
        """Return what shows, where ``ticket`` is asked for, that it comes from one of the two."""
        return hmac.digest(self._key, f"ticket {ticket}".encode(), "sha256").hex()

    def __iter__(self) -> Iterator[Frame]:
        for message in self._messages:
            yield decode(self._opened(message))

    def _send(self, frame: Frame) -> None:
        data = encode(frame)
        self._stream.send(data + self._tag(self._outgoing, self._num_sent, data))
        self._num_sent += 1

    def _opened(self, message: bytes) -> bytes:
        """Return the frame in ``message``, of which nothing is looked at before its tag."""
        if len(message) > MAX_FRAME_BYTES + TAG_BYTES:
            raise FrameError(f"a frame of {len(message)} bytes")
        data, tag = message[:-TAG_BYTES], message[-TAG_BYTES:]
        if not hmac.compare_digest(tag, self._tag(self._incoming, self._num_received, data)):
            raise FrameError("a frame that its authenticator does not fit")
        self._num_received += 1
        return data

    def _tag(self, direction: bytes, number: int, data: bytes) -> bytes:
        text = b"%s %d " % (direction, number) + data
        return hmac.digest(self._key, text, "sha256")[:TAG_BYTES]


def call(stream: Stream, identity: Identity, peer: Member) -> tuple[Hello, AuthenticatedStream]:
    """Introduce ourselves to ``peer``, who should be at the other end of ``stream``.

    Returns:
        What it says about itself, and the stream for all that will be said from now on.

    Raises:
        RefusedError: One side does not take the other.
        StreamError: Nobody is there, or it went away.
        FrameError: Whoever is there speaks something else.
    """
    messages = iter(stream)
    said: list[Frame] = [identity.hello()]
    stream.send(encode(said[0]))
    said.append(_expect(Challenge, messages))
    said.append(Proof(proof=identity.prove("caller", said)))
    stream.send(encode(said[-1]))
    welcome = _expect(Welcome, messages)
    said.append(welcome.hello)
    identity.check_proof(welcome.proof, "other", said)
    identity.check(welcome.hello, peer)
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
        # The proof first: what a stranger guesses about the job is neither looked at nor answered.
        identity.check_proof(proof.proof, "caller", said[:-1])
        identity.check(hello)
        identity.check_hosts(hello)
    except RefusedError as error:
        stream.send(encode(refusal(error)))
        raise
    mine = identity.hello()
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
        # Quoted, for it may be a stranger's text: no lines of its own, no escapes of terminals.
        reason = frame.reason[:MAX_QUOTED_CHARACTERS]
        raise RefusedError(f"turned this process away: {reason!r}", frame.is_final)
    if not isinstance(frame, kind):
        raise FrameError(f"a {type(frame).__name__} frame instead of {kind.__name__}")
    return frame
