"""FarmHash's Fingerprint64, by which TensorFlow puts words into buckets: on many words at once.

The function that `farmhashna::Hash64` computes (https://github.com/google/farmhash), whose values
are promised never to change. It goes one of seven ways, by a word's length. Words that go the same
one go through the same operations: here on arrays of 64-bit words, which wrap around as C's do.
`tests/peers/fingerprints.json` has what the original answers.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_CAT = 0xC6A4A7935BD1E995
_64_BITS = (1 << 64) - 1

Words: TypeAlias = np.ndarray
"""One unsigned 64-bit number for each word that is hashed."""


def fingerprints(words: np.ndarray) -> np.ndarray:
    """The Fingerprint64 of each word.

    Args:
        words: An array of bytes (dtype "S"), of any shape.

    Returns:
        Unsigned 64-bit integers of the same shape.
    """
    flat = np.ascontiguousarray(words).reshape(-1)
    lengths = np.strings.str_len(flat)
    bytes_of = flat.view(np.uint8).reshape(len(flat), flat.dtype.itemsize)
    found = np.empty(len(flat), np.uint64)
    ways = np.searchsorted(_LONGEST, lengths)
    # Beyond 64 bytes a word takes as many rounds as it has blocks before its last one.
    ways = np.where(ways < len(_WAYS), ways, len(_WAYS) + (lengths - 1) // 64)
    for way in np.unique(ways).tolist():
        chosen = ways == way
        text = _Text(bytes_of[chosen], lengths[chosen])
        is_short = way < len(_WAYS)
        found[chosen] = _WAYS[way](text) if is_short else _of_more(text, way - len(_WAYS))
    return found.reshape(words.shape)


def cat_fingerprints(first: Words, second: Words) -> Words:
    """The fingerprint of two things after each other, of theirs: TensorFlow's FingerprintCat64."""
    result = (first ^ _CAT) ^ (_mixed(second * _CAT) * _CAT)
    return _mixed(_mixed(result * _CAT) * _CAT)


class _Text:
    """Words, and their bytes as little-endian numbers.

    Args:
        bytes_of: (number of words, longest length) bytes.
        lengths: Of each word.
    """

    def __init__(self, bytes_of: np.ndarray, lengths: np.ndarray) -> None:
        self._bytes = bytes_of
        self._lengths = lengths
        self.lengths: Words = lengths.astype(np.uint64)

    def at(self, place: int, num_bytes: int = 8) -> Words:
        """The numbers that begin at a byte of each word; a negative place counts from its end."""
        if place < 0:
            return self.from_places(self._lengths + place, num_bytes)
        part = np.ascontiguousarray(self._bytes[:, place : place + num_bytes])
        return part.view(f"<u{num_bytes}")[:, 0].astype(np.uint64)

    def from_places(self, places: np.ndarray, num_bytes: int = 8) -> Words:
        """The same, at a place of its own in each word."""
        part = np.take_along_axis(self._bytes, places[:, None] + np.arange(num_bytes), axis=1)
        return part.view(f"<u{num_bytes}")[:, 0].astype(np.uint64)

    @property
    def middle_byte(self) -> Words:
        return self.from_places(self._lengths >> 1, 1)

    @property
    def factors(self) -> Words:
        """What words of up to 64 bytes are multiplied by."""
        return (self.lengths << 1) + _K2


def _of_none(text: _Text) -> Words:
    return np.full_like(text.lengths, _K2)


def _of_1_to_3(text: _Text) -> Words:
    y = text.at(0, 1) + (text.middle_byte << 8)
    z = text.lengths + (text.at(-1, 1) << 2)
    return _mixed((y * _K2) ^ (z * _K0)) * _K2


def _of_4_to_7(text: _Text) -> Words:
    return _joined(text.lengths + (text.at(0, 4) << 3), text.at(-4, 4), text.factors)


