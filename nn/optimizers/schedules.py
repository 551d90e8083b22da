"""Learning rates that change with the step, under Keras's names.

A schedule is a pure function of the number of updates made so far (0 at the first one). All are
frozen dataclasses, so that they compare, print and travel to other processes as plain values; one
of your own is any function of the step, or a subclass of `LearningRateSchedule`. All take a `name`,
as Keras's do; it has no effect.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..serialization import Serializable

_NAME: Any = field(default=None, compare=False, repr=False)


class LearningRateSchedule(Serializable, ABC):
    """The learning rate as a function of the step. A subclass says which in `__call__`.

    >>> class Falling(LearningRateSchedule):
    ...     def __init__(self, first):
    ...         self.first = first
    ...
    ...     def __call__(self, step):
    ...         return self.first / (step + 1)
    >>> Falling(0.1)(9)
    0.01
    """

    @abstractmethod
    def __call__(self, step: int) -> float:
        """The learning rate of the update after `step` (≥ 0) updates."""


@dataclass(frozen=True)
class Constant(LearningRateSchedule):
    """The same learning rate at every step."""

    learning_rate: float

    def __call__(self, step: int) -> float:
        return self.learning_rate


@dataclass(frozen=True)
class ExponentialDecay(LearningRateSchedule):
    """`initial_learning_rate · decay_rate ^ (step / decay_steps)`.

    Args:
        staircase: Round the exponent down, so that the rate falls once in `decay_steps`.
    """

    initial_learning_rate: float
    decay_steps: int
    decay_rate: float
    staircase: bool = False
    name: str | None = _NAME

    def __post_init__(self) -> None:
        _check_positive("decay_steps", self.decay_steps)

    def __call__(self, step: int) -> float:
        exponent = step / self.decay_steps
        if self.staircase:
            exponent = math.floor(exponent)
        return self.initial_learning_rate * self.decay_rate**exponent


@dataclass(frozen=True)
class InverseTimeDecay(LearningRateSchedule):
    """`initial_learning_rate / (1 + decay_rate · step / decay_steps)`.

    Args:
        staircase: Round `step / decay_steps` down, so that the rate falls once in `decay_steps`.
    """

    initial_learning_rate: float
    decay_steps: int
    decay_rate: float
    staircase: bool = False
    name: str | None = _NAME

    def __post_init__(self) -> None:
        _check_positive("decay_steps", self.decay_steps)

    def __call__(self, step: int) -> float:
        periods = step / self.decay_steps
        if self.staircase:
            periods = math.floor(periods)
        return self.initial_learning_rate / (1 + self.decay_rate * periods)


@dataclass(frozen=True)
class PiecewiseConstantDecay(LearningRateSchedule):
    """`values[0]` up to and including step `boundaries[0]`, then `values[1]`, and so on.

    Args:
        boundaries: Steps in rising order.
        values: Learning rates, one more than boundaries.
    """

    boundaries: Sequence[int]
    values: Sequence[float]
    name: str | None = _NAME

    def __post_init__(self) -> None:
        object.__setattr__(self, "boundaries", tuple(self.boundaries))
        object.__setattr__(self, "values", tuple(self.values))
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(
                f"values must have one entry more than boundaries; "
                f"there are {len(self.values)} values and {len(self.boundaries)} boundaries"
            )
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError(f"boundaries must rise, they are {self.boundaries}")

    def __call__(self, step: int) -> float:
        return self.values[sum(step > boundary for boundary in self.boundaries)]


@dataclass(frozen=True)
class PolynomialDecay(LearningRateSchedule):
    """From the initial to the end rate along `(1 - step / decay_steps) ^ power`.

    Args:
        cycle: Start again with longer and longer decays where the end is reached, instead of
            staying at `end_learning_rate`.
    """

    initial_learning_rate: float
    decay_steps: int
    end_learning_rate: float = 0.0001
    power: float = 1.0
    cycle: bool = False
    name: str | None = _NAME

    def __post_init__(self) -> None:
        _check_positive("decay_steps", self.decay_steps)

    def __call__(self, step: int) -> float:
        num_decays = max(1, math.ceil(step / self.decay_steps)) if self.cycle else 1
        decay_steps = self.decay_steps * num_decays
        left = 1 - min(step, decay_steps) / decay_steps
        span = self.initial_learning_rate - self.end_learning_rate
        return self.end_learning_rate + span * left**self.power


@dataclass(frozen=True)
class CosineDecay(LearningRateSchedule):
    """Half a cosine wave from the initial rate to `alpha` times it: Loshchilov and Hutter (2016).

    Args:
        decay_steps: The length of the decay, after the warm-up.
        alpha: The last rate as a fraction of the first.
        warmup_target: If given, rise from `initial_learning_rate` to this first, in a line over
            `warmup_steps`, and decay from it.
    """

    initial_learning_rate: float
    decay_steps: int
    alpha: float = 0.0
    name: str | None = _NAME
    warmup_target: float | None = None
    warmup_steps: int = 0

    def __post_init__(self) -> None:
        _check_positive("decay_steps", self.decay_steps)

    def __call__(self, step: int) -> float:
        peak = self.initial_learning_rate
        if self.warmup_target is not None:
            if step < self.warmup_steps:
                rise = self.warmup_target - self.initial_learning_rate
                return self.initial_learning_rate + rise * step / self.warmup_steps
            peak = self.warmup_target
            step -= self.warmup_steps
        cosine = 0.5 * (1 + math.cos(math.pi * min(step, self.decay_steps) / self.decay_steps))
        return peak * ((1 - self.alpha) * cosine + self.alpha)


@dataclass(frozen=True)
class CosineDecayRestarts(LearningRateSchedule):
    """Half cosine waves, one after the other: Loshchilov and Hutter (2016).

    Args:
        first_decay_steps: The length of the first one.
        t_mul: How many times as long the next one is, at least 1.
        m_mul: How many times as high the next one begins.
        alpha: The last rate as a fraction of the initial one.
    """

    initial_learning_rate: float
    first_decay_steps: int
    t_mul: float = 2.0
    m_mul: float = 1.0
    alpha: float = 0.0
    name: str | None = _NAME

    def __post_init__(self) -> None:
        _check_positive("first_decay_steps", self.first_decay_steps)
        if not self.t_mul >= 1:
            raise ValueError(
                f"t_mul must be at least 1, it is {self.t_mul}: shorter and shorter waves would "
                f"come to an end"
            )

    def __call__(self, step: int) -> float:
        num_restarts, share = self._wave(step / self.first_decay_steps)
        cosine = 0.5 * self.m_mul**num_restarts * (1 + math.cos(math.pi * share))
        return self.initial_learning_rate * ((1 - self.alpha) * cosine + self.alpha)

    def _wave(self, time: float) -> tuple[int, float]:
        """Which wave it is after `time` lengths of the first one, and the share that is over."""
        if self.t_mul == 1:
            return math.floor(time), time % 1
        # Wave i begins after (t_mul^i - 1) / (t_mul - 1). A logarithm may fall a little short of
        # the whole number that it stands for.
        ratio = self.t_mul - 1
        index = math.floor(math.log1p(time * ratio) / math.log(self.t_mul) + 1e-12)
        length = self.t_mul**index
        return index, max(time - (length - 1) / ratio, 0.0) / length


@dataclass(frozen=True)
class LinearWarmup(LearningRateSchedule):
    """Rise in a line from `initial_learning_rate` to the start of another schedule, then follow it.

    Args:
        schedule: A learning rate or a schedule; its step 0 is the end of the warm-up.
        warmup_steps: The length of the rise.
    """

    schedule: float | Callable[[int], float]
    warmup_steps: int
    initial_learning_rate: float = 0.0

    def __post_init__(self) -> None:
        _check_positive("warmup_steps", self.warmup_steps)
        object.__setattr__(self, "schedule", get(self.schedule))

    def __call__(self, step: int) -> float:
        schedule = get(self.schedule)
        if step >= self.warmup_steps:
            return schedule(step - self.warmup_steps)
        rise = schedule(0) - self.initial_learning_rate
        return self.initial_learning_rate + rise * step / self.warmup_steps


def get(learning_rate: float | Callable[[int], float]) -> Callable[[int], float]:
    """A schedule from itself or from a number.

    Raises:
        TypeError: It is neither.
        ValueError: The number is negative or not finite.
    """
    if callable(learning_rate):
        return learning_rate
    if learning_rate is None or isinstance(learning_rate, str | bool):
        raise TypeError(
            f"learning_rate must be a number, a schedule or a function of the step, it is "
            f"{learning_rate!r}"
        )
    rate = float(learning_rate)
    if not (math.isfinite(rate) and rate >= 0):
        raise ValueError(f"learning_rate must be a finite number ≥ 0 or a schedule, it is {rate}")
    return Constant(rate)


def _check_positive(argument: str, value: float) -> None:
    if value <= 0:
        raise ValueError(f"{argument} must be positive, it is {value}")
