"""CRC-32C (Castagnoli), the checksum of TFRecord files and of TensorFlow's checkpoints.

It is linear over bits: each byte of a block contributes a table entry that depends on the byte
and on its distance from the block's end, and the contributions are combined by exclusive or (the
idea of slicing-by-N: M. Kounavis and F. Berry, "A Systematic Approach to Building High Performance
Software-Based CRC Generators", ISCC 2005; polynomial: RFC 3720, B.4).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

_POLYNOMIAL = 0x82F63B78  # reflected
_BLOCK_BYTES = 1024
_SHORT_BYTES = 16
_MASK_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C of `data`."""
    state = _WORD
    if len(data) <= _SHORT_BYTES:
        return _of_bytes(state, data) ^ _WORD
    values = np.frombuffer(data, np.uint8)
    # The first, incomplete block, and then whole ones.
    start = 0
    for stop in range(len(values) % _BLOCK_BYTES or _BLOCK_BYTES, len(values) + 1, _BLOCK_BYTES):
        state = _of_block(state, values[start:stop])
        start = stop
    return state ^ _WORD


def masked_crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C as files store it, rotated and shifted by a constant."""
    return mask(crc32c(data))


def mask(crc: int) -> int:
    """A CRC-32C in the form in which files store it."""
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _WORD


def _of_bytes(state: int, data: bytes | bytearray | memoryview) -> int:
    table = _byte_table()
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _of_block(state: int, values: NDArray[np.uint8]) -> int:
    """The state behind a block of at most `_BLOCK_BYTES` bytes."""
    if len(values) < 4:
        return _of_bytes(state, values.tobytes())
    # One gather of what each byte contributes and one exclusive or, instead of a loop over bytes.
    block = values.copy()
    # The state so far acts like four more bytes upon the first four.
    block[:4] ^= np.frombuffer(state.to_bytes(4, "little"), np.uint8)
    table, offsets = _block_table()
    indices = offsets[_BLOCK_BYTES - len(block) :] + block
    return int(np.bitwise_xor.reduce(table.take(indices)))


@cache
def _byte_table() -> list[int]:
    return [int(entry) for entry in _first_row()]


def _first_row() -> NDArray[np.uint32]:
    row = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        row = np.where(row & 1, (row >> 1) ^ np.uint32(_POLYNOMIAL), row >> 1)
    return row


@cache
def _block_table() -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """The contribution of each byte at each offset in a block, in one row; where offsets begin."""
    first = _first_row()
    rows = np.empty((_BLOCK_BYTES, 256), np.uint32)
    rows[-1] = first
    for offset in range(_BLOCK_BYTES - 2, -1, -1):
        after = rows[offset + 1]
        rows[offset] = first[after & 0xFF] ^ (after >> 8)
    return rows.reshape(-1), np.arange(_BLOCK_BYTES) * 256
