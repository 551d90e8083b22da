"""IDX files: what is written is read, and damage is named."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from paceline.inputs import read_idx

CODES = {"u1": 0x08, "i1": 0x09, "i2": 0x0B, "i4": 0x0C, "f4": 0x0D, "f8": 0x0E}


def idx_bytes(array: np.ndarray) -> bytes:
    kind = array.dtype.kind + str(array.dtype.itemsize)
    header = bytes([0, 0, CODES[kind], array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(f">{kind}").tobytes()


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3), (0, 4)])
@pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_an_array_is_read_as_it_was_written(
    tmp_path: Path, dtype: str, shape: tuple[int, ...], compress: type[bytes]
) -> None:
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    path = tmp_path / "file-idx"
    path.write_bytes(compress(idx_bytes(array)))
    found = read_idx(path)
    assert found.dtype == array.dtype
    assert found.dtype.isnative
    assert np.array_equal(found, array)
    assert found.shape == shape


def test_a_path_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(idx_bytes(np.arange(3, dtype="u1")))
    assert read_idx(str(tmp_path / "x")).tolist() == [0, 1, 2]


GOOD = idx_bytes(np.arange(6, dtype="u1").reshape(2, 3))
HUGE = bytes([0, 0, 0x0E, 3]) + struct.pack(">3I", 2**31, 2**31, 2**31) + b"\0" * 100


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"\x89PNG and so on", r"is no IDX file: it must begin with two zero bytes"),
        (bytes([0, 0, 0x07, 1]), "has the IDX dtype code 0x07, expected one of 0x08, 0x09"),
        (bytes([0, 0, 0x08, 0]), "has 0 dimensions, expected 1 to 32"),
        (bytes([0, 0, 0x08, 200]), "has 200 dimensions, expected 1 to 32"),
        (GOOD[:9], "ends inside its header: expected 2 dimensions of 4 bytes, found 5 bytes"),
        (GOOD[:-1], r"uint8 values of shape \(2, 3\), which take 6 bytes, but .*5 follow"),
        (GOOD + b"!", r"which take 6 bytes, but more follow the header"),
        (HUGE, "float64 values of shape .* but at most 100 follow the header"),
        (gzip.compress(GOOD[:-1], mtime=0), "which take 6 bytes, but 5 follow"),
        (gzip.compress(GOOD + b"!", mtime=0), "which take 6 bytes, but more follow"),
        (gzip.compress(HUGE, mtime=0), "but at most .* follow the header"),
        (
            gzip.compress(GOOD, mtime=0)[:-10],
            "is a damaged gzip file .*ended before.*Download it again",
        ),
        (gzip.compress(GOOD, mtime=0)[:-6] + b"\0" * 6, "is a damaged gzip file .*CRC"),
        (b"\x1f\x8b" + b"\0" * 30, "is a damaged gzip file"),
    ],
)
def test_a_damaged_file_is_named_with_what_was_expected(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "train-images"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_idx(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no-such-file"):
        read_idx(tmp_path / "no-such-file")
