"""Reading and writing the wire format of Protocol Buffers, as far as tf.train.Example needs it.

A message is a sequence of fields: a tag (field number and wire type as a varint) and a value
(https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5

_MAX_VARINT_BYTES = 10
_WORD = (1 << 64) - 1
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}

Value = int | memoryview


def fields(message: memoryview) -> Iterator[tuple[int, int, Value]]:
    """The fields of a message: field number, wire type, and a number or the bytes.

    Raises:
        ValueError: the message is cut off or no message.
    """
    position, end = 0, len(message)
    while position < end:
        tag, position = _varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, position = _varint(message, position)
            yield number, wire_type, value
            continue
        if wire_type == BYTES:
            size, position = _varint(message, position)
        elif wire_type in _FIXED_BYTES:
            size = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"field {number} has the unknown wire type {wire_type}")
        if size > end - position:
            raise ValueError(f"field {number} is cut off: {size} bytes, {end - position} left")
        yield number, wire_type, message[position : position + size]
        position += size


def packed_varints(data: memoryview) -> NDArray[np.int64]:
    """The signed numbers of a packed field."""
    values = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(values < 0x80)
    if len(values) and (not len(ends) or ends[-1] != len(values) - 1):
        raise ValueError("a packed number is cut off")
    starts = np.concatenate([[0], ends[:-1] + 1]) if len(ends) else ends
    sizes = ends - starts + 1
    if len(sizes) and sizes.max() > _MAX_VARINT_BYTES:
        raise ValueError(f"a packed number takes more than {_MAX_VARINT_BYTES} bytes")
    numbers = np.zeros(len(ends), np.uint64)
    for place in range(int(sizes.max(initial=0))):
        long_enough = sizes > place
        bits = (values[starts[long_enough] + place] & 0x7F).astype(np.uint64)
        numbers[long_enough] |= bits << np.uint64(7 * place)
    return numbers.view(np.int64)


def signed(number: int) -> int:
    """A varint's bits as a signed 64-bit number."""
    return number - (1 << 64) if number >> 63 else number


def varint(number: int) -> bytes:
    """A number as a varint; negative ones take ten bytes."""
    number &= _WORD
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def bytes_field(number: int, value: bytes) -> bytes:
    """A field of bytes, text, a message or packed numbers."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


def float_of(data: memoryview) -> float:
    """The float of a field of four bytes."""
    return float(struct.unpack("<f", data)[0])


def _varint(message: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, and the position behind it."""
    number = 0
    for place in range(_MAX_VARINT_BYTES):
        if position >= len(message):
            raise ValueError("the message is cut off inside a number")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return number & _WORD, position
    raise ValueError(f"a number takes more than {_MAX_VARINT_BYTES} bytes")
