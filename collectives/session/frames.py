"""What the two ends of a session say to each other, and how it looks on the wire.

A frame is one gRPC message: magic, protocol version, kind and body size (12 bytes, little endian),
then a JSON body. Nothing of a body is believed before its schema has been checked; nothing in it is
ever executed.
"""

from __future__ import annotations

import struct
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

PROTOCOL_VERSION = 4
MAX_FRAME_BYTES = 32 << 10
MAX_REASON_CHARACTERS = 2000
MAX_TABLE_ENTRIES = 64

_MAGIC = b"PLCT"
_HEADER = struct.Struct("<4sHHI")

_Text = Annotated[str, Field(max_length=256)]
_Reason = Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)]
_Hex = Annotated[str, Field(pattern=r"^([0-9a-f]{2}){4,32}$")]
_Rank = Annotated[int, Field(ge=0, lt=1 << 20)]
_Kind = Annotated[str, Field(pattern=r"^[a-z0-9]{1,16}$")]


class FrameError(Exception):
    """Bytes that are no frame of ours."""


class VersionError(FrameError):
    """A frame of another protocol version."""


class Frame(BaseModel):
    """What all frames have in common."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Hello(Frame):
    """Who speaks and what it believes about the job. Both sides say it.

    Attributes:
        job_id: Name of the job.
        size: Number of members, if there is a fixed list of them; else 0.
        members: Fingerprint of that list; empty if there is none.
        rank: Who says it, by its rank among those of its kind.
        task: Its name.
        address: Where it listens; empty if it does not.
        incarnation: Random, new in each process: tells a process from its predecessor.
        host: Fingerprint of the host.
        is_loopback: Whether it listens where only its own host can reach it.
        links: The links that it can use, best first.
        nonce: Random, new in each conversation.
    """

    job_id: _Text
    size: _Rank
    members: Annotated[str, Field(pattern=r"^([0-9a-f]{2}){0,32}$")]
    rank: _Rank
    task: _Text
    address: _Text
    incarnation: _Hex
    host: _Hex
    is_loopback: bool
    links: Annotated[tuple[_Kind, ...], Field(max_length=8)]
    nonce: _Hex


class Challenge(Frame):
    """The answer to `Hello`, which tells nothing yet. ``nonce`` is random."""

    nonce: _Hex


class Proof(Frame):
    """The caller's proof that it knows the token."""

    proof: _Hex


class Welcome(Frame):
    """The other's own `Hello`, and the proof that it knows the token."""

    hello: Hello
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


class WantLink(Frame):
    """The end that has called asks the other one to offer links."""


class Offer(Frame):
    """The end that was called offers a link.

    Attributes:
        kind: What it is made of.
        address: Where to find it: a port, a socket's name.
        ticket: Random; a proof made of it is to be shown there.
    """

    kind: _Kind
    address: Annotated[str, Field(max_length=128)]
    ticket: _Hex


class Answer(Frame):
    """The end that has called has connected, or could not. ``problem`` is empty if it has."""

    kind: _Kind
    problem: _Reason


class Linked(Frame):
    """The end that was called has checked the link: this is the one.

    ``why`` tells what was tried before.
    """

    kind: _Kind
    why: _Reason


class NoLink(Frame):
    """No link that both can use works."""

    reason: _Reason


class Heartbeat(Frame):
    """The sender is alive."""


class GivingUp(Frame):
    """The sender has met an error and takes no further part."""

    reason: _Reason


class Goodbye(Frame):
    """The sender's work is done; it closes in order."""


class ShowStacks(Frame):
    """Somebody has been waiting for long: all are to log what their threads do, and pass this on.

    ``why`` tells who, for whom, and in what.
    """

    why: _Reason


class Parent(Frame):
    """Rank 0 tells a member where its parent listens; empty while that has not come."""

    address: _Text


class Missing(Frame):
    """Rank 0 tells who has not come yet, and what is known about it."""

    names: _Reason
    remarks: _Reason


class Ready(Frame):
    """The sender tells its parent for whom it waits; empty when all below it are there."""

    waiting_for: _Reason


class Entry(BaseModel):
    """What all members know of each one. See `Hello`."""

    model_config = Frame.model_config

    address: _Text
    incarnation: _Hex
    host: _Hex


class Table(Frame):
    """All members are there; this is what is known of those from rank ``first`` on."""

    first: _Rank
    entries: Annotated[tuple[Entry, ...], Field(max_length=MAX_TABLE_ENTRIES)]


class Lost(Frame):
    """A member was lost; passed on by whoever hears of it first."""

    rank: _Rank
    reason: _Reason


class Left(Frame):
    """A member has said goodbye; passed on by whoever hears of it first."""

    rank: _Rank


_KINDS: tuple[type[Frame], ...] = (
    Hello,
    Challenge,
    Proof,
    Welcome,
    Accepted,
    Refusal,
    Attach,
    WantLink,
    Offer,
    Answer,
    Linked,
    NoLink,
    Heartbeat,
    GivingUp,
    Goodbye,
    Parent,
    Missing,
    Ready,
    Table,
    Lost,
    Left,
    ShowStacks,
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
        raise VersionError(
            f"speaks protocol version {version}, this is {PROTOCOL_VERSION}; install one version "
            "everywhere"
        )
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
