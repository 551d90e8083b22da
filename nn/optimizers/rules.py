"""The update rules of optimizers by name: pure arithmetic on arrays, see `Rule`.

The formulas and defaults are those of Keras 2.15 unless said; `RULES` lists them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...autodiff import Array
from ...strategies import RuleStep
from .adaptive_rules import (
    AdadeltaRule,
    AdafactorRule,
    AdamaxRule,
    LambRule,
    LionRule,
    NadamRule,
)
from .rule import Rule, Slots


@dataclass(frozen=True, kw_only=True)
class SGDRule(Rule):
    """Gradient descent, with (Nesterov's) momentum where a momentum in (0, 1] is given.

    `velocity ← momentum · velocity - lr · g`, and the value moves by the velocity, or with Nesterov
    by the velocity that the next step would have.
    """

    name = "sgd"
    momentum: float = 0.0
    nesterov: bool = False

    def own_slots(self) -> Mapping[str, float]:
        return {"momentum": 0.0} if self.momentum else {}

    def rests_at_zero(self) -> bool:
        return not self.momentum

    def loop_name(self) -> str | None:
        return ("nesterov" if self.nesterov else "momentum") if self.momentum else "sgd"

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        loop = self.compiled(value, gradient, slots)
        if loop is not None:
            loop(value, gradient, *slots, *([self.momentum] if slots else ()), rate)
            return
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
class AdamRule(Rule):
    """Kingma and Ba (2015), in the form at the end of their section 2.

    `epsilon` is added to the root of the moment as it is, not of the bias-corrected one: it is the
    paper's "epsilon hat", as in Keras. With `amsgrad` the largest second moment so far divides
    (Reddi et al. 2018).
    """

    name = "adam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7
    amsgrad: bool = False

    def own_slots(self) -> Mapping[str, float]:
        return dict.fromkeys(("m", "v", "v_hat") if self.amsgrad else ("m", "v"), 0.0)

    def loop_name(self) -> str | None:
        return None if self.amsgrad else "adam"

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        m, v = slots[0], slots[1]
        # Both bias corrections as one number: an array of corrected moments is never made.
        correction = math.sqrt(1 - self.beta_2**step) / (1 - self.beta_1**step)
        loop = self.compiled(value, gradient, slots)
        if loop is not None:
            betas = self.beta_1, 1 - self.beta_1, self.beta_2, 1 - self.beta_2
            loop(value, gradient, m, v, *betas, self.epsilon, rate * correction)
            return
        scratch = gradient * (1 - self.beta_1)
        m *= self.beta_1
        m += scratch
        np.multiply(gradient, gradient, out=scratch)
        scratch *= 1 - self.beta_2
        v *= self.beta_2
        v += scratch
        if self.amsgrad:
            v = np.maximum(slots[2], v, out=slots[2])
        np.sqrt(v, out=scratch)
        scratch += self.epsilon
        np.divide(m, scratch, out=scratch)
        scratch *= rate * correction
        value -= scratch


@dataclass(frozen=True, kw_only=True)
class AdamWRule(AdamRule):
    """Adam with decoupled weight decay: Loshchilov and Hutter (2019)."""

    name = "adamw"
    weight_decay: float = 0.004


@dataclass(frozen=True, kw_only=True)
class AdagradRule(Rule):
    """Duchi et al. (2011): divide by the root of the sum of all squared gradients so far."""

    name = "adagrad"
    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    def own_slots(self) -> Mapping[str, float]:
        return {"accumulator": self.initial_accumulator_value}

    def rests_at_zero(self) -> bool:
        return True

    def loop_name(self) -> str | None:
        return "adagrad"

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        (accumulator,) = slots
        loop = self.compiled(value, gradient, slots)
        if loop is not None:
            loop(value, gradient, accumulator, self.epsilon, rate)
            return
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
    initial_accumulator_value: float = 0.0

    def own_slots(self) -> Mapping[str, float]:
        names = ["average_gradient"] if self.centered else []
        names += ["momentum"] if self.momentum else []
        return {"rms": self.initial_accumulator_value, **dict.fromkeys(names, 0.0)}

    def loop_name(self) -> str | None:
        return None if self.centered or self.momentum else "rmsprop"

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        rms = slots[0]
        loop = self.compiled(value, gradient, slots)
        if loop is not None:
            loop(value, gradient, rms, self.rho, 1 - self.rho, self.epsilon, rate)
            return
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

    def own_slots(self) -> Mapping[str, float]:
        return {"accumulator": self.initial_accumulator_value, "linear": 0.0}

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
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


_KINDS: tuple[type[Rule], ...] = (
    SGDRule,
    AdamRule,
    AdamWRule,
    AdagradRule,
    RMSpropRule,
    FtrlRule,
    AdadeltaRule,
    AdamaxRule,
    NadamRule,
    LionRule,
    LambRule,
    AdafactorRule,
)
RULES: Mapping[str, type[Rule]] = {kind.name: kind for kind in _KINDS}
"""The update rules by name."""


def server_rules() -> dict[str, Callable[..., Callable[..., None]]]:
    """The update rules as a parameter server takes them: those that are elementwise.

    Each is `rule(hyper)`, of the hyper-parameters by name, and gives what changes arrays of any
    length: `update(value, gradient, slots, learning_rate, step)`.
    """
    elementwise = {name: kind for name, kind in RULES.items() if kind.is_elementwise}
    return {name: partial(_update_of, kind) for name, kind in elementwise.items()}


def _update_of(kind: type[Rule], hyper: Mapping[str, Any]) -> Callable[..., None]:
    rule = kind(**hyper)
    num_slots = len(rule.slots())

    def update(
        value: Array, gradient: Array, slots: Slots, learning_rate: float, step: int
    ) -> None:
        if len(slots) != num_slots:
            raise ValueError(f"rule {rule.name!r} keeps {num_slots} slots, not {len(slots)}")
        RuleStep(rule, learning_rate, step).change(value, gradient, slots)

    return update
