"""A random permutation of 0 to n - 1 that is a function of a key and takes no memory for its size.

Up to `_MAX_TABLE` numbers it is a table, and each order is equally likely. Above, it is a Feistel
network over a grid of rows and columns of at least n cells: each round shifts one coordinate by
a hash of the other, which can be undone, so no two numbers meet. A number that lands beyond n is
passed through again until it does not (cycle walking: J. Black and P. Rogaway, "Ciphers with
Arbitrary Finite Domains", CT-RSA 2002).
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
from numpy.typing import NDArray

from ._seeds import Key, generator

Words = NDArray[np.uint64]
Positions = NDArray[np.int64]

_MAX_TABLE = 1 << 16
_NUM_ROUNDS = 6
_HALF_WORD = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio


@final
class Permutation:
    """A permutation of the numbers below `size`.

    Args:
        key: decides the order.
        size: how many numbers there are, at most 2**62.
    """

    def __init__(self, key: Key, size: int) -> None:
        rng = generator(key)
        self._size = size
        self._table: Positions | None = None
        if size <= _MAX_TABLE:
            self._table = rng.permutation(size)
            return
        num_rows = math.isqrt(size)
        self._sides = np.uint64(num_rows), np.uint64(-(-size // num_rows))
        # Odd factors, since multiplying by an even one would lose bits.
        words = rng.integers(0, 1 << 64, (_NUM_ROUNDS, 2), np.uint64)
        self._rounds = [(add, multiply | np.uint64(1)) for add, multiply in words]

    def at(self, numbers: Positions) -> Positions:
        """What the given numbers become, in any order."""
        if self._table is not None:
            return self._table[numbers]
        results = self._shuffled(numbers.astype(np.uint64))
        outside = np.flatnonzero(results >= self._size)
        while len(outside):
            results[outside] = self._shuffled(results[outside])
            outside = outside[results[outside] >= self._size]
        return results.view(np.int64)

    def _shuffled(self, numbers: Words) -> Words:
        side, other_side = self._sides
        other = numbers % other_side
        one = numbers // other_side
        shift, scratch = np.empty_like(numbers), np.empty_like(numbers)
        for add, multiply in self._rounds:
            _hash(other, add, multiply, side, shift, scratch)
            np.add(one, shift, one)
            # Below `side` the subtraction wraps round to a huge number, and the sum is the smaller.
            np.subtract(one, side, shift)
            np.minimum(one, shift, out=one)
            one, other, side, other_side = other, one, other_side, side
        # The number of rounds is even: the coordinates are back in their places.
        return np.add(np.multiply(one, other_side, one), other, one)


def _hash(
    numbers: Words, add: np.uint64, multiply: np.uint64, stop: np.uint64, out: Words, scratch: Words
) -> None:
    """Writes a number below `stop` for each of `numbers` to `out`; both are below 2**32."""
    np.add(numbers, add, out)
    np.multiply(out, multiply, out)
    np.right_shift(out, _HALF_WORD, scratch)
    np.bitwise_xor(out, scratch, out)
    np.multiply(out, _MULTIPLIER, out)
    np.right_shift(out, _HALF_WORD, out)
    np.multiply(out, stop, out)
    np.right_shift(out, _HALF_WORD, out)
