"""Where randomness comes from: the seed of an iterator and the keys that its shuffles get."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, final

import numpy as np

from .checks import checked_count

Key = tuple[int, ...]

_WORD = (1 << 64) - 1
_FIXED = 4
_default_seed: ContextVar[int | None] = ContextVar("paceline_inputs_default_seed", default=None)


@final
class _Process:
    """The seed of `seed_shuffles`; threads that are started later must find it too."""

    seed: int | None = None


_drawn: dict[str, int] = {}


def process_seed() -> int:
    """One seed for the whole process, from entropy.

    Threads that need it first at the same time draw one each, and all take the same one:
    `setdefault` is one step.
    """
    return _drawn.setdefault("process", entropy_seed())


def seed_shuffles(seed: int | None) -> None:
    """Iterators created from now on take `seed` for every shuffle that was given none.

    Holds for the whole process, where no `default_seed` says otherwise. Workers that are given the
    same seed draw the same orders.

    Args:
        seed: the seed; None brings back seeds from entropy, which differ from run to run.
    """
    _Process.seed = None if seed is None else checked_seed(seed)


@contextmanager
def default_seed(seed: int | None) -> Iterator[None]:
    """Iterators created inside take `seed` for every shuffle that was given none.

    Holds for the current thread or asyncio task; None leaves it to `seed_shuffles`.
    """
    token = _default_seed.set(None if seed is None else checked_seed(seed))
    try:
        yield
    finally:
        _default_seed.reset(token)


def checked_seed(seed: Any) -> int:
    """`seed` as an int that fits a signed 64-bit integer."""
    number = checked_count("seed", seed, -(1 << 63))
    if number >= 1 << 63:
        raise ValueError(f"seed must be below 2**63, got {number}. Take it modulo 2**63.")
    return number


def current_default_seed() -> int | None:
    """The seed of the innermost `default_seed`, or else of `seed_shuffles`, if any."""
    seed = _default_seed.get()
    return _Process.seed if seed is None else seed


def entropy_seed() -> int:
    """A fresh seed; it fits a signed 64-bit integer."""
    return int.from_bytes(os.urandom(8), "little") >> 1


@final
class Seeds:
    """Hands each shuffle of one iterator its key while the chain is opened.

    `seed` is for shuffles without one of their own; `iteration` varies those that reshuffle.
    """

    def __init__(self, seed: int, iteration: int) -> None:
        self._seed = seed
        self._iteration = iteration
        self.keys: list[Key] = []

    def inside(self, number: int) -> Seeds:
        """For the shuffles of a dataset that was made of element `number`."""
        # How many keys were drawn tells one interleave of the chain from another.
        words = generator((2, len(self.keys), self._seed), number).integers(0, 1 << 63)
        return Seeds(int(words), self._iteration)

    def key(self, seed: int | None, *, reshuffle: bool, chain: str) -> Key:
        """The key of the next shuffle.

        Of one that never changes its order the key must not depend on what else is opened with it:
        it is made of its seed and of the `chain`, what is shuffled.
        """
        which = (1, len(self.keys)) if reshuffle else (_FIXED, zlib.crc32(chain.encode()))
        own = (*which, self._seed) if seed is None else (0, 0, seed)
        key = (*own, self._iteration if reshuffle else 0)
        self.keys.append(key)
        return key


def generator(key: Key, *numbers: int) -> np.random.Generator:
    """A generator that depends on `key` and `numbers` alone."""
    # Fixed-width words: SeedSequence pads short entropy with zeros, so lengths must not vary.
    words = np.array([number & _WORD for number in (*key, *numbers)], np.uint64)
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(words.view(np.uint32))))
