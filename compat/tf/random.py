"""`tf.random`: numbers from a generator of each replica, which `set_seed` begins anew.

Replicas run in threads: from one generator for all, what each draws would depend on who comes
first, and all workers would draw the same. A seed that a call names has a generator of its own,
which the next call with that seed goes on with: an augmentation would else be the same for each
image.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import strategies
from ...autodiff import Tensor
from ..names import NameTable, serve
from .advice import advice
from .conversion import convert, integers, plain

__getattr__, __dir__ = serve(NameTable(__name__, advice=advice))
_generators: dict[tuple[int, int | None], np.random.Generator] = {}
_seeds: list[int | None] = [None]


def set_seed(seed: int | None) -> None:
    """Begin anew with this seed: numbers, initial values of variables, dropout and shuffles."""
    strategies.set_seed(seed)
    _seeds[0] = seed
    _generators.clear()


set_random_seed = set_seed


def _generator(seed: int | None) -> np.random.Generator:
    context = strategies.get_replica_context()
    number = 0 if context is None else 1 + context.replica_id_in_sync_group
    key = number, seed
    if key not in _generators:
        begun = _seeds[0]
        parts = [part for part in (begun, number, seed) if part is not None]
        is_seeded = begun is not None or seed is not None
        _generators[key] = np.random.default_rng(parts if is_seeded else None)
    return _generators[key]


def normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = np.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution."""
    drawn = _generator(seed).standard_normal(integers(shape))
    return Tensor((np.asarray(mean) + np.asarray(stddev) * drawn).astype(dtype))


def truncated_normal(
    shape: Any,
    mean: Any = 0.0,
    stddev: Any = 1.0,
    dtype: Any = np.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers of a normal distribution, those beyond two deviations drawn again."""
    generator = _generator(seed)
    drawn = generator.standard_normal(integers(shape))
    while (beyond := np.abs(drawn) > 2).any():
        drawn[beyond] = generator.standard_normal(int(beyond.sum()))
    return Tensor((np.asarray(mean) + np.asarray(stddev) * drawn).astype(dtype))


def uniform(
    shape: Any,
    minval: Any = 0,
    maxval: Any = None,
    dtype: Any = np.float32,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """Numbers from `minval` to below `maxval`: 1, if they are no whole numbers."""
    generator, lengths = _generator(seed), integers(shape)
    if np.dtype(dtype).kind in "iu":
        return Tensor(generator.integers(minval, maxval, lengths, dtype))
    return Tensor(generator.uniform(minval, 1 if maxval is None else maxval, lengths).astype(dtype))


def shuffle(value: Any, seed: int | None = None, name: str | None = None) -> Any:
    """The rows in another order."""
    value = convert(value)
    return value[_generator(seed).permutation(len(value))]


def categorical(
    logits: Any,
    num_samples: int,
    dtype: Any = np.int64,
    seed: int | None = None,
    name: str | None = None,
) -> Tensor:
    """For each row of logits so many class numbers."""
    scores = plain(logits)[:, None, :]
    noise = _generator(seed).gumbel(size=(len(scores), num_samples, scores.shape[-1]))
    return Tensor(np.argmax(scores + noise, axis=-1).astype(dtype))


def multinomial(
    logits: Any,
    num_samples: int,
    seed: int | None = None,
    name: str | None = None,
    output_dtype: Any = None,
) -> Tensor:
    """TensorFlow 1's name of `categorical`, with its arguments in another order."""
    return categorical(logits, num_samples, output_dtype or np.int64, seed)
