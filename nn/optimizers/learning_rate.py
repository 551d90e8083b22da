"""What an optimizer takes as its learning rate, and what it shows of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np

from . import schedules
from .schedules import LearningRateSchedule

LearningRate: TypeAlias = "float | Callable[[int], float] | Callable[[], float]"
Schedule: TypeAlias = Callable[[int], float]


class HasLearningRate(Protocol):
    """An optimizer."""

    learning_rate: Any


class CurrentRate(float):
    """The learning rate of the next update: a number, through which another one can be assigned."""

    __slots__ = ("_optimizer",)
    _optimizer: HasLearningRate
    dtype = np.dtype(np.float32)  # as of a variable, for who converts what is assigned

    @classmethod
    def of(cls, optimizer: HasLearningRate, rate: float) -> CurrentRate:
        """The rate that `optimizer` has now."""
        self = cls(rate)
        self._optimizer = optimizer
        return self

    def assign(self, value: float) -> float:
        """Let the optimizer have another rate from the next update on; returns it."""
        self._optimizer.learning_rate = float(value)
        return float(value)

    def numpy(self) -> np.float32:
        """The number as an array's element."""
        return np.float32(self)

    def value(self) -> float:
        """The number."""
        return float(self)

    read_value = value

    def __reduce__(self) -> tuple[type[float], tuple[float]]:
        return float, (float(self),)


def schedule_of(learning_rate: LearningRate) -> Schedule:
    """A function of the number of updates made so far, of whatever an optimizer is given.

    Raises:
        ValueError: A number that is negative or not finite.
    """
    if not callable(learning_rate) or isinstance(learning_rate, LearningRateSchedule):
        return schedules.get(learning_rate)
    function: Callable[..., float] = learning_rate
    return function if _takes_step(function) else _Called(function)


@dataclass(frozen=True)
class _Called:
    """A learning rate that a function of no argument tells, asked in each step."""

    rate: Callable[..., float]

    def __call__(self, step: int) -> float:
        return float(self.rate())


def _takes_step(function: Callable[..., float]) -> bool:
    try:
        inspect.signature(function).bind(0)
    except TypeError:
        return False
    except ValueError:  # of a function in C there may be none
        return True
    return True


@dataclass(frozen=True)
class _Scaled(LearningRateSchedule):
    """Another schedule, times a number."""

    schedule: Schedule
    factor: float

    def __call__(self, step: int) -> float:
        return self.schedule(step) * self.factor


def linearly_scaled(
    learning_rate: LearningRate, global_batch_size: int, base_batch_size: int
) -> Any:
    """The learning rate for another batch size, by the linear scaling rule of Goyal et al. (2017).

    No optimizer does so by itself: whether it fits is to be tried, mostly with a warm-up.

    >>> linearly_scaled(0.1, global_batch_size=512, base_batch_size=256)
    0.2

    Args:
        learning_rate: That which was tuned, or a schedule of it.
        global_batch_size: How many examples an update has now, over all replicas.
        base_batch_size: How many it had when the rate was tuned.

    Returns:
        A number, or a schedule.

    Raises:
        ValueError: A batch size is not positive.
    """
    for name, size in (
        ("global_batch_size", global_batch_size),
        ("base_batch_size", base_batch_size),
    ):
        if size <= 0:
            raise ValueError(f"{name} must be positive, it is {size}")
    factor = global_batch_size / base_batch_size
    schedule = schedule_of(learning_rate)
    return _Scaled(schedule, factor) if callable(learning_rate) else schedule(0) * factor
