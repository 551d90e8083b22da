"""Sorted tables of keys and values in LevelDB's form.

https://github.com/google/leveldb/blob/main/doc/table_format.md: blocks of entries whose keys share
prefixes, an index block that tells where they are, and a footer that tells where the index is.
Each block has a CRC-32C.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from .crc32c import crc32c, mask
from .protobuf import varint

_MAGIC: Final = 0xDB4775248B80FB57
_FOOTER_BYTES: Final = 48
_BLOCK_TRAILER: Final = struct.Struct("<BI")
_WORD32: Final = struct.Struct("<I")


def table_entries(data: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """The keys and values of a table, in order.

    Raises:
        ValueError: The table is damaged, or its blocks are compressed.
    """
    if len(data) < _FOOTER_BYTES:
        raise ValueError(f"it has {len(data)} bytes, a footer alone takes {_FOOTER_BYTES}")
    footer = data[-_FOOTER_BYTES:]
    if int.from_bytes(footer[-8:], "little") != _MAGIC:
        raise ValueError("it does not end as a table does")
    _, position = _handle(footer, 0)
    (offset, size), _ = _handle(footer, position)
    for _, value in _entries_of(_block(data, offset, size)):
        (offset, size), _ = _handle(memoryview(value), 0)
        yield from _entries_of(_block(data, offset, size))


def _handle(data: memoryview, position: int) -> tuple[tuple[int, int], int]:
    """The (offset, size) of a block, and the position behind it."""
    offset, position = varint(data, position)
    size, position = varint(data, position)
    return (offset, size), position


def _block(data: memoryview, offset: int, size: int) -> memoryview:
    """A block's content, verified."""
    if offset + size + _BLOCK_TRAILER.size > len(data):
        raise ValueError("a block reaches beyond the end")
    compression, crc = _BLOCK_TRAILER.unpack_from(data, offset + size)
    # The checksum covers the byte that names the compression.
    if mask(crc32c(data[offset : offset + size + 1])) != crc:
        raise ValueError("the checksum of a block does not match")
    if compression:
        raise ValueError(f"a block is compressed (kind {compression}), which is not supported")
    return data[offset : offset + size]


def _entries_of(block: memoryview) -> Iterator[tuple[bytes, bytes]]:
    """A block's keys and values; each key repeats the first bytes of the one before."""
    num_restarts = _WORD32.unpack_from(block, len(block) - _WORD32.size)[0]
    end = len(block) - _WORD32.size * (1 + num_restarts)
    key, position = b"", 0
    while position < end:
        num_shared, position = varint(block, position)
        num_own, position = varint(block, position)
        num_value, position = varint(block, position)
        if num_shared > len(key) or position + num_own + num_value > end:
            raise ValueError("an entry reaches beyond its block")
        key = key[:num_shared] + bytes(block[position : position + num_own])
        position += num_own
        yield key, bytes(block[position : position + num_value])
        position += num_value
