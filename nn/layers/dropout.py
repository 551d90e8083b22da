"""Dropout."""

from __future__ import annotations

import itertools
import threading
import zlib
from typing import Any, Unpack

import numpy as np

from ...autodiff import Tensor
from ...strategies import current_store, get_replica_context
from ..arguments import count
from .base import Layer, LayerOptions, to_floats


class Dropout(Layer):
    """In training, zero for a share `rate` of the inputs, and the others times 1 / (1 - rate).

    Outside training inputs pass through: Srivastava et al. (2014).

    What is dropped depends on the model's seed, the layer's name, the replica, the model's global
    step where it has one, and the calls in training since that last moved. A run can be repeated,
    a resumed one drops what it would have dropped, and no two steps, layers or replicas drop alike.

    Args:
        rate: In [0, 1).
        noise_shape: The shape of the random draw, broadcast to the inputs: an axis of length 1 is
            dropped as a whole. None draws for each input.
        seed: In the place of the model's.
        **options: See `Layer`.
    """

    def __init__(
        self,
        rate: float,
        noise_shape: tuple[int | None, ...] | None = None,
        seed: int | None = None,
        **options: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**options)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and below 1, it is {rate}")
        self.rate = rate
        self.noise_shape = _checked_noise_shape(noise_shape)
        store = current_store()
        self._seed = store.seed if seed is None else seed
        self._calls: _Calls = store.find_or_create(("dropout calls", self.name), _Calls)

    def call(self, inputs: Any, training: bool) -> Tensor:
        inputs = to_floats(inputs, self.dtype)
        if not training or not self.rate:
            return inputs
        shape = self._draw_shape(inputs.shape)
        # One product, forward and backward, with zeros and 1 / (1 - rate) in the inputs' dtype.
        kept = self._generator().random(shape, np.float32) >= self.rate
        factors = np.multiply(kept, 1.0 / (1.0 - self.rate), dtype=inputs.dtype)
        return inputs * np.asarray(factors, like=inputs.data)

    def _draw_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.noise_shape is None:
            return shape
        pairs = list(itertools.zip_longest(self.noise_shape, shape))
        if len(self.noise_shape) != len(shape) or not all(m in (None, 1, n) for m, n in pairs):
            raise ValueError(
                f"layer {self.name!r} has noise_shape {self.noise_shape}, which does not broadcast "
                f"to its inputs of shape {shape}; it needs 1, None or the inputs' length for each "
                f"of their axes"
            )
        return tuple(n if m is None else m for m, n in pairs)

    def _generator(self) -> np.random.Generator:
        replica = get_replica_context()
        replica_id = 0
        if replica is not None:
            # Among the replicas of all workers, also of those that are not in step with it: two
            # asynchronous workers of one seed must not drop alike.
            extended = replica.strategy.extended
            first = extended.job.trainer_index * extended.num_local_replicas
            replica_id = first + replica.local_index
        global_step = current_store().variables.get("global_step")
        step = 0 if global_step is None else int(global_step)
        # What stands in for a batch does not count: the next one at this step is the first.
        stands_in = replica is not None and not replica.has_examples
        call = 0 if stands_in else self._calls.count(replica_id, step)
        if self._seed is None:
            return np.random.default_rng()
        # A checksum of the name, not its hash, which differs between processes.
        key = [self._seed, zlib.crc32(self.name.encode()), replica_id, step, call]
        return np.random.default_rng(key)


def _checked_noise_shape(given: Any) -> tuple[int | None, ...] | None:
    """The shape of the random draw as it was given: positive integers and None."""
    if given is None:
        return None
    if not isinstance(given, (tuple, list)):
        raise ValueError(f"noise_shape must be None or a tuple, it is {given!r}")
    return tuple(None if n is None else count("each entry of noise_shape", n) for n in given)


class _Calls:
    """How often each replica has called a layer in training since the global step moved."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[int, tuple[int, int]] = {}

    def __reduce__(self) -> tuple[type[_Calls], tuple[()]]:
        return _Calls, ()  # a copy of a layer has not been called

    def count(self, replica_id: int, step: int) -> int:
        """Note a call at `step` and return how many came before it at the same step."""
        with self._lock:
            last_step, calls = self._last.get(replica_id, (step, 0))
            before = calls if last_step == step else 0
            self._last[replica_id] = (step, before + 1)
            return before
