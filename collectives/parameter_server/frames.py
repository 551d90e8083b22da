"""What a trainer and a parameter server send each other, and how it looks on a link.

A frame is a header, a body, a table of arrays, zeros up to the next multiple of 64 bytes, and the
arrays' elements in C order, each array with zeros behind it up to the next multiple of 64. Numbers
are little endian. The header:

    offset  bytes
         0      4   magic
         4      2   protocol version
         6      2   kind of frame
         8      8   a hash of the job's id
        16      8   the first 8 bytes of the server's incarnation
        24      8   sequence number of the request within the connection
        32      4   verb
        36      4   body bytes
        40      4   number of arrays
        44      4   number of places for the reply
        48      8   bytes of the arrays in the frame, with the zeros behind them
        56      8   1 if the sender has found the memory that it was offered, else 0

An entry of the table: 1 byte dtype (position in `DTYPES`), 1 byte number of dimensions, 6 bytes
place, 8 bytes size without the zeros behind it, and 8 times 8 bytes of shape, unused ones 0. An
array with a place is not in the frame: it lies in memory that both ends have (`places`). Behind the
entries of the arrays there are those of places for arrays of the reply, in front of each of them
the 8 bytes of which array it is for.

Nothing of it is believed: `unpack_header` and `unpack_table` see everything that decides about
memory before any is taken.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple, Protocol, final

import numpy as np

from ..members import Member
from ..session import FrameError

MAX_BODY_BYTES = 1 << 20
MAX_ARRAYS = 1 << 14
MAX_DIMS = 8
MAX_VERB = (1 << 16) - 1
PROTOCOL_VERSION = 3
HEADER_BYTES = 64
DEFAULT_MAX_FRAME_BYTES = 4 << 30

DTYPES = tuple(
    np.dtype(name)
    for name in (
        *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
        *("float16", "float32", "float64", "complex64", "complex128"),
    )
)
_CODES = {dtype: code for code, dtype in enumerate(DTYPES)}
_MAGIC = b"PLPS"
_PREAMBLE = struct.pack("<4sH", _MAGIC, PROTOCOL_VERSION)
_HEADER = struct.Struct("<6sH16sQIIIIQQ")
_PREAMBLE_FIELDS = struct.Struct("<4sH")
_CONNECTION = struct.Struct("<QQ")
_ENTRY = struct.Struct(f"<BB6sQ{MAX_DIMS}Q")
_INDEX = struct.Struct("<Q")
_PLACE_BYTES = 6
_WANTED_BYTES = _INDEX.size + _ENTRY.size
_ZEROS = bytes(HEADER_BYTES)
_NONE: Mapping[Any, Any] = {}


Array = np.ndarray[Any, np.dtype[Any]]

Client = Member
"""A trainer as a server knows it: rank among the trainers, task and address."""


@final
@dataclass(slots=True, eq=False)
class Message:
    """A request or a reply.

    Attributes:
        verb: What it is; 0 to `MAX_VERB`. What a verb means is no matter of the transport.
        body: At most `MAX_BODY_BYTES`. The transport does not look into it.
        arrays: C-contiguous, of numbers or bool, of at most `MAX_DIMS` dimensions; at most
            `MAX_ARRAYS` of them. They are sent straight from their memory.
    """

    verb: int
    body: bytes = b""
    arrays: Sequence[Array] = ()

    @property
    def num_bytes(self) -> int:
        """Size of the body and the arrays."""
        return len(self.body) + sum([array.nbytes for array in self.arrays])


class RequestHandler(Protocol):
    """What a server does about its clients.

    Requests are handled by a thread of each connection, several at once. Of those who come and go
    it is told one at a time, and should soon return.
    """

    def handle(self, client: Client, message: Message) -> Message:
        """Answer a request. What this raises is what the client is told.

        Arrays of the request may be changed by the client as soon as it has the answer: what is
        kept beyond that and does not own its memory (`flags.owndata`) is copied first.
        """

    def joined(self, client: Client) -> None:
        """A client's process has connected: told before its first request."""

    def lost(self, client: Client, reason: str) -> None:
        """Its last connection has ended without a goodbye; a request may still be under way."""

    def left(self, client: Client) -> None:
        """Its last connection has ended with a goodbye."""


