"""What members say to each other on the control channel, and how it looks on the wire.

A frame is one gRPC message: magic, protocol version, kind and body size (12 bytes, little endian),
then a JSON body. Nothing of a body is believed before its schema has been checked; nothing in it is
ever executed.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..link import LinkKind
from ..members import Member

PROTOCOL_VERSION = 2
MAX_FRAME_BYTES = 32 << 10
MAX_REASON_CHARACTERS = 2000

_MAGIC = b"PLCT"
_HEADER = struct.Struct("<4sHHI")

_Text = Annotated[str, Field(max_length=256)]
_Reason = Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)]
_Hex = Annotated[str, Field(pattern=r"^([0-9a-f]{2}){4,32}$")]
_Rank = Annotated[int, Field(ge=0, lt=1 << 20)]


class FrameError(Exception):
    """Bytes that are no frame of ours."""


class VersionError(FrameError):
    """A frame of another protocol version."""


class Frame(BaseModel):
    """What all frames have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Hello(Frame):
    """Who calls and what it believes about the job. Both sides say it.

    Attributes:
        purpose: "join" opens the pair's control channel, "greet" only finds out who is there.
        job_id: Name of the job.
        size: Number of members.
        members: Fingerprint of the list of members.
        rank: Who says it.
        incarnation: Random, new in each process: tells a member from its predecessor.
        host: Fingerprint of the host.
        is_loopback: Whether it listens where only its own host can reach it.
        links: The links that it can use, best first.
        nonce: Random, new in each conversation.
    """

    purpose: Literal["join", "greet"]
    job_id: _Text
    size: _Rank
    members: _Hex
    rank: _Rank
    incarnation: _Hex
    host: _Hex
    is_loopback: bool
    links: Annotated[tuple[LinkKind, ...], Field(max_length=8)]
    nonce: _Hex


class Visit(Frame):
    """What a client says to a server before its `Hello`: the members of that are these two.

    Attributes:
        rank: The client's rank among the clients.
        task: Its name.
        address: Its address; empty if it has none.
    """

    rank: _Rank
    task: _Text
    address: _Text


class Challenge(Frame):
    """The answer to `Hello`, which tells nothing yet. ``nonce`` is random."""

    nonce: _Hex


class Welcome(Frame):
    """The other's own `Hello`, and the proof that it knows the token."""

    hello: Hello
    proof: _Hex


class Proof(Frame):
    """The caller's proof that it knows the token."""

    proof: _Hex


class Accepted(Frame):
    """The caller is in."""


class Refusal(Frame):
    """The caller is not in.

    Attributes:
        reason: Why not.
        is_final: Whether trying again is pointless.
    """

    reason: _Reason
    is_final: bool


class Attach(Frame):
    """The first message of a data stream: who opens it, and a proof made of the offer's ticket."""

    rank: _Rank
    ticket: _Hex


class Offer(Frame):
    """The lower rank of a pair offers a link.

    Attributes:
        kind: What it is made of.
        address: Where to find it: a port, a socket's name.
        ticket: Random; a proof made of it is to be shown there.
    """

    kind: LinkKind
    address: Annotated[str, Field(max_length=128)]
    ticket: _Hex


class Answer(Frame):
    """The higher rank has connected, or could not. ``problem`` is empty if it has."""

    kind: LinkKind
    problem: _Reason


class Linked(Frame):
    """The lower rank has checked the link: this is the one. ``why`` tells what was tried before."""

    kind: LinkKind
    why: _Reason


class NoLink(Frame):
    """No link that both can use works."""

    reason: _Reason


class Ready(Frame):
    """The sender has reached all members and has a link to each."""


class Heartbeat(Frame):
    """The sender is alive."""


class Lost(Frame):
    """The sender has lost another member."""

    rank: _Rank
    reason: _Reason


class GivingUp(Frame):
    """The sender has met an error and takes no further part."""

    reason: _Reason


class Goodbye(Frame):
    """The sender's work is done; it closes in order."""


_KINDS: tuple[type[Frame], ...] = (
    Hello,
    Welcome,
    Proof,
    Accepted,
    Refusal,
    Attach,
    Offer,
    Answer,
    Linked,
    NoLink,
    Ready,
    Heartbeat,
    Lost,
    GivingUp,
    Goodbye,
    Visit,
    Challenge,
)
_CODES = {kind: code for code, kind in enumerate(_KINDS, start=1)}


def encode(frame: Frame) -> bytes:
    """Return the bytes of ``frame``."""
    body = frame.model_dump_json().encode()
    return _HEADER.pack(_MAGIC, PROTOCOL_VERSION, _CODES[type(frame)], len(body)) + body


def decode(data: bytes) -> Frame:
    """Return the frame in ``data``.

    Raises:
        VersionError: It comes from another version of this protocol.
        FrameError: It is none.
    """
    if not _HEADER.size <= len(data) <= MAX_FRAME_BYTES:
        raise FrameError(f"a frame has {_HEADER.size} to {MAX_FRAME_BYTES} bytes, not {len(data)}")
    magic, version, code, num_body_bytes = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise FrameError("no frame of paceline's control channel")
    if version != PROTOCOL_VERSION:
        raise VersionError(f"speaks protocol version {version}, this is {PROTOCOL_VERSION}")
    if num_body_bytes != len(data) - _HEADER.size or not 1 <= code <= len(_KINDS):
        raise FrameError(f"a frame of kind {code} with a wrong size")
    try:
        return _KINDS[code - 1].model_validate_json(data[_HEADER.size :])
    except ValidationError as error:
        what = f"{_KINDS[code - 1].__name__} frame"
        raise FrameError(f"a malformed {what}: {error.error_count()} errors") from None


def cut(reason: str) -> str:
    """Return ``reason``, no longer than a frame takes."""
    return reason[:MAX_REASON_CHARACTERS]


def members_fingerprint(members: Sequence[Member]) -> str:
    """Return what two members compare instead of their lists of members."""
    text = "\n".join(f"{member.rank} {member.task} {member.address}" for member in members)
    return blake2b(text.encode(), digest_size=16).hexdigest()
