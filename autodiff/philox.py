"""Random numbers that are drawn where they are used, on a device, each from its own number.

A generator's sequence would have to be drawn on the host and uploaded. Philox is a function of a
key and a counter: each element of an array has its place for the counter, and a key is drawn from
the host's generator for each array. So the numbers depend on that generator alone, and not on what
other code draws on the device.

Philox2x32-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (2011).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from .fusion import fused
from .tensor_like import Array

_ROUNDS = 10
_MULTIPLIER = 0xD256D193
_KEY_STEP = 0x9E3779B9
_MASK = 0xFFFFFFFF


def random_factors(
    rng: np.random.Generator, rate: float, shape: tuple[int, ...], like: Array
) -> Array:
    """0 for a share `rate` of the elements, and 1 / (1 - rate) for the others.

    Args:
        rng: On the host.
        rate: In [0, 1).
        shape: Of the result.
        like: An array of its dtype, where it is to lie. On the host and on a device the numbers
            differ.
    """
    if isinstance(like, np.ndarray):
        kept = rng.random(shape, np.float32) >= rate
        return np.multiply(kept, 1.0 / (1.0 - rate), dtype=like.dtype)
    limit = math.ceil(rate * 2**32)
    return _drawn(rng, _factors, (limit, 1.0 / (1.0 - rate)), shape, like)


def random_normal(
    rng: np.random.Generator, stddev: float, shape: tuple[int, ...], like: Array
) -> Array:
    """Normal numbers of a mean of 0; arguments as those of `random_factors`."""
    if isinstance(like, np.ndarray):
        return (stddev * rng.standard_normal(shape, np.float32)).astype(like.dtype)
    return _drawn(rng, _normal, (stddev,), shape, like)


def _drawn(
    rng: np.random.Generator,
    function: Callable[..., Any],
    numbers: tuple[float, ...],
    shape: tuple[int, ...],
    like: Array,
) -> Array:
    key, lane = rng.integers(0, 2**32, 2).tolist()
    keys = [(key + i * _KEY_STEP) & _MASK for i in range(_ROUNDS)]
    places = np.arange(math.prod(shape), dtype=np.uint64, like=like)
    drawn = fused(function, places, numbers=(*numbers, lane, *keys))
    return drawn.astype(like.dtype, copy=False).reshape(shape)


def philox(places: Array, lane: int, keys: tuple[int, ...]) -> tuple[Array, Array]:
    """Two random numbers of 32 bits for each place.

    Args:
        places: The lower halves of counters, whole numbers of 64 bits below 2**32.
        lane: The upper half of all counters.
        keys: The key of each round, each greater than the one before by the golden ratio, of 32
            bits.
    """
    left, right = places & _MASK, (places >> 32) ^ lane
    for key in keys:
        # Both factors have 32 bits, so that nothing overflows 64.
        product = left * _MULTIPLIER
        left, right = (product >> 32) ^ right ^ key, product & _MASK
    return left, right


def _factors(places: Any, limit: int, scale: float, lane: int, *keys: int) -> Any:
    bits, _ = philox(places, lane, keys)
    return (bits >= limit).astype(np.float32) * scale


def _normal(places: Any, stddev: float, lane: int, *keys: int) -> Any:
    """Box and Muller (1958)."""
    first, second = (bits.astype(np.float32) for bits in philox(places, lane, keys))
    distance = np.sqrt(np.log((first + 1.0) * 2.0**-32) * -2.0)
    return distance * np.cos(second * (math.tau * 2.0**-32)) * stddev
