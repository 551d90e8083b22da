"""Initial values of variables, under Keras's names.

An initializer is a callable `(shape, dtype, rng) -> array`. The generator comes from the store of
the model, seeded by the variable's name, so that a value depends neither on the order of creation
nor on the number of replicas. Values are drawn in float64 and then converted: a float32 and a
float64 model of one seed start from the same numbers.

Called by hand as in Keras, `initializer(shape)`, those here draw from a generator of their seed.
Callables of Keras's kind, `(shape, dtype) -> array`, are taken wherever those here are.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from ..strategies import drawn, fans, uniform_of_variance
from .arguments import by_name, check_choice
from .serialization import Serializable

Shape: TypeAlias = "tuple[int, ...]"
Rng: TypeAlias = "np.random.Generator | None"

_TRUNCATED_STDDEV = 0.87962566103423978
"""The standard deviation of a standard normal distribution that is cut off at ±2."""


class Initializer(Serializable, ABC):
    """Gives the initial value of a variable."""

    @abstractmethod
    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        """An array of `shape` and `dtype`; random ones are drawn from `rng`."""


@dataclass(frozen=True)
class Zeros(Initializer):
    """All zeros."""

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        return np.zeros(shape, dtype)


@dataclass(frozen=True)
class Ones(Initializer):
    """All ones."""

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        return np.ones(shape, dtype)


@dataclass(frozen=True)
class Constant(Initializer):
    """One number everywhere, or an array that is broadcast to the variable's shape."""

    value: Any = 0.0

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        return np.full(shape, self.value, dtype)


@dataclass(frozen=True)
class RandomUniform(Initializer):
    """Uniform between `minval` (included) and `maxval` (excluded).

    Args:
        seed: Draw from a generator of this seed instead of the model's. Two variables of one shape
            then start equal.
    """

    minval: float = -0.05
    maxval: float = 0.05
    seed: int | None = None

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        rng = _generator(self.seed, rng)
        return drawn(partial(rng.uniform, self.minval, self.maxval), shape, dtype)


@dataclass(frozen=True)
class RandomNormal(Initializer):
    """Normal with the given mean and standard deviation; for `seed` see `RandomUniform`."""

    mean: float = 0.0
    stddev: float = 0.05
    seed: int | None = None

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        rng = _generator(self.seed, rng)
        return drawn(partial(rng.normal, self.mean, self.stddev), shape, dtype)


@dataclass(frozen=True)
class TruncatedNormal(Initializer):
    """Normal, with values further than 2 `stddev` from the mean drawn again.

    As in Keras `stddev` is that of the distribution before it is cut; what is drawn has 0.88 of it.
    For `seed` see `RandomUniform`.
    """

    mean: float = 0.0
    stddev: float = 0.05
    seed: int | None = None

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        draws = _truncated_standard_normal(shape, _generator(self.seed, rng))
        return (self.mean + self.stddev * draws).astype(dtype)


@dataclass(frozen=True)
class VarianceScaling(Initializer):
    """Zero mean, and a variance of `scale` divided by the number of inputs or outputs.

    Args:
        scale: Positive.
        mode: What to divide by: "fan_in", "fan_out", or their mean "fan_avg". A convolution's fans
            count the positions of its window.
        distribution: "truncated_normal" (its stddev corrected for the cut), "untruncated_normal" or
            "uniform".
        seed: See `RandomUniform`.
    """

    scale: float = 1.0
    mode: str = "fan_in"
    distribution: str = "truncated_normal"
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.scale <= 0:
            raise ValueError(f"scale must be positive, it is {self.scale}")
        check_choice("mode", self.mode, ("fan_in", "fan_out", "fan_avg"))
        check_choice(
            "distribution", self.distribution, ("truncated_normal", "untruncated_normal", "uniform")
        )

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        rng = _generator(self.seed, rng)
        fan_in, fan_out = fans(shape)
        fan = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}[self.mode]
        variance = self.scale / max(1.0, fan)
        if self.distribution == "uniform":
            return uniform_of_variance(variance, shape, dtype, rng)
        if self.distribution == "untruncated_normal":
            return drawn(partial(rng.normal, 0.0, math.sqrt(variance)), shape, dtype)
        # The cut takes 12 % of the standard deviation, which is given back beforehand.
        stddev = math.sqrt(variance) / _TRUNCATED_STDDEV
        return np.asarray(stddev * _truncated_standard_normal(shape, rng)).astype(dtype)


