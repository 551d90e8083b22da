"""What an optimizer does to one block of one variable: pure arithmetic on one-dimensional arrays.

A rule is a value: a frozen dataclass of its numbers (hyper-parameters), which `update` follows. All
are elementwise, so that a caller may cut a variable into blocks that fit the cache, into shards on
several parameter servers, or pick the rows that a sparse gradient touches. Whatever is kept between
steps is in the slots.

The arithmetic stays in the dtype of the arrays: numbers are Python floats, which never widen
float32. It is done in place, since a large variable is updated as fast as memory can be read. The
formulas and defaults are those of Keras 2.15 unless said; `RULES` lists them by name.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, TypeAlias

import numpy as np

from ...autodiff import Array
from ...strategies import RuleStep
from ..arguments import check_decay, check_fraction, check_not_negative, check_number

Slots: TypeAlias = Sequence[Array]


def _check_not_positive(argument: str, value: float) -> None:
    check_number(argument, value)
    if value > 0:
        raise ValueError(f"{argument} must be ≤ 0, it is {value}")


_RANGES: Mapping[str, Callable[[str, Any], None]] = {
    "momentum": check_fraction,
    "beta_1": check_decay,
    "beta_2": check_decay,
    "rho": check_decay,
    "learning_rate_power": _check_not_positive,
}
"""What hyper-parameters may be that may not be anything from 0 on."""


class Rule(ABC):
    """An update rule with its hyper-parameters: a frozen dataclass of plain numbers."""

    name: ClassVar[str]
    _checks: ClassVar[Sequence[tuple[str, Callable[[str, Any], None]]]] = ()

    def __init_subclass__(cls) -> None:
        # Once for a class: an optimizer is made anew for each step.
        own = [name for name, kind in cls.__annotations__.items() if kind == "float"]
        checks = [(name, _RANGES.get(name, check_not_negative)) for name in own]
        cls._checks = (*cls._checks, *checks)

    def __post_init__(self) -> None:
        numbers = self.__dict__
        for name, check in self._checks:
            check(name, numbers[name])

    @property
    def numbers(self) -> Mapping[str, float]:
        """The hyper-parameters by name, as a parameter server is told them."""
        return vars(self)

    @abstractmethod
    def slots(self) -> Mapping[str, float]:
        """What is kept beside each variable, in `update`'s order: name → initial value."""

    def keeps_unread(self) -> bool:
        """Whether a gradient of zero changes nothing, so that unread rows may be passed over."""
        return False

    @abstractmethod
    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        """Change `value` along `gradient`.

        Args:
            value: 1-d and contiguous; overwritten, as is each of `slots`.
            gradient: Of the same length; left alone, since other replicas read it too.
            slots: One array for each of `self.slots()`.
            rate: The learning rate of this update.
            step: The number of this update, from 1.
        """


@dataclass(frozen=True, kw_only=True)
class SGDRule(Rule):
    """Gradient descent, with (Nesterov's) momentum where a momentum in (0, 1] is given.

    `velocity ← momentum · velocity - lr · g`, and the value moves by the velocity, or with Nesterov
    by the velocity that the next step would have.
    """

    name = "sgd"
    momentum: float = 0.0
    nesterov: bool = False

    def slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    def keeps_unread(self) -> bool:
        return not self.momentum

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        change = rate * gradient
        if not self.momentum:
            value -= change
            return
        (velocity,) = slots
        velocity *= self.momentum
        velocity -= change
        if self.nesterov:
            np.subtract(self.momentum * velocity, change, out=change)
            value += change
        else:
            value += velocity


@dataclass(frozen=True, kw_only=True)
class _Moments(Rule):
    """Kingma and Ba (2015), in the form at the end of their section 2.

    `epsilon` is added to the root of the moment as it is, not of the bias-corrected one: it is the
    paper's "epsilon hat", as in Keras.
    """

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def slots(self) -> Mapping[str, float]:
        return {"m": 0.0, "v": 0.0}

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        """Adam's update."""
        m, v = slots
        scratch = gradient * (1 - self.beta_1)
        m *= self.beta_1
        m += scratch
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - self.beta_2
        v *= self.beta_2
        v += scratch
        np.sqrt(v, out=scratch)
        scratch += self.epsilon
        np.divide(m, scratch, out=scratch)
        # Both bias corrections as one number: an array of corrected moments is never made.
        correction = math.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        scratch *= rate * correction
        value -= scratch


@dataclass(frozen=True, kw_only=True)
class AdamRule(_Moments):
    """Kingma and Ba (2015); see `_Moments`."""

    name = "adam"

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        self.move(value, gradient, slots, rate, step)


@dataclass(frozen=True, kw_only=True)
class AdamWRule(_Moments):
    """Adam with decoupled weight decay: Loshchilov and Hutter (2019). The decay comes first."""

    name = "adamw"
    weight_decay: float = 0.004

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        value *= 1 - rate * self.weight_decay
        self.move(value, gradient, slots, rate, step)


