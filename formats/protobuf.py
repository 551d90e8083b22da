"""The wire format of protocol buffers: the fields of a message.

https://protobuf.dev/programming-guides/encoding: a message is a row of fields, each a tag (field
number and wire type as a varint) and a value.
"""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
MAX_VARINT_BYTES = 10
_WORD = (1 << 64) - 1

WireValue = int | memoryview
"""The content of a field: a number, or the bytes of anything else."""


def fields(message: memoryview) -> Iterator[tuple[int, int, WireValue]]:
    """The fields of a message: field number, wire type, and a number or the bytes.

    Raises:
        ValueError: The message is damaged.
    """
    position, end = 0, len(message)
    while position < end:
        tag, position = varint(message, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value, position = varint(message, position)
            yield number, wire_type, value
            continue
        if wire_type == BYTES:
            size, position = varint(message, position)
        elif wire_type in _FIXED_BYTES:
            size = _FIXED_BYTES[wire_type]
        else:
            raise ValueError(f"field {number} has the unknown wire type {wire_type}")
        if size > end - position:
            raise ValueError(f"field {number} is cut off: {size} bytes, {end - position} left")
        yield number, wire_type, message[position : position + size]
        position += size


def varint(message: memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, and the position behind it.

    Raises:
        ValueError: The number is cut off, or longer than 64 bits take.
    """
    number = 0
    for index in range(MAX_VARINT_BYTES):
        if position >= len(message):
            raise ValueError("the message is cut off inside a number")
        byte = message[position]
        position += 1
        number |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return number & _WORD, position
    raise ValueError(f"a number takes more than {MAX_VARINT_BYTES} bytes")


def signed(number: int) -> int:
    """A varint's 64 bits as a signed number."""
    return number - (1 << 64) if number >> 63 else number


def encoded_varint(number: int) -> bytes:
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
    return encoded_varint(number << 3 | BYTES) + encoded_varint(len(value)) + value
