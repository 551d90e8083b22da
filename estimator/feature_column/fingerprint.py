"""FarmHash's Fingerprint64, by which TensorFlow puts words into buckets: on many words at once.

The function that `farmhashna::Hash64` computes (https://github.com/google/farmhash), whose values
are promised never to change. It reads a word at places that depend on its length, so that words of
one length go through the same operations: here those are operations on arrays of 64-bit words,
which wrap around as C's do. `tests/peers/fingerprints.json` has what the original answers.
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
    for length in np.unique(lengths).tolist():
        chosen = lengths == length
        found[chosen] = _of_equal_length(_Text(bytes_of[chosen, :length]))
    return found.reshape(words.shape)


def cat_fingerprints(first: Words, second: Words) -> Words:
    """The fingerprint of two things after each other, of theirs: TensorFlow's FingerprintCat64."""
    result = (first ^ _CAT) ^ (_mixed(second * _CAT) * _CAT)
    return _mixed(_mixed(result * _CAT) * _CAT)


class _Text:
    """Words of one length, and their bytes as little-endian numbers.

    Args:
        bytes_of: (number of words, length) bytes.
    """

    def __init__(self, bytes_of: np.ndarray) -> None:
        self.num, self.length = bytes_of.shape
        self._bytes = bytes_of

    def at(self, place: int, num_bytes: int = 8) -> Words:
        """The number that begins at a byte; a negative place counts from the end."""
        start = place % self.length
        part = np.ascontiguousarray(self._bytes[:, start : start + num_bytes])
        return part.view(f"<u{num_bytes}")[:, 0].astype(np.uint64)


def _of_equal_length(text: _Text) -> Words:
    if text.length == 0:
        return np.full(text.num, _K2, np.uint64)
    if text.length < 4:
        return _of_1_to_3(text)
    if text.length <= 16:
        return _of_4_to_16(text)
    if text.length <= 32:
        return _of_17_to_32(text)
    return _of_33_to_64(text) if text.length <= 64 else _of_more(text)


def _of_1_to_3(text: _Text) -> Words:
    first, middle, last = (text.at(place, 1) for place in (0, text.length >> 1, -1))
    y = first + (middle << 8)
    z = text.length + (last << 2)
    return _mixed((y * _K2) ^ (z * _K0)) * _K2


def _of_4_to_16(text: _Text) -> Words:
    factor = _K2 + 2 * text.length
    if text.length < 8:
        return _joined(text.length + (text.at(0, 4) << 3), text.at(-4, 4), factor)
    a, b = text.at(0) + _K2, text.at(-8)
    return _joined(_rotated(b, 37) * factor + a, (_rotated(a, 25) + b) * factor, factor)


def _of_17_to_32(text: _Text) -> Words:
    factor = _K2 + 2 * text.length
    a, b = text.at(0) * _K1, text.at(8)
    c, d = text.at(-8) * factor, text.at(-16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    return _joined(y, a + _rotated(b + _K2, 18) + c, factor)


def _of_33_to_64(text: _Text) -> Words:
    factor = _K2 + 2 * text.length
    a, b = text.at(0) * _K2, text.at(8)
    c, d = text.at(-8) * factor, text.at(-16) * _K2
    y = _rotated(a + b, 43) + _rotated(c, 30) + d
    z = _joined(y, a + _rotated(b + _K2, 18) + c, factor)
    e, f = text.at(16) * factor, text.at(24)
    g, h = (y + text.at(-32)) * factor, (z + text.at(-24)) * factor
    y = _rotated(e + f, 43) + _rotated(g, 30) + h
    return _joined(y, e + _rotated(f + a, 18) + g, factor)


def _of_more(text: _Text) -> Words:
    """56 bytes of state, stirred by each 64 bytes of the words and then by the last 64."""
    seed = 81
    y_start = (seed * _K1 + 113) & _64_BITS
    z_start = ((y_start * _K2 + 113) & _64_BITS) ^ (((y_start * _K2 + 113) & _64_BITS) >> 47)
    x = text.at(0) + ((seed * _K2) & _64_BITS)
    y, z = np.full_like(x, y_start), np.full_like(x, (z_start * _K2) & _64_BITS)
    v = w = np.zeros_like(x), np.zeros_like(x)
    for start in range(0, text.length - 1 - (text.length - 1) % 64, 64):
        x = _rotated(x + y + v[0] + text.at(start + 8), 37) * _K1 ^ w[1]
        y = _rotated(y + v[1] + text.at(start + 48), 42) * _K1 + v[0] + text.at(start + 40)
        z = _rotated(z + w[0], 33) * _K1
        v = _weak(text, start, v[1] * _K1, x + w[0])
        w = _weak(text, start + 32, z + w[1], y + text.at(start + 16))
        z, x = x, z
    factor = _K1 + ((z & 0xFF) << 1)
    w = w[0] + ((text.length - 1) & 63), w[1]
    v = v[0] + w[0], v[1]
    w = w[0] + v[0], w[1]
    start = text.length - 64
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


def _joined(u: Words, v: Words, factor: int | Words) -> Words:
    """128 bits as 64."""
    a = _mixed((u ^ v) * factor)
    return _mixed((v ^ a) * factor) * factor


def _mixed(word: Words) -> Words:
    return word ^ (word >> 47)


def _rotated(word: Words, num_bits: int) -> Words:
    return (word >> num_bits) | (word << (64 - num_bits))
