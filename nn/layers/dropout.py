"""Dropout and noise."""

from __future__ import annotations

import itertools
import math
import threading
import zlib
from typing import Any, Unpack

import numpy as np

from ...autodiff import Array, Tensor, by_host, is_capturing, random_factors, random_normal
from ...strategies import current_store, get_replica_context
from ..arguments import check_not_negative, count
from ..policies import to_floats
from .base import Layer
from .options import LayerOptions
from .spatial import check_data_format


class RandomLayer(Layer):
    """A layer that draws numbers: see `Dropout` for what they depend on."""

    supports_masking = True

    def __init__(self, seed: int | None = None, **options: Unpack[LayerOptions]) -> None:
        super().__init__(**options)
        store = current_store()
        self.seed = seed
        self._seed = store.seed if seed is None else seed
        self._calls: _Calls = store.find_or_create(("dropout calls", self.variables_prefix), _Calls)

    def generator(self) -> np.random.Generator:
        """What a call draws from: in an operation that is done `by_host`.

        Raises:
            RuntimeError: It would give all steps of a CUDA graph the same numbers.
        """
        if is_capturing():
            raise RuntimeError(f"layer {self.name!r} draws numbers on the host in each step")
        replica = get_replica_context()
        replica_id = local_index = 0
        if replica is not None:
            local_index = replica.local_index
            # Among the replicas of all workers, also of those that are not in step with it: two
            # asynchronous workers of one seed must not drop alike.
            extended = replica.strategy.extended
            replica_id = extended.job.trainer_index * extended.num_local_replicas + local_index
        global_step = current_store().known_global_step
        step = 0 if global_step is None else int(global_step.value_in(local_index))
        # What stands in for a batch does not count: the next one at this step is the first.
        stands_in = replica is not None and not replica.has_examples
        call = 0 if stands_in else self._calls.count(replica_id, step)
        if self._seed is None:
            return np.random.default_rng()
        # A checksum of the name, not its hash, which differs between processes.
        key = [self._seed, zlib.crc32(self.variables_prefix.encode()), replica_id, step, call]
        return np.random.default_rng(key)

    @by_host
    def noise(self, inputs: Tensor, stddev: float, mean: float = 0.0) -> Array:
        """Normal numbers around `mean`, of the inputs' shape and dtype."""
        drawn = random_normal(self.generator(), stddev, inputs.shape, inputs.data)
        return mean + drawn if mean else drawn


class Dropout(RandomLayer):
    """In training, zero for a share `rate` of the inputs, and the others times 1 / (1 - rate).

    Outside training inputs pass through: Srivastava et al. (2014).

    What is dropped depends on the model's seed, the layer's name, the replica, the model's global
    step where it has one, and the calls in training since that last moved. A run can be repeated,
    a resumed one drops what it would have dropped, and no two steps, layers or replicas drop alike.
    On a GPU the numbers are drawn there, and other ones than on the host.

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
        super().__init__(seed, **options)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and below 1, it is {rate}")
        self.rate = rate
        self.noise_shape = _checked_noise_shape(noise_shape)

    def call(self, inputs: Any, training: bool) -> Tensor:
        inputs = to_floats(inputs, self.compute_dtype)
        if not training or not self.rate:
            return inputs
        # One product, forward and backward, with zeros and 1 / (1 - rate) in the inputs' dtype.
        return inputs * self.factors(inputs, self.draw_shape(inputs.shape))

    @by_host
    def factors(self, inputs: Tensor, shape: tuple[int, ...]) -> Array:
        """Zeros and 1 / (1 - rate), in the inputs' dtype."""
        return random_factors(self.generator(), self.rate, shape, inputs.data)

    def draw_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
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


class _SpatialDropout(Dropout):
    rank = 2

    def __init__(
        self, rate: float, data_format: str | None = None, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(rate, **options)
        self.data_format = check_data_format(data_format)

    def draw_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if len(shape) != self.rank + 2:
            raise ValueError(
                f"layer {self.name!r} takes inputs of rank {self.rank + 2}, it was given shape "
                f"{shape}"
            )
        ones = (1,) * self.rank
        if self.data_format == "channels_first":
            return (*shape[:2], *ones)
        return (shape[0], *ones, shape[-1])


class SpatialDropout1D(_SpatialDropout):
    """Dropout of whole channels of sequences (batch, steps, channels): Tompson et al. (2014)."""

    rank = 1

    def __init__(self, rate: float, **options: Unpack[LayerOptions]) -> None:
        super().__init__(rate, **options)


class SpatialDropout2D(_SpatialDropout):
    """Dropout of whole channels of images: Tompson et al. (2014)."""


class SpatialDropout3D(_SpatialDropout):
    """Dropout of whole channels of volumes: Tompson et al. (2014)."""

    rank = 3


class GaussianNoise(RandomLayer):
    """In training, inputs plus normal noise of that standard deviation; elsewhere inputs pass.

    Args:
        stddev: Not negative.
        seed: See `Dropout`.
        **options: See `Layer`.
    """

    def __init__(
        self, stddev: float, seed: int | None = None, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(seed, **options)
        check_not_negative("stddev", stddev)
        self.stddev = stddev

    def call(self, inputs: Any, training: bool) -> Tensor:
        inputs = to_floats(inputs, self.compute_dtype)
        if not training or not self.stddev:
            return inputs
        return inputs + self.noise(inputs, self.stddev)


class GaussianDropout(RandomLayer):
    """In training, inputs times normal noise around 1 of standard deviation √(rate / (1 - rate)).

    Srivastava et al. (2014), section 10: of the same mean and variance as `Dropout`.
    """

    def __init__(
        self, rate: float, seed: int | None = None, **options: Unpack[LayerOptions]
    ) -> None:
        super().__init__(seed, **options)
        if not 0 <= rate < 1:
            raise ValueError(f"rate must be at least 0 and below 1, it is {rate}")
        self.rate = rate

    def call(self, inputs: Any, training: bool) -> Tensor:
        inputs = to_floats(inputs, self.compute_dtype)
        if not training or not self.rate:
            return inputs
        stddev = math.sqrt(self.rate / (1 - self.rate))
        return inputs * self.noise(inputs, stddev, mean=1.0)


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
