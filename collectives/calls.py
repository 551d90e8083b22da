"""What a rank asks for: how error texts speak of it, and the header by which it goes on the wire.

A message is a header, a payload, and zeros up to the next multiple of 64 bytes. The header is
compared as a whole with the one expected, before the payload is touched, so that ranks notice when
they are not doing the same:

    offset  bytes
         0      4   magic and byte order
         4      4   kind of message
         8      8   tag of the communicator
        16      8   sequence number of the call in this communicator
        24     16   digest of the call (operation, name, length, dtype, op, root)
        40      8   payload bytes
        48     16   zeros
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np

from .arrays import Op
from .stacks import call_site

ANY_LENGTH = -1
RECORD_BYTES = 448
_DIGEST_BYTES = 16
HEADER_BYTES = 64
MAX_PAYLOAD_BYTES = 1 << 40
_MAGIC = b"PLM1" if sys.byteorder == "little" else b"PLB1"
_LAYOUT = struct.Struct("<4sIQQ16sQ16x")
_SEQUENCE = struct.Struct("<Q")
_SEQUENCE_OFFSET = 16
RULE = "All ranks must make the same calls in the same order, with equal shapes, dtypes and ops."


@dataclass(frozen=True)
class Call:
    """A call, as all ranks must make it.

    Attributes:
        operation, name: What is called.
        what: All else that must agree, in words.
        num_bytes: Its size.
        site: Where this rank has called it first ("/home/me/train.py:12"), which need not agree.
    """

    operation: str
    name: str
    what: str = ""
    num_bytes: int = 0
    site: str = field(default="", compare=False)

    @cached_property
    def text(self) -> str:
        """The call in words; ranks whose texts are equal do the same."""
        return f"{self.operation} '{self.name}'" + (f" of {self.what}" if self.what else "")

    @property
    def account(self) -> str:
        """The text, and where the call was first made, if that is known."""
        return self.text + (f" (first at {self.site})" if self.site else "")

    @cached_property
    def digest(self) -> bytes:
        """Sixteen bytes that stand for the text."""
        return blake2b(self.text.encode(), digest_size=_DIGEST_BYTES).digest()

    @property
    def record(self) -> bytes:
        """The digest and the account in `RECORD_BYTES` bytes, the account cut or padded."""
        return (self.digest + self.account.encode())[:RECORD_BYTES].ljust(RECORD_BYTES, b"\0")

    def describe(self, step: int | None) -> str:
        """Return the call with size and step: "all_reduce 'bucket 3' (25.0 MB, step 1841)"."""
        about = [_readable(self.num_bytes)] if self.num_bytes else []
        about += [] if step is None else [f"step {step}"]
        return f"{self.operation} '{self.name}'" + (f" ({', '.join(about)})" if about else "")


NOTHING = Call("nothing", "")


class Signature(NamedTuple):
    """What ranks must agree on in a call; a shape begins with `ANY_LENGTH` where it may differ.

    `shared` is the number of the array in memory that they share, 0 for memory of their own.
    `on_gpu` is whether the arrays are in the memory of GPUs: those of all ranks, or of none.
    """

    operation: str
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    op: Op = Op.SUM
    root: int = 0
    shared: int = 0
    on_gpu: bool = False

    @property
    def call(self) -> Call:
        """The call in words, made by the user's line that is being run: ask once for each."""
        array = _described(self.dtype, self.shape) + (" on a GPU" if self.on_gpu else "")
        match self.operation:
            case "barrier" | "split":
                what = ""
            case "broadcast":
                what = f"{array} from rank {self.root}"
            case "all_gather" | "empty":
                what = array
            case _:
                where = f", shared array {self.shared}" if self.shared else ""
                what = f"{array}, op {self.op.value}{where}"
        num_bytes = 0 if ANY_LENGTH in self.shape else math.prod(self.shape) * self.dtype.itemsize
        return Call(self.operation, self.name, what, num_bytes, call_site())


def transfer_call(
    name: str, dtype: np.dtype[Any], shape: Sequence[int], source: int, to: int
) -> Call:
    """Return the call that both ends of a `send` and `receive` make."""
    what = f"{_described(dtype, shape)} from rank {source} to rank {to}"
    return Call("send", name, what, math.prod(shape) * dtype.itemsize)


def _described(dtype: np.dtype[Any], shape: Sequence[int]) -> str:
    lengths = ("any length" if length == ANY_LENGTH else str(length) for length in shape)
    return f"{dtype.name}[{', '.join(lengths)}]"


def is_record_of(record: bytes, call: Call) -> bool:
    """Whether the rank that sent a `Call.record` makes this call, from whatever line."""
    return record[:_DIGEST_BYTES] == call.digest


def record_text(record: bytes) -> str:
    """Return the text of a `Call.record`, whatever it contains."""
    return record[_DIGEST_BYTES:].rstrip(b"\0").decode(errors="replace")


def differing_calls(callers: Iterable[tuple[str, str]]) -> str:
    """Return who called what, as an error text, from names of ranks and texts of calls."""
    groups: dict[str, list[str]] = {}
    for name, text in callers:
        groups.setdefault(text, []).append(name)
    said = "; ".join(f"{', '.join(names)} called {text}" for text, names in groups.items())
    return f"the ranks do not call the same collective: {said}. {RULE}"


class Kind(IntEnum):
    """What follows the header: the payload, the text of the call, or the text and the payload."""

    DATA = 1
    FIRST_USE = 2
    DIRECT = 3


@dataclass(frozen=True)
class Header:
    """A header that came in, taken apart."""

    kind: int
    tag: int
    sequence: int
    digest: bytes
    num_bytes: int


def pack_header(kind: Kind, tag: int, sequence: int, digest: bytes, num_bytes: int) -> bytearray:
    return bytearray(_LAYOUT.pack(_MAGIC, kind, tag, sequence, digest, num_bytes))


def set_sequence(header: bytearray | memoryview, sequence: int) -> None:
    _SEQUENCE.pack_into(header, _SEQUENCE_OFFSET, sequence)


def unpack_header(data: memoryview) -> Header | None:
    """Return the header in ``data``, or None if this is none of ours."""
    magic, kind, tag, sequence, digest, num_bytes = _LAYOUT.unpack(data)
    if magic != _MAGIC or num_bytes > MAX_PAYLOAD_BYTES:
        return None
    return Header(kind, tag, sequence, digest, num_bytes)


def padding(num_bytes: int) -> int:
    """Return how many zeros follow a payload of ``num_bytes``."""
    return -num_bytes % HEADER_BYTES


def child_tag(tag: int, num_splits: int, color: int) -> int:
    """Return the tag of a communicator split from the one with ``tag``."""
    text = f"{tag}/{num_splits}/{color}".encode()
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def _readable(num_bytes: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if num_bytes >= scale:
            return f"{num_bytes / scale:.1f} {unit}"
    return f"{num_bytes} bytes"
