"""The messages in the index of a TensorFlow checkpoint, and the keys of slices.

tensorflow/core/protobuf/tensor_bundle.proto and trackable_object_graph.proto. A damaged message
raises ValueError or struct.error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from ..formats import protobuf

_WORD32: Final = struct.Struct("<I")

Bounds = tuple[tuple[int, int], ...]


class BundleEntry(NamedTuple):
    """A `BundleEntryProto`; `slices` holds (start, length) along each axis, -1 for a whole axis."""

    dtype: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    slices: tuple[Bounds, ...] = ()


def num_data_files(value: bytes) -> int:
    """The number of data files that a `BundleHeaderProto` names."""
    found = {number: content for number, _, content in protobuf.fields(memoryview(value))}
    if found.get(2, 0) != 0:
        raise ValueError("its numbers are big-endian, which is not supported")
    num_shards = found.get(1, 0)
    if not isinstance(num_shards, int) or not 1 <= num_shards <= 99_999:
        raise ValueError(f"it names {num_shards!r} data files")
    return num_shards


def parse_entry(message: memoryview) -> BundleEntry:
    """A `BundleEntryProto`."""
    numbers = {1: "dtype", 3: "shard", 4: "offset", 5: "size"}
    values: dict[str, Any] = {}
    slices = []
    for number, _, value in protobuf.fields(message):
        if number in numbers and isinstance(value, int):
            values[numbers[number]] = protobuf.signed(value)
        elif isinstance(value, int):
            continue
        elif number == 2:
            values["shape"] = _parsed_shape(value)
        elif number == 6:
            values["crc"] = _WORD32.unpack(value)[0]
        elif number == 7:
            slices.append(_parsed_slice(value))
    return BundleEntry(**values, slices=tuple(slices))


def _parsed_shape(message: memoryview) -> tuple[int, ...]:
    """A `TensorShapeProto`; an axis without a size has 0."""
    axes = (axis for number, _, axis in protobuf.fields(message) if number == 2)
    return tuple(_numbers(axis).get(1, 0) for axis in axes)


def _parsed_slice(message: memoryview) -> Bounds:
    """A `TensorSliceProto`."""
    extents = [extent for number, _, extent in protobuf.fields(message) if number == 1]
    found = map(_numbers, extents)
    return tuple((numbers.get(1, 0), numbers.get(2, -1)) for numbers in found)


def _numbers(message: protobuf.WireValue) -> dict[int, int]:
    """The fields of a message that are numbers."""
    found = protobuf.fields(_message(message))
    return {number: protobuf.signed(value) for number, _, value in found if isinstance(value, int)}


def named_tensors(graph: memoryview) -> Iterator[tuple[str, str]]:
    """(full_name, checkpoint_key) of each tensor of a `TrackableObjectGraph`."""
    for number, _, node in protobuf.fields(graph):
        if number != 1:
            continue
        for field, _, attribute in protobuf.fields(_message(node)):
            if field != 2:
                continue
            texts = {
                place: bytes(_message(text)).decode()
                for place, _, text in protobuf.fields(_message(attribute))
                if place in (2, 3)
            }
            if texts.get(2) and texts.get(3):
                yield texts[2], texts[3]


def _message(value: protobuf.WireValue) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a number stands for a message")
    return value


def slice_key(name: str, bounds: Bounds) -> bytes:
    """The key of a slice: name and bounds in an encoding whose order is that of the values.

    The encoding is that of tensorflow/core/lib/strings/ordered_code: 0, the name, the number of
    axes, and for each axis its start and its length.
    """
    escaped = name.encode().replace(b"\0", b"\0\xff")  # 0xff, escaped too, is not in UTF-8
    key = _ordered_natural(0) + escaped + b"\0\1" + _ordered_natural(len(bounds))
    return key + b"".join(_ordered_integer(number) for pair in bounds for number in pair)


def _ordered_natural(number: int) -> bytes:
    """A number of 0 or more: how many bytes follow, and they, the highest first."""
    digits = number.to_bytes((number.bit_length() + 7) // 8, "big")
    return bytes([len(digits)]) + digits


def _ordered_integer(number: int) -> bytes:
    """A signed number; the count of leading ones of its first bits tells how many bytes it takes.

    A negative number is the complement of the encoding of `~number`.
    """
    magnitude = ~number if number < 0 else number
    size = max(1, magnitude.bit_length() // 7 + 1)
    lead = ((1 << size) - 1) << (8 * size - size)
    encoded = magnitude | lead
    if number < 0:
        encoded = ~encoded & ((1 << (8 * size)) - 1)
    return encoded.to_bytes(size, "big")