class FrameKind(IntEnum):
    """What a frame is for.

    A request is answered by a reply or a refusal (body: JSON of "kind" and "text"). A client says
    goodbye when it needs the connection no longer; whoever closes a connection because of what it
    was sent says so first (body: the reason as text). In front of its first request it may offer
    memory (body: what is needed to find it); all replies say whether that was found.
    """

    REQUEST = 1
    REPLY = 2
    REFUSAL = 3
    GOODBYE = 4
    CLOSING = 5
    OFFER = 6


_KINDS = frozenset(int(kind) for kind in FrameKind)


@final
@dataclass(frozen=True)
class ConnectionId:
    """What all frames of a connection have in common.

    Attributes:
        job: A hash of the job's id.
        incarnation: From the server's incarnation.
    """

    job: int
    incarnation: int

    @cached_property
    def packed(self) -> bytes:
        """As it lies in each header."""
        return _CONNECTION.pack(self.job, self.incarnation)

    @classmethod
    def of(cls, job_id: str, incarnation: str) -> ConnectionId:
        """Return that of a job with a server; the incarnation is in hexadecimal."""
        job = int.from_bytes(blake2b(job_id.encode(), digest_size=8).digest(), "little")
        return cls(job, int(incarnation[:16], 16))


class Header(NamedTuple):
    """A header that came in and is right as far as it goes.

    Attributes:
        num_table_bytes: Size of the entries.
        num_head_bytes: Of body, table and the zeros behind them.
    """

    kind: int
    sequence: int
    verb: int
    num_body_bytes: int
    num_arrays: int
    num_wanted: int
    num_array_bytes: int
    has_memory: bool
    num_table_bytes: int
    num_head_bytes: int