@dataclass(frozen=True, kw_only=True)
class AdagradRule(Rule):
    """Duchi et al. (2011): divide by the root of the sum of all squared gradients so far."""

    name = "adagrad"
    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    def slots(self) -> Mapping[str, float]:
        return {"accumulator": self.initial_accumulator_value}

    def keeps_unread(self) -> bool:
        return True

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        (accumulator,) = slots
        scratch = gradient * gradient
        accumulator += scratch
        np.add(accumulator, self.epsilon, out=scratch)
        np.sqrt(scratch, out=scratch)
        np.divide(gradient, scratch, out=scratch)
        scratch *= rate
        value -= scratch


@dataclass(frozen=True, kw_only=True)
class RMSpropRule(Rule):
    """Tieleman and Hinton (2012): divide by the root of a moving mean of squared gradients.

    Where it is `centered`, the square of the moving mean of gradients is taken from it first, so
    that it is a variance (Graves 2013).
    """

    name = "rmsprop"
    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False

    def slots(self) -> Mapping[str, float]:
        names = ["rms"]
        names += ["average_gradient"] if self.centered else []
        names += ["momentum"] if self.momentum else []
        return dict.fromkeys(names, 0.0)

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        rms = slots[0]
        scratch = gradient * gradient
        scratch *= 1 - self.rho
        rms *= self.rho
        rms += scratch
        if self.centered:
            average = slots[1]
            average *= self.rho
            average += (1 - self.rho) * gradient
            np.multiply(average, average, out=scratch)
            np.subtract(rms, scratch, out=scratch)
            scratch += self.epsilon
        else:
            np.add(rms, self.epsilon, out=scratch)
        np.sqrt(scratch, out=scratch)
        np.divide(gradient, scratch, out=scratch)
        scratch *= rate
        if self.momentum:
            velocity = slots[-1]
            velocity *= self.momentum
            velocity += scratch
            value -= velocity
        else:
            value -= scratch


@dataclass(frozen=True, kw_only=True)
class FtrlRule(Rule):
    """FTRL-Proximal: algorithm 1 of McMahan et al., "Ad click prediction" (2013).

    Slots are the sum of squared gradients n and the paper's z. The value is computed from them
    alone; with an L1 strength, weights whose z stays below it are exactly zero. The L2 strength is
    half the paper's lambda 2, as in TensorFlow; L2 shrinkage is a penalty on large weights that,
    unlike the former, does not hold back updates.
    """

    name = "ftrl"
    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0

    def slots(self) -> Mapping[str, float]:
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}

    def update(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        if rate == 0:  # the start of a warm-up; the formula would divide by it
            return
        accumulator, linear = slots
        l2 = self.l2_regularization_strength + self.beta / (2 * rate)
        root_before = _power(accumulator, -self.learning_rate_power)
        accumulator += gradient * gradient
        root = _power(accumulator, -self.learning_rate_power)
        linear += gradient
        if self.l2_shrinkage_regularization_strength:
            linear += (2 * self.l2_shrinkage_regularization_strength) * value
        np.subtract(root, root_before, out=root_before)
        root_before *= value
        root_before /= rate
        linear -= root_before
        root /= rate
        root += 2 * l2
        l1 = self.l1_regularization_strength
        # sign(z) l1 - z where |z| > l1, and an exact 0 elsewhere, without a branch.
        np.divide(np.clip(linear, -l1, l1) - linear, root, out=value)


def _power(accumulator: Array, exponent: float) -> Array:
    return np.sqrt(accumulator) if exponent == 0.5 else np.power(accumulator, exponent)


_KINDS: tuple[type[Rule], ...] = (SGDRule, AdamRule, AdamWRule, AdagradRule, RMSpropRule, FtrlRule)
RULES: Mapping[str, type[Rule]] = {kind.name: kind for kind in _KINDS}
"""The update rules by name: the table that a parameter server is given."""


def server_rules() -> dict[str, Callable[..., None]]:
    """The update rules as a parameter server takes them.

    Each is `rule(value, gradient, slots, learning_rate, step, hyper)`, where `hyper` has the
    hyper-parameters by name. They work block by block, on arrays of any length.
    """
    return {name: partial(_update_by_name, kind) for name, kind in RULES.items()}


def _update_by_name(
    kind: type[Rule],
    value: Array,
    gradient: Array,
    slots: Slots,
    learning_rate: float,
    step: int,
    hyper: Mapping[str, float],
) -> None:
    rule = kind(**hyper)
    if len(slots) != len(rule.slots()):
        raise ValueError(f"rule {rule.name!r} keeps {len(rule.slots())} slots, not {len(slots)}")
    RuleStep(rule, learning_rate, step).change(value, gradient, slots)
