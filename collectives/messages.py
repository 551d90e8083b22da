"""What precedes the payload on the wire, so that ranks notice when they are not doing the same.

A message is a header, a payload, and zeros up to the next multiple of 64 bytes. The header is
compared as a whole with the one expected, before the payload is touched:

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

import struct
import sys
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

HEADER_BYTES = 64
MAX_PAYLOAD_BYTES = 1 << 40
_MAGIC = b"PLM1" if sys.byteorder == "little" else b"PLB1"
_LAYOUT = struct.Struct("<4sIQQ16sQ16x")
_SEQUENCE = struct.Struct("<Q")
_SEQUENCE_OFFSET = 16


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
    """Return the bytes of a header."""
    return bytearray(_LAYOUT.pack(_MAGIC, kind, tag, sequence, digest, num_bytes))


def set_sequence(header: bytearray | memoryview, sequence: int) -> None:
    """Overwrite the sequence number in a packed header."""
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