class ArrayEntry(NamedTuple):
    """An array that is to come: in the frame, or, if it is not 0, at a place in shared memory."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    num_bytes: int
    num_padded_bytes: int
    place: int

    def fits(self, array: Array) -> bool:
        """Whether it can be received into ``array``."""
        is_like = array.dtype == self.dtype and array.shape == self.shape
        return is_like and array.flags.carray  # contiguous and writable


class Table(NamedTuple):
    """What is known of the arrays of a frame before they come.

    Attributes:
        entries: The arrays.
        wanted: Where arrays of the reply are to be put, by their position in it.
        num_bytes_in_frame: Of those that are in the frame, with the zeros behind them.
        num_bytes: Of all.
    """

    entries: Sequence[ArrayEntry]
    wanted: Mapping[int, ArrayEntry]
    num_bytes_in_frame: int
    num_bytes: int


def padded(num_bytes: int) -> int:
    """Return the next multiple of 64."""
    return -(-num_bytes // HEADER_BYTES) * HEADER_BYTES


def pack(
    kind: FrameKind,
    connection: ConnectionId,
    sequence: int,
    message: Message,
    *,
    places: Sequence[int] = (),
    wanted: Mapping[int, tuple[Array, int]] = _NONE,
    has_memory: bool = False,
) -> bytearray:
    """Return all of a frame that precedes the arrays' elements.

    Args:
        kind, connection, sequence, message: What it is.
        places: Of each of the arrays, where it lies if it is not in the frame; else 0. None are
            given where all are in the frame.
        wanted: For arrays of the reply, by their position, where they are to be put.
        has_memory: Whether this end has found the memory that it was offered.

    Raises:
        TypeError: An array has a dtype that cannot be sent.
        ValueError: The message is too large, or an array is not C-contiguous.
    """
    if len(message.body) > MAX_BODY_BYTES:
        raise ValueError(
            f"a body may have {MAX_BODY_BYTES} bytes; this one has {len(message.body)}"
        )
    if len(message.arrays) > MAX_ARRAYS:
        raise ValueError(f"a message may have {MAX_ARRAYS} arrays, not {len(message.arrays)}")
    table, num_array_bytes = _packed_table(message.arrays, places, wanted)
    head = bytearray(
        _HEADER.pack(
            _PREAMBLE,
            kind,
            connection.packed,
            sequence,
            message.verb,
            len(message.body),
            len(message.arrays),
            len(wanted),
            num_array_bytes,
            has_memory,
        )
    )
    head += message.body
    head += table
    head += bytes(-len(head) % HEADER_BYTES)
    return head


def unpack_header(data: memoryview, connection: ConnectionId, max_frame_bytes: int) -> Header:
    """Return the header in ``data``.

    Raises:
        FrameError: It is none of this connection, or announces more than is allowed.
    """
    preamble, kind, packed, sequence, verb, *sizes = _HEADER.unpack(data)
    num_body_bytes, num_arrays, num_wanted, num_array_bytes, has_memory = sizes
    if preamble != _PREAMBLE or packed != connection.packed:
        raise FrameError(_what_it_is(preamble, packed, connection))
    if kind not in _KINDS or has_memory > 1 or verb > MAX_VERB:
        raise FrameError(f"a frame of kind {kind} and verb {verb} with a wrong header")
    if num_body_bytes > MAX_BODY_BYTES:
        raise FrameError(f"a body of {num_body_bytes} bytes; {MAX_BODY_BYTES} are allowed")
    if max(num_arrays, num_wanted) > MAX_ARRAYS:
        raise FrameError(f"{max(num_arrays, num_wanted)} arrays; {MAX_ARRAYS} are allowed")
    num_table_bytes = num_arrays * _ENTRY.size + num_wanted * _WANTED_BYTES
    num_head_bytes = padded(num_body_bytes + num_table_bytes)
    check_size(num_head_bytes + num_array_bytes, max_frame_bytes)
    return Header(
        kind,
        sequence,
        verb,
        num_body_bytes,
        num_arrays,
        num_wanted,
        num_array_bytes,
        has_memory == 1,
        num_table_bytes,
        num_head_bytes,
    )


def _what_it_is(preamble: bytes, packed: bytes, connection: ConnectionId) -> str:
    """What came instead of a frame of the connection."""
    magic, version = _PREAMBLE_FIELDS.unpack(preamble)
    if magic != _MAGIC:
        return "no frame of a parameter server"
    if version != PROTOCOL_VERSION:
        return f"a frame of version {version} instead of {PROTOCOL_VERSION}"
    if packed[:8] != connection.packed[:8]:
        return "a frame of another job"
    return "a frame for another incarnation of the server"


def check_size(num_bytes: int, max_frame_bytes: int) -> None:
    """Raise a `FrameError` if a frame, with arrays in shared memory, is larger than allowed."""
    if num_bytes > max_frame_bytes:
        raise FrameError(f"a frame of {num_bytes} bytes; {max_frame_bytes} are allowed")


def unpack_table(head: memoryview, header: Header) -> Table:
    """Return what the table behind the body says about the arrays to come, and about the reply's.

    Raises:
        FrameError: It makes no sense, or does not agree with the header.
    """
    start, stop = header.num_body_bytes, header.num_body_bytes + header.num_table_bytes
    table = _table_of(bytes(head[start:stop]), header.num_arrays)
    if table.num_bytes_in_frame != header.num_array_bytes:
        raise FrameError("arrays whose sizes do not add up to that of the frame")
    if head[stop:] != _ZEROS[: len(head) - stop]:
        raise FrameError("something other than zeros behind a table")
    return table


def elements(array: Array) -> memoryview:
    """Return the bytes of a C-contiguous array in place."""
    return array.reshape(-1).view(np.uint8).data


def check_elements(array: Array) -> None:
    """Check what came in for ``array``: there is nothing wrong with any number.

    Raises:
        FrameError: A bool is neither 0 nor 1.
    """
    if array.dtype.kind == "b" and array.size and int(array.view(np.uint8).max()) > 1:
        raise FrameError("an array of bool with other bytes than 0 and 1")


def _packed_table(
    arrays: Sequence[Array], places: Sequence[int], wanted: Mapping[int, tuple[Array, int]]
) -> tuple[bytes, int]:
    """The table, and the size of what follows in the frame."""
    table, num_bytes = list[bytes](), 0
    for array, place in zip(arrays, places or (0,) * len(arrays), strict=True):
        if not array.flags.c_contiguous:
            raise ValueError("arrays must be C-contiguous to be sent: use np.ascontiguousarray")
        table.append(_packed_entry(array.dtype, array.shape, place))
        if not place:
            num_bytes += -(-array.nbytes // HEADER_BYTES) * HEADER_BYTES  # padded, without a call
    for index, (array, place) in wanted.items():
        table += [_INDEX.pack(index), _packed_entry(array.dtype, array.shape, place)]
    return b"".join(table), num_bytes


# Most arrays come again with each message, with the same shape: their entries are made, and looked
# through, once. Where a model reads no rows whole tables come again.
@lru_cache(maxsize=1 << 12)
def _packed_entry(dtype: np.dtype[Any], shape: tuple[int, ...], place: int) -> bytes:
    code = _CODES.get(dtype)
    if code is None or (sys.byteorder == "big" and dtype.itemsize > 1):
        raise TypeError(
            f"arrays of {dtype} cannot be sent; they must be of bool or of native integers, "
            "floating point or complex numbers"
        )
    if len(shape) > MAX_DIMS:
        raise ValueError(f"arrays may have {MAX_DIMS} dimensions; this one has {len(shape)}")
    num_bytes, unused = math.prod(shape) * dtype.itemsize, (0,) * (MAX_DIMS - len(shape))
    where = place.to_bytes(_PLACE_BYTES, "little")
    return _ENTRY.pack(code, len(shape), where, num_bytes, *shape, *unused)


@lru_cache(maxsize=64)
def _table_of(packed: bytes, num_arrays: int) -> Table:
    size = _ENTRY.size
    middle, wanted = num_arrays * size, {}
    entries = tuple([_entry_of(packed[start : start + size]) for start in range(0, middle, size)])
    for start in range(middle, len(packed), _WANTED_BYTES):
        (index,) = _INDEX.unpack_from(packed, start)
        wanted[index] = _entry_of(packed[start + _INDEX.size : start + _WANTED_BYTES])
    num_bytes = num_bytes_in_frame = 0
    for entry in entries:
        num_bytes += entry.num_padded_bytes
        if not entry.place:
            num_bytes_in_frame += entry.num_padded_bytes
    return Table(entries, wanted, num_bytes_in_frame, num_bytes)


@lru_cache(maxsize=1 << 12)
def _entry_of(packed: bytes) -> ArrayEntry:
    code, ndim, where, num_bytes, *lengths = _ENTRY.unpack(packed)
    shape = tuple(lengths)
    if code >= len(DTYPES):
        raise FrameError(f"an array of unknown dtype {code}")
    if ndim > MAX_DIMS or any(shape[ndim:]):
        raise FrameError(f"an array of {ndim} dimensions with a wrong entry")
    dtype, used = DTYPES[code], shape[:ndim]
    # NumPy does not take a shape whose non-zero lengths alone are too much, be it empty.
    if math.prod(used) * dtype.itemsize != num_bytes or _extent(used) * dtype.itemsize >= 1 << 62:
        raise FrameError(f"an array of {dtype} and shape {used} with a size of {num_bytes} bytes")
    return ArrayEntry(dtype, used, num_bytes, padded(num_bytes), int.from_bytes(where, "little"))


def _extent(shape: Sequence[int]) -> int:
    return math.prod(length for length in shape if length)
