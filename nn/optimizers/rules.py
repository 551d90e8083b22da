"""What an optimizer does to one block of one variable: pure arithmetic on one-dimensional arrays.

Each rule is a function `rule(value, gradient, slots, learning_rate, step, hyper)` that overwrites
`value` and `slots` and leaves `gradient` alone, which other replicas read too. All are elementwise,
so that a caller may cut a variable into blocks that fit the cache, into shards on several parameter
servers, or pick the rows that a sparse gradient touches. Whatever is kept between steps is in the
slots.

The arithmetic stays in the dtype of the arrays: numbers are Python floats, which never widen
float32. The formulas and defaults are those of Keras 2.15 unless said; `RULES` lists them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ...autodiff import Array
from ...strategies import RuleStep, UpdateFunction


def _never(hyper: Any) -> bool:
    return False


def _always(hyper: Any) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """An update rule and what it keeps beside each variable.

    Args:
        name: By which a parameter server knows it.
        update: The function.
        hyper: The class of its hyper-parameters, a frozen dataclass of numbers.
        slots: The slots in the order in which `update` takes them, name → initial value, for given
            hyper-parameters. Each is an array of the variable's shape and dtype.
        keeps_unread: Whether a gradient of zero changes nothing, for given hyper-parameters: rows
            of a variable that a step did not read may then be passed over.
    """

    name: str
    update: UpdateFunction
    hyper: type[Any]
    slots: Callable[[Any], Mapping[str, float]]
    keeps_unread: Callable[[Any], bool] = _never


@dataclass(frozen=True, kw_only=True)
class SGDHyper:
    """`momentum` in [0, 1]; with 0 there is no slot."""

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        _check_fraction("momentum", self.momentum)


def sgd(
    value: Array,
    gradient: Array,
    slots: Sequence[Array],
    learning_rate: float,
    step: int,
    hyper: SGDHyper,
) -> None:
    """Gradient descent, with (Nesterov's) momentum where a momentum is given.

    `velocity ← momentum · velocity - lr · g`, and the value moves by the velocity, or with Nesterov
    by the velocity that the next step would have.
    """
    change = learning_rate * gradient
    if not hyper.momentum:
        value -= change
        return
    (velocity,) = slots
    velocity *= hyper.momentum
    velocity -= change
    if hyper.nesterov:
        np.subtract(hyper.momentum * velocity, change, out=change)
        value += change
    else:
        value += velocity


@dataclass(frozen=True, kw_only=True)
class AdamHyper:
    """Decay rates of the two moments, in [0, 1), and the number that keeps divisions finite."""

    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def __post_init__(self) -> None:
        _check_decay("beta_1", self.beta_1)
        _check_decay("beta_2", self.beta_2)
        _check_not_negative("epsilon", self.epsilon)


def adam(
    value: Array,
    gradient: Array,
    slots: Sequence[Array],
    learning_rate: float,
    step: int,
    hyper: AdamHyper,
) -> None:
    """Kingma and Ba (2015), in the form at the end of their section 2.

    Epsilon is added to the root of the moment as it is, not of the bias-corrected one: it is the
    paper's "epsilon hat", as in Keras.
    """
    m, v = slots
    scratch = gradient * (1 - hyper.beta_1)
    m *= hyper.beta_1
    m += scratch
    np.multiply(gradient, gradient, out=scratch)
    scratch *= 1 - hyper.beta_2
    v *= hyper.beta_2
    v += scratch
    np.sqrt(v, out=scratch)
    scratch += hyper.epsilon
    np.divide(m, scratch, out=scratch)
    correction = math.sqrt(1 - hyper.beta_2**step) / (1 - hyper.beta_1**step)
    scratch *= learning_rate * correction
    value -= scratch


@dataclass(frozen=True, kw_only=True)
class AdamWHyper(AdamHyper):
    """Those of Adam, and the share of the value that is taken away, times the learning rate."""

    weight_decay: float = 0.004

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_not_negative("weight_decay", self.weight_decay)


def adamw(
    value: Array,
    gradient: Array,
    slots: Sequence[Array],
    learning_rate: float,
    step: int,
    hyper: AdamWHyper,
) -> None:
    """Adam with decoupled weight decay: Loshchilov and Hutter (2019). The decay comes first."""
    value *= 1 - learning_rate * hyper.weight_decay
    adam(value, gradient, slots, learning_rate, step, hyper)


@dataclass(frozen=True, kw_only=True)
class AdagradHyper:
    """Where the sum of squares starts (≥ 0), and what is added to it under the root."""

    initial_accumulator_value: float = 0.1
    epsilon: float = 1e-7

    def __post_init__(self) -> None:
        _check_not_negative("initial_accumulator_value", self.initial_accumulator_value)
        _check_not_negative("epsilon", self.epsilon)


def adagrad(
    value: Array,
    gradient: Array,
    slots: Sequence[Array],
    learning_rate: float,
    step: int,
    hyper: AdagradHyper,
) -> None:
    """Duchi et al. (2011): divide by the root of the sum of all squared gradients so far."""
    (accumulator,) = slots
    scratch = gradient * gradient
    accumulator += scratch
    np.add(accumulator, hyper.epsilon, out=scratch)
    np.sqrt(scratch, out=scratch)
    np.divide(gradient, scratch, out=scratch)
    scratch *= learning_rate
    value -= scratch


@dataclass(frozen=True, kw_only=True)
class RMSpropHyper:
    """Decay rate of the moments, momentum, epsilon, and whether to divide by the variance."""

    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False

    def __post_init__(self) -> None:
        _check_decay("rho", self.rho)
        _check_fraction("momentum", self.momentum)
        _check_not_negative("epsilon", self.epsilon)

    def slots(self) -> dict[str, float]:
        """`rms` always, `average_gradient` where centered, `momentum` where there is one."""
        names = ["rms"]
        names += ["average_gradient"] if self.centered else []
        names += ["momentum"] if self.momentum else []
        return dict.fromkeys(names, 0.0)


def rmsprop(
    value: Array,
    gradient: Array,
    slots: Sequence[Array],
    learning_rate: float,
    step: int,
    hyper: RMSpropHyper,
) -> None:
    """Tieleman and Hinton (2012): divide by the root of a moving mean of squared gradients.

    Centered, the square of the moving mean of gradients is taken from it first (Graves 2013).
    """
    rms = slots[0]
    scratch = gradient * gradient
    scratch *= 1 - hyper.rho
    rms *= hyper.rho
    rms += scratch
    if hyper.centered:
        average = slots[1]
        average *= hyper.rho
        average += (1 - hyper.rho) * gradient
        np.multiply(average, average, out=scratch)
        np.subtract(rms, scratch, out=scratch)
        scratch += hyper.epsilon
    else:
        np.add(rms, hyper.epsilon, out=scratch)
    np.sqrt(scratch, out=scratch)
    np.divide(gradient, scratch, out=scratch)
    scratch *= learning_rate
    if hyper.momentum:
        velocity = slots[-1]
        velocity *= hyper.momentum
        velocity += scratch
        value -= velocity
    else:
        value -= scratch


@dataclass(frozen=True, kw_only=True)
class FtrlHyper:
    """The regularisation strengths and the shape of the per-coordinate learning rate.

    Args:
        learning_rate_power: ≤ 0; -0.5 is the paper's square root, 0 a fixed rate.
        initial_accumulator_value: Where the sum of squares starts, ≥ 0.
        l1_regularization_strength: The paper's lambda 1, ≥ 0.
        l2_regularization_strength: Half the paper's lambda 2, ≥ 0, as in TensorFlow.
        l2_shrinkage_regularization_strength: A penalty on large weights that, unlike the former,
            does not hold back updates, ≥ 0.
        beta: The paper's beta.
    """

    learning_rate_power: float = -0.5
    initial_accumulator_value: float = 0.1
    l1_regularization_strength: float = 0.0
    l2_regularization_strength: float = 0.0
    l2_shrinkage_regularization_strength: float = 0.0
    beta: float = 0.0

    def __post_init__(self) -> None:
        _check_number("learning_rate_power", self.learning_rate_power)
        if self.learning_rate_power > 0:
            raise ValueError(f"learning_rate_power must be ≤ 0, it is {self.learning_rate_power}")
        for name in (
            "initial_accumulator_value",
            "l1_regularization_strength",
            "l2_regularization_strength",
            "l2_shrinkage_regularization_strength",
            "beta",
        ):
            _check_not_negative(name, getattr(self, name))


def ftrl(
    value: Array,
    gradient: Array,
    slots: Sequence[Array],
    learning_rate: float,
    step: int,
    hyper: FtrlHyper,
) -> None:
    """FTRL-Proximal: algorithm 1 of McMahan et al., "Ad click prediction" (2013).

    Slots are the sum of squared gradients n and the paper's z. The value is computed from them
    alone; with an L1 strength, weights whose z stays below it are exactly zero.
    """
    if learning_rate == 0:  # the start of a warm-up; the formula would divide by it
        return
    accumulator, linear = slots
    l2 = hyper.l2_regularization_strength + hyper.beta / (2 * learning_rate)
    root_before = _power(accumulator, -hyper.learning_rate_power)
    accumulator += gradient * gradient
    root = _power(accumulator, -hyper.learning_rate_power)
    linear += gradient
    if hyper.l2_shrinkage_regularization_strength:
        linear += (2 * hyper.l2_shrinkage_regularization_strength) * value
    np.subtract(root, root_before, out=root_before)
    root_before *= value
    root_before /= learning_rate
    linear -= root_before
    root /= learning_rate
    root += 2 * l2
    l1 = hyper.l1_regularization_strength
    np.divide(np.clip(linear, -l1, l1) - linear, root, out=value)


def _power(accumulator: Array, exponent: float) -> Array:
    return np.sqrt(accumulator) if exponent == 0.5 else np.power(accumulator, exponent)


RULES: Mapping[str, Rule] = {
    rule.name: rule
    for rule in (
        Rule(
            "sgd",
            sgd,
            SGDHyper,
            lambda hyper: {"momentum": 0.0} if hyper.momentum else {},
            lambda hyper: not hyper.momentum,
        ),
        Rule("adam", adam, AdamHyper, lambda hyper: {"m": 0.0, "v": 0.0}),
        Rule("adamw", adamw, AdamWHyper, lambda hyper: {"m": 0.0, "v": 0.0}),
        Rule(
            "adagrad",
            adagrad,
            AdagradHyper,
            lambda hyper: {"accumulator": hyper.initial_accumulator_value},
            _always,
        ),
        Rule("rmsprop", rmsprop, RMSpropHyper, RMSpropHyper.slots),
        Rule(
            "ftrl",
            ftrl,
            FtrlHyper,
            lambda hyper: {"accumulator": hyper.initial_accumulator_value, "linear": 0.0},
        ),
    )
}
"""The update rules by name: the table that a parameter server is given."""


def server_rules() -> dict[str, Callable[..., None]]:
    """The update rules as a parameter server takes them.

    Each is `rule(value, gradient, slots, learning_rate, step, hyper)`, where `hyper` has the
    hyper-parameters by name. They work block by block, on arrays of any length.
    """
    return {name: partial(_update_by_name, rule) for name, rule in RULES.items()}


def _update_by_name(
    rule: Rule,
    value: Array,
    gradient: Array,
    slots: Sequence[Array],
    learning_rate: float,
    step: int,
    hyper: Mapping[str, float],
) -> None:
    numbers = rule.hyper(**hyper)
    if len(slots) != len(rule.slots(numbers)):
        raise ValueError(
            f"rule {rule.name!r} keeps {len(rule.slots(numbers))} slots, not {len(slots)}"
        )
    RuleStep(rule, numbers, hyper, learning_rate, step).change(value, gradient, slots)


def _check_number(argument: str, value: Any) -> None:
    if not isinstance(value, (int, float, np.number)) or not math.isfinite(value):
        raise ValueError(f"{argument} must be a finite number, it is {value!r}")


def _check_fraction(argument: str, value: float) -> None:
    _check_number(argument, value)
    if not 0 <= value <= 1:
        raise ValueError(f"{argument} must be between 0 and 1, it is {value}")


def _check_decay(argument: str, value: float) -> None:
    _check_number(argument, value)
    if not 0 <= value < 1:
        raise ValueError(f"{argument} must be at least 0 and below 1, it is {value}")


def _check_not_negative(argument: str, value: float) -> None:
    _check_number(argument, value)
    if value < 0:
        raise ValueError(f"{argument} must not be negative, it is {value}")
