"""Reading IDX files, the format of the MNIST images and labels.

The format: two zero bytes, a dtype code, the number of dimensions, then each dimension as a
big-endian 32-bit integer and the values in row-major, big-endian order
(http://yann.lecun.com/exdb/mnist/).
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from pathlib import Path
from typing import BinaryIO

import numpy as np

_DTYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_MAX_DIMENSIONS = 32
_GZIP_MAGIC = b"\x1f\x8b"
_CHUNK_BYTES = 1 << 20
# Deflate cannot compress better than 1032 to 1.
_MAX_GZIP_RATIO = 1032


def read_idx(path: str | os.PathLike[str]) -> np.ndarray:
    """The array in an IDX file, plain or gzipped.

    Returns:
        An array in native byte order with the shape and dtype that the file names.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or no IDX file; the message says what was expected.
    """
    file_bytes = Path(path).stat().st_size
    with open(path, "rb") as file:
        is_gzipped = file.read(2) == _GZIP_MAGIC
        file.seek(0)
        if not is_gzipped:
            return _read(file, path, file_bytes)
        try:
            with gzip.open(file) as unzipped:
                return _read(unzipped, path, file_bytes * _MAX_GZIP_RATIO)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(
                f"{path} is a damaged gzip file ({error}). Download it again."
            ) from error


def _read(file: BinaryIO | gzip.GzipFile, path: str | os.PathLike[str], limit: int) -> np.ndarray:
    dtype, shape = _read_header(file, path)
    header_bytes = 4 + 4 * len(shape)
    num_bytes = math.prod(shape) * dtype.itemsize
    if num_bytes > limit - header_bytes:
        raise _wrong_size(path, shape, dtype, f"at most {max(limit - header_bytes, 0)}")
    data = _read_up_to(file, num_bytes)
    if len(data) < num_bytes:
        raise _wrong_size(path, shape, dtype, str(len(data)))
    if file.read(1):
        raise _wrong_size(path, shape, dtype, "more")
    return np.frombuffer(data, dtype).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def _read_header(
    file: BinaryIO | gzip.GzipFile, path: str | os.PathLike[str]
) -> tuple[np.dtype, tuple[int, ...]]:
    magic = file.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0":
        raise ValueError(
            f"{path} is no IDX file: it must begin with two zero bytes, a dtype code and the "
            f"number of dimensions, found {magic!r}."
        )
    code, num_dimensions = magic[2], magic[3]
    if code not in _DTYPES:
        known = ", ".join(f"0x{known:02x}" for known in _DTYPES)
        raise ValueError(f"{path} has the IDX dtype code 0x{code:02x}, expected one of {known}.")
    if not 1 <= num_dimensions <= _MAX_DIMENSIONS:
        raise ValueError(
            f"{path} has {num_dimensions} dimensions, expected 1 to {_MAX_DIMENSIONS}."
        )
    sizes = file.read(4 * num_dimensions)
    if len(sizes) < 4 * num_dimensions:
        raise ValueError(
            f"{path} ends inside its header: expected {num_dimensions} dimensions of 4 bytes, "
            f"found {len(sizes)} bytes."
        )
    return np.dtype(_DTYPES[code]), struct.unpack(f">{num_dimensions}I", sizes)


def _read_up_to(file: BinaryIO | gzip.GzipFile, num_bytes: int) -> bytearray:
    """At most `num_bytes`, growing with what arrives rather than with what was announced."""
    data = bytearray()
    while len(data) < num_bytes:
        chunk = file.read(min(_CHUNK_BYTES, num_bytes - len(data)))
        if not chunk:
            break
        data += chunk
    return data


def _wrong_size(
    path: str | os.PathLike[str], shape: tuple[int, ...], dtype: np.dtype, found: str
) -> ValueError:
    expected = math.prod(shape) * dtype.itemsize
    return ValueError(
        f"{path} announces {dtype.name} values of shape {shape}, which take {expected} bytes, "
        f"but {found} follow the header. Download it again."
    )
