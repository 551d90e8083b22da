"""The order in which a shuffle with a bounded buffer hands out its input.

A shuffle of buffer size B over n inputs keeps B inputs in slots. As long as there is input left it
picks a slot at random, hands out what is there and puts the next input in; when the input has
ended it hands out the slots in random order. With B >= n this is a permutation of all inputs, and
nothing of the size of n is kept.

The picks are drawn in blocks, each from its own generator, so nothing has to be replayed from the
beginning: what a slot holds at time t is decided by the last pick of that slot before t, and
scanning a few blocks backwards finds it (about B ln B picks, whatever t is).
"""

from __future__ import annotations

import math
from typing import final

import numpy as np
from numpy.typing import NDArray

from .elements import Indices
from .seeds import Key, generator

_MIN_BLOCK = 8192
_MAX_SEGMENTS = 8
_DRAIN = -1

_MAX_TABLE = 1 << 16
_NUM_ROUNDS = 6
_HALF_WORD = np.uint64(32)
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio

Words = NDArray[np.uint64]


@final
class ShuffleOrder:
    """Maps output times to input positions for one iteration of one shuffle.

    As long as `length` is not known it is a number beyond reach: the outputs before time `length -
    buffer_size` do not depend on it. `origin` is the position of the first input.
    """

    def __init__(self, key: Key, buffer_size: int, length: int, origin: int) -> None:
        self._key = key
        self._origin = origin
        self._num_slots = min(buffer_size, length)
        self._block_size = max(self._num_slots, _MIN_BLOCK)
        self._num_picks = length - self._num_slots
        self._segments: dict[int, tuple[int, Indices]] = {}
        self._latest: tuple[int, Indices] = (0, np.empty(0, np.int64))
        self._drain: Permutation | None = None
        self._frontier: tuple[int, Indices] | None = None

    def read(self, start: int, stop: int) -> Indices:
        """The input positions of the outputs from `start` to before `stop`."""
        first, order = self._latest
        if first <= start and stop <= first + len(order):
            return order[start - first : stop - first]
        pieces = []
        while start < stop:
            first, order = self._segment(start)
            pieces.append(order[start - first : stop - first])
            start += len(pieces[-1])
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def at(self, times: Indices) -> Indices:
        """The input positions of outputs in any order."""
        positions = np.empty_like(times)
        is_drained = times >= self._num_picks
        if is_drained.any():
            positions[is_drained] = self._drained(times[is_drained] - self._num_picks)
        waiting = np.flatnonzero(~is_drained)
        while len(waiting):
            first, order = self._segment(int(times[waiting[0]]))
            offsets = times[waiting] - first
            inside = (offsets >= 0) & (offsets < len(order))
            positions[waiting[inside]] = order[offsets[inside]]
            waiting = waiting[~inside]
        return positions

    def held(self, time: int) -> Indices:
        """The inputs that are in the slots before the output of `time`."""
        if time <= self._num_picks:
            return self._slots(time) + self._origin
        return self._drained(np.arange(time - self._num_picks, self._num_slots))

    def _segment(self, time: int) -> tuple[int, Indices]:
        """The computed stretch of outputs around `time`, and the time at which it begins."""
        num_drained = time - self._num_picks
        is_drained = num_drained >= 0
        number = -1 - num_drained // _MIN_BLOCK if is_drained else time // self._block_size
        segment = self._segments.get(number)
        if segment is None:
            segment = self._drain_block(-1 - number) if is_drained else self._block(number)
            if len(self._segments) == _MAX_SEGMENTS:
                del self._segments[next(iter(self._segments))]
            self._segments[number] = segment
        self._latest = segment
        return segment

    def _drain_block(self, number: int) -> tuple[int, Indices]:
        """Part of what the slots hand out when the input has ended."""
        first = number * _MIN_BLOCK
        outputs = np.arange(first, min(first + _MIN_BLOCK, self._num_slots))
        return self._num_picks + first, self._drained(outputs)

    def _drained(self, outputs: Indices) -> Indices:
        if self._drain is None:
            self._drain = Permutation((*self._key, _DRAIN), self._num_slots)
        slots = self._drain.at(outputs)
        if self._num_picks > 0:
            slots = self._slots(self._num_picks)[slots]
        return slots + self._origin

    def _block(self, number: int) -> tuple[int, Indices]:
        """Hands out what the slots hold when they are picked, and refills them.

        Pick number t hands out what its slot holds and puts input `num_slots + t` there. So the
        output of a pick is the refill of the pick of the same slot before it, or, for the first
        pick of a slot in the block, what the slot held at the block's beginning. A stable sort by
        slot puts the picks of each slot one behind another in the order of time.
        """
        first = number * self._block_size
        slots = self._slots(first).copy()
        picks = self._picks(number)[: self._num_picks - first]
        refills = first + self._num_slots + np.arange(len(picks))
        by_slot = np.argsort(picks, kind="stable")
        sorted_picks = picks[by_slot]
        is_first = np.ones(len(picks), bool)
        is_first[1:] = sorted_picks[1:] != sorted_picks[:-1]
        outputs = np.empty(len(picks), np.int64)
        outputs[by_slot[1:]] = refills[by_slot[:-1]]
        outputs[by_slot[is_first]] = slots[sorted_picks[is_first]]
        slots[picks] = refills
        self._frontier = (first + len(picks), slots)
        return first, outputs + self._origin

    def _slots(self, time: int) -> Indices:
        """What each slot holds before the output of `time`."""
        if self._frontier is not None and self._frontier[0] == time:
            return self._frontier[1]
        slots = np.full(self._num_slots, -1)
        number = -(-time // self._block_size)
        while number > 0 and slots.min() < 0:
            number -= 1
            first = number * self._block_size
            picks = self._picks(number)[: time - first]
            refilled = np.full(self._num_slots, -1)
            # Of several picks of one slot the last assignment stays.
            refilled[picks] = first + self._num_slots + np.arange(len(picks))
            slots = np.where(slots < 0, refilled, slots)
        slots = np.where(slots < 0, np.arange(self._num_slots), slots)
        self._frontier = (time, slots)
        return slots

    def _picks(self, number: int) -> NDArray[np.integer]:
        # Two-byte integers are sorted by radix, four times as fast.
        dtype = np.uint16 if self._num_slots <= 1 << 16 else np.int64
        rng = generator(self._key, number)
        return rng.integers(0, self._num_slots, self._block_size, dtype)


@final
class Permutation:
    """A permutation of the numbers below `size` that takes no memory for its size.

    Up to `_MAX_TABLE` numbers it is a table, and each order is equally likely. Above, it is a
    Feistel network over a grid of rows and columns of at least `size` cells: each round shifts one
    coordinate by a hash of the other, which can be undone, so no two numbers meet. A number that
    lands beyond is passed through again until it does not (cycle walking: J. Black and P. Rogaway,
    "Ciphers with Arbitrary Finite Domains", CT-RSA 2002).

    Args:
        key: decides the order.
        size: how many numbers there are, at most 2**62.
    """

    def __init__(self, key: Key, size: int) -> None:
        rng = generator(key)
        self._size = size
        self._table: Indices | None = None
        if size <= _MAX_TABLE:
            self._table = rng.permutation(size)
            return
        num_rows = math.isqrt(size)
        self._sides = np.uint64(num_rows), np.uint64(-(-size // num_rows))
        # Odd factors, since multiplying by an even one would lose bits.
        words = rng.integers(0, 1 << 64, (_NUM_ROUNDS, 2), np.uint64)
        self._rounds = [(add, multiply | np.uint64(1)) for add, multiply in words]

    def at(self, numbers: Indices) -> Indices:
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
        # The number of rounds is even: the coordinates are in their own order again.
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
