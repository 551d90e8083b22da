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
from types import TracebackType
from typing import Any, BinaryIO, Self, final

import numpy as np

from ..formats.crc32c import masked_crc32c
from .dataset import Dataset
from .record_files import Files, RecordFormat, is_gzip, read_up_to, records_plan, skip_rest

_HEADER = struct.Struct("<QI")
_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")


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
