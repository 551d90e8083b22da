"""CRC-32C: the standard's values, and for data of every length what its definition gives."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.formats.crc32c import crc32c, masked_crc32c

pytestmark = pytest.mark.host


@pytest.mark.parametrize(
    ("data", "crc"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (bytes(range(31, -1, -1)), 0x113FDB5C),
    ],
)
def test_crc32c_gives_the_values_of_rfc_3720(data: bytes, crc: int) -> None:
    assert crc32c(data) == crc


@given(st.binary(max_size=80), st.integers(0, 40))
def test_crc32c_does_what_bits_do(data: bytes, repeats: int) -> None:
    message = data * repeats
    state = 0xFFFFFFFF
    for byte in message:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    assert crc32c(message) == state ^ 0xFFFFFFFF


def test_the_checksum_is_masked_as_in_tfrecord_files() -> None:
    assert masked_crc32c(struct.pack("<Q", 0)) == (
        ((crc32c(bytes(8)) >> 15 | crc32c(bytes(8)) << 17) + 0xA282EAD8) & 0xFFFFFFFF
    )


def by_bytes(data):
    """The checksum as a loop over bytes makes it."""
    table = [crc32c(bytes([byte])) ^ crc32c(b"\0") for byte in range(256)]
    state = 0xFFFFFFFF
    for byte in data:
        state = table[(state ^ byte) & 0xFF] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


@pytest.mark.parametrize("num_bytes", [1 << 18, (1 << 18) + 5, 322_152, 322_160, 322_171, 600_001])
def test_long_data_has_the_checksum_of_its_bytes(num_bytes):
    data = np.random.default_rng(num_bytes).bytes(num_bytes)
    assert crc32c(data) == by_bytes(data)
    assert crc32c(memoryview(data)) == by_bytes(data)