# Variances of 2 / (inputs + outputs): Glorot and Bengio (2010); of 2 / inputs: He et al. (2015); of
# 1 / inputs: LeCun et al. (1998). All take a `seed`.
glorot_uniform = partial(VarianceScaling, 1.0, "fan_avg", "uniform")
glorot_normal = partial(VarianceScaling, 1.0, "fan_avg", "truncated_normal")
he_uniform = partial(VarianceScaling, 2.0, "fan_in", "uniform")
he_normal = partial(VarianceScaling, 2.0, "fan_in", "truncated_normal")
lecun_uniform = partial(VarianceScaling, 1.0, "fan_in", "uniform")
lecun_normal = partial(VarianceScaling, 1.0, "fan_in", "truncated_normal")


@dataclass(frozen=True)
class Orthogonal(Initializer):
    """A matrix with orthonormal rows or columns, whichever are fewer: Saxe et al. (2013).

    A variable of rank above 2 is treated as a matrix whose columns are its last axis.
    For `seed` see `RandomUniform`.
    """

    gain: float = 1.0
    seed: int | None = None

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        if len(shape) < 2:
            raise ValueError(f"orthogonal needs a variable of rank ≥ 2, this one has shape {shape}")
        num_rows, num_columns = math.prod(shape[:-1]), shape[-1]
        tall = (max(num_rows, num_columns), min(num_rows, num_columns))
        q, r = np.linalg.qr(_generator(self.seed, rng).standard_normal(tall))
        q *= np.where(np.diag(r) < 0, -1.0, 1.0)  # without it QR prefers some matrices to others
        matrix = q if num_rows >= num_columns else q.T
        return (self.gain * matrix).reshape(shape).astype(dtype)


@dataclass(frozen=True)
class Identity(Initializer):
    """`gain` on the diagonal of a matrix, zeros elsewhere."""

    gain: float = 1.0

    def __call__(self, shape: Shape, dtype: Any = np.float32, rng: Rng = None) -> np.ndarray:
        if len(shape) != 2:
            raise ValueError(f"identity needs a variable of rank 2, this one has shape {shape}")
        return self.gain * np.eye(*shape, dtype=dtype)


def _generator(seed: int | None, rng: Rng) -> np.random.Generator:
    return np.random.default_rng(seed) if rng is None or seed is not None else rng


def _truncated_standard_normal(shape: Shape, rng: np.random.Generator) -> np.ndarray:
    values = np.asarray(rng.standard_normal(shape))
    outside = np.abs(values) > 2
    while outside.any():
        values[outside] = rng.standard_normal(int(outside.sum()))
        outside = np.abs(values) > 2
    return values


GlorotUniform = glorot_uniform
GlorotNormal = glorot_normal
HeUniform = he_uniform
HeNormal = he_normal
LecunUniform = lecun_uniform
LecunNormal = lecun_normal
zeros = Zeros
ones = Ones
constant = Constant
random_uniform = uniform = RandomUniform
random_normal = normal = RandomNormal
truncated_normal = TruncatedNormal
variance_scaling = VarianceScaling
orthogonal = OrthogonalInitializer = Orthogonal
identity = Identity

_MAKERS: dict[str, Callable[[], Initializer]] = {
    "constant": Constant,
    "glorot_normal": glorot_normal,
    "glorot_uniform": glorot_uniform,
    "he_normal": he_normal,
    "he_uniform": he_uniform,
    "identity": Identity,
    "lecun_normal": lecun_normal,
    "lecun_uniform": lecun_uniform,
    "normal": RandomNormal,
    "ones": Ones,
    "orthogonal": Orthogonal,
    "random_normal": RandomNormal,
    "random_uniform": RandomUniform,
    "truncated_normal": TruncatedNormal,
    "uniform": RandomUniform,
    "variance_scaling": VarianceScaling,
    "zeros": Zeros,
}


def get(identifier: str | Callable[..., Any]) -> Callable[..., Any]:
    """The initializer that a layer's argument means.

    Args:
        identifier: A name ("glorot_uniform", or Keras's class name "GlorotUniform"), one of this
            module's classes, or any callable `(shape, dtype, rng) -> array`, also Keras's
            `(shape, dtype) -> array`.

    Raises:
        ValueError: No initializer has this name.
        TypeError: It is neither a name nor callable.
    """
    if isinstance(identifier, str):
        return by_name("initializer", identifier.removesuffix("Initializer"), _MAKERS)()
    if isinstance(identifier, type) or any(identifier is maker for maker in _MAKERS.values()):
        return identifier()
    if not callable(identifier):
        raise TypeError(
            f"initializer must be a name or a callable (shape, dtype, rng) -> array, "
            f"not {identifier!r}; for values of one's own use Constant({identifier!r})"
        )
    return identifier