def _of_8_to_16(text: _Text) -> Words:
    factor = text.factors
    a, b = text.at(0) + _K2, text.at(-8)
    return _joined(_rotated(b, 37) * factor + a, (_rotated(a, 25) + b) * factor, factor)


def _of_17_to_32(text: _Text) -> Words:
    factor = text.factors
    a, b = text.at(0) * _K1, text.at(8)
    c, d = text.at(-8) * factor, text.at(-16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    return _joined(y, a + _rotated(b + _K2, 18) + c, factor)


def _of_33_to_64(text: _Text) -> Words:
    factor = text.factors
    a, b = text.at(0) * _K2, text.at(8)
    c, d = text.at(-8) * factor, text.at(-16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _joined(y, a + _rotated(b + _K2, 18) + c, factor)
    e, f = text.at(16) * factor, text.at(24)
    g, h = (y + text.at(-32)) * factor, (z + text.at(-24)) * factor
    y = _rotated(e + f, 43) + _rotated(g, 30) + h
    return _joined(y, e + _rotated(f + a, 18) + g, factor)


def _of_more(text: _Text, num_rounds: int) -> Words:
    """56 bytes of state, stirred by each 64 bytes of the words and then by their last 64."""
    seed = 81
    y_start = (seed * _K1 + 113) & _64_BITS
    z_start = ((y_start * _K2 + 113) & _64_BITS) ^ (((y_start * _K2 + 113) & _64_BITS) >> 47)
    x = text.at(0) + ((seed * _K2) & _64_BITS)
    y, z = np.full_like(x, y_start), np.full_like(x, (z_start * _K2) & _64_BITS)
    v = w = np.zeros_like(x), np.zeros_like(x)
    for start in range(0, 64 * num_rounds, 64):
        x = _rotated(x + y + v[0] + text.at(start + 8), 37) * _K1 ^ w[1]
        y = _rotated(y + v[1] + text.at(start + 48), 42) * _K1 + v[0] + text.at(start + 40)
        z = _rotated(z + w[0], 33) * _K1
        v = _weak(text, start, v[1] * _K1, x + w[0])
        w = _weak(text, start + 32, z + w[1], y + text.at(start + 16))
        z, x = x, z
    factor = _K1 + ((z & 0xFF) << 1)
    w = w[0] + ((text.lengths - 1) & 63), w[1]
    v = v[0] + w[0], v[1]
    w = w[0] + v[0], w[1]
    start = -64
    x = _rotated(x + y + v[0] + text.at(start + 8), 37) * factor ^ w[1] * 9
    y = _rotated(y + v[1] + text.at(start + 48), 42) * factor + v[0] * 9 + text.at(start + 40)
    z = _rotated(z + w[0], 33) * factor
    v = _weak(text, start, v[1] * factor, x + w[0])
    w = _weak(text, start + 32, z + w[1], y + text.at(start + 16))
    low = _joined(v[0], w[0], factor) + _mixed(y) * _K0 + x
    return _joined(low, _joined(v[1], w[1], factor) + z, factor)


def _weak(text: _Text, start: int, a: Words, b: Words) -> tuple[Words, Words]:
    """32 bytes of the words, and two numbers, as two numbers."""
    w, x, y, z = (text.at(start + offset) for offset in (0, 8, 16, 24))
    a = a + w
    b = _rotated(b + a + z, 21)
    c = a + x + y
    return c + z, b + _rotated(c, 44) + a


_WAYS = (_of_none, _of_1_to_3, _of_4_to_7, _of_8_to_16, _of_17_to_32, _of_33_to_64)
_LONGEST = (0, 3, 7, 16, 32, 64)


def _joined(u: Words, v: Words, factor: int | Words) -> Words:
    """128 bits as 64."""
    a = _mixed((u ^ v) * factor)
    return _mixed((v ^ a) * factor) * factor


def _mixed(word: Words) -> Words:
    return word ^ (word >> 47)


def _rotated(word: Words, num_bits: int) -> Words:
    return (word >> num_bits) | (word << (64 - num_bits))
