"""TFRecord files: a dataset of their records, and a writer.

The format: for each record its length as a 64-bit little-endian number, the masked CRC-32C of
these eight bytes, the record, and its masked CRC-32C
(https://www.tensorflow.org/tutorials/load_data/tfrecord).
"""

from __future__ import annotations

import gzip
import os
import struct
from collections.abc import Iterator
from functools import cache
from types import TracebackType
from typing import Any, BinaryIO, Self, final

import numpy as np
from numpy.typing import NDArray

from .dataset import Dataset
from .record_files import Files, RecordFormat, is_gzip, read_up_to, records_plan, skip_rest

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")

_POLYNOMIAL = 0x82F63B78  # reflected
_BLOCK_BYTES = 1024
_SHORT_BYTES = 16
_MASK_DELTA = 0xA282EAD8
_WORD = 0xFFFFFFFF


def tf_records(files: Files, compression_type: str | None = None) -> Dataset:
    """A dataset of the records of TFRecord files, each a uint8 array of its bytes.

    Both checksums of each record are verified. `map` the records with `parse_example`, or a
    function of one's own, before `batch`.

    Args:
        files: a path, a pattern such as `data/*.tfrecord`, or several; `.gz` is unpacked.
        compression_type: "GZIP" unpacks the files whatever their names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: of another compression; on iteration, for a record that is damaged or cut off;
            the message names the file and the record.
    """
    packed = is_gzip(compression_type)
    return Dataset(records_plan(files, RecordFormat("tf_records", _read_records, packed)))


@final
class TFRecordWriter:
    """Writes a TFRecord file, replacing one that is there; use it as a context manager.

    Args:
        path: the file; `.gz` packs it.
        options: "GZIP" packs it whatever its name.
    """

    def __init__(self, path: str | bytes | os.PathLike[str], options: str | None = None) -> None:
        name, packs = os.fsdecode(path), is_gzip(options)
        self._file: gzip.GzipFile | BinaryIO = (
            gzip.open(name, "wb") if packs or name.endswith(".gz") else open(name, "wb")  # noqa: SIM115
        )

    def write(self, record: bytes) -> None:
        """Appends one record."""
        self._file.write(framed_record(record))

    def flush(self) -> None:
        """Hands what was written to the system."""
        self._file.flush()

    def close(self) -> None:
        """Finishes the file; calling it again does nothing."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def framed_record(record: bytes) -> bytes:
    """A record as it stands in a file: between its length and its checksum."""
    length = _LENGTH.pack(len(record))
    header = length + _CRC.pack(masked_crc32c(length))
    return header + record + _CRC.pack(masked_crc32c(record))


def _read_records(file: BinaryIO) -> Iterator[Any]:
    while header := file.read(_HEADER.size):
        if len(header) < _HEADER.size:
            raise ValueError(
                f"the file is cut off: {len(header)} bytes follow the last record, a header has "
                f"{_HEADER.size}"
            )
        length, length_crc = _HEADER.unpack(header)
        if masked_crc32c(header[: _LENGTH.size]) != length_crc:
            # Without its length nobody knows where the next record begins.
            skip_rest(file)
            raise ValueError(
                "the checksum of the record's length does not match; is it a TFRecord?"
            )
        body = read_up_to(file, length + _CRC.size)
        if len(body) < length + _CRC.size:
            raise ValueError(
                f"the file is cut off: the record has {length} bytes and a checksum, but only "
                f"{len(body)} bytes follow"
            )
        record = body[:length]
        if masked_crc32c(record) != _CRC.unpack_from(body, length)[0]:
            raise ValueError(f"the checksum of the record's {length} bytes does not match")
        yield np.frombuffer(record, np.uint8)


def crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C (Castagnoli) of `data`, the checksum of TFRecord files.

    It is linear over bits: each byte of a block contributes a table entry that depends on the byte
    and on how far it is from the block's end, and the contributions are combined by exclusive or
    (the idea of slicing-by-N: M. Kounavis and F. Berry, "A Systematic Approach to Building High
    Performance Software-Based CRC Generators", ISCC 2005; polynomial: RFC 3720, B.4).
    """
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
    """The checksum as TFRecord files store it, rotated and shifted by a constant."""
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & _WORD


def _of_bytes(state: int, data: bytes | bytearray | memoryview) -> int:
    table = _byte_table()
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state


def _of_block(state: int, values: NDArray[np.uint8]) -> int:
    """Carries `state` over at most a block of bytes."""
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
    """What each byte at each offset in a block contributes, in one row; where offsets begin."""
    first = _first_row()
    rows = np.empty((_BLOCK_BYTES, 256), np.uint32)
    rows[-1] = first
    for offset in range(_BLOCK_BYTES - 2, -1, -1):
        after = rows[offset + 1]
        rows[offset] = first[after & 0xFF] ^ (after >> 8)
    return rows.reshape(-1), np.arange(_BLOCK_BYTES) * 256
