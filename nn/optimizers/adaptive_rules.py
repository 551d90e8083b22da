"""Further update rules: descendants of Adam and of Adagrad."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ...autodiff import Array, fused
from .rule import Rule, Slots


def _average(moment: Array, decay: float, news: Array) -> None:
    """Let `moment` be the moving average in which `news` counts 1 - `decay`; it overwrites both."""
    news *= 1 - decay
    moment *= decay
    moment += news


@dataclass(frozen=True, kw_only=True)
class AdadeltaRule(Rule):
    """Zeiler (2012): steps as large as the root mean square of the steps before."""

    name = "adadelta"
    rho: float = 0.95
    epsilon: float = 1e-7

    def own_slots(self) -> Mapping[str, float]:
        return {"accumulated_grad": 0.0, "accumulated_delta_var": 0.0}

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        gradients, changes = slots
        scratch = gradient * gradient
        _average(gradients, self.rho, scratch)
        np.add(gradients, self.epsilon, out=scratch)
        np.divide(changes + self.epsilon, scratch, out=scratch)
        np.sqrt(scratch, out=scratch)
        scratch *= gradient
        value -= rate * scratch
        scratch *= scratch
        _average(changes, self.rho, scratch)


@dataclass(frozen=True, kw_only=True)
class AdamaxRule(Rule):
    """Kingma and Ba (2015), section 7.1: Adam with the maximum norm."""

    name = "adamax"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def own_slots(self) -> Mapping[str, float]:
        return {"m": 0.0, "u": 0.0}

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        m, u = slots
        scratch = gradient.copy()
        _average(m, self.beta_1, scratch)
        np.abs(gradient, out=scratch)
        u *= self.beta_2
        np.maximum(u, scratch, out=u)
        np.add(u, self.epsilon, out=scratch)
        np.divide(m, scratch, out=scratch)
        scratch *= rate / (1 - self.beta_1**step)
        value -= scratch


_NADAM_DECAY = 0.96
_NADAM_PRODUCTS = np.cumprod(1 - 0.5 * _NADAM_DECAY ** np.arange(1.0, 1001.0))
"""Products of the factors by which Nadam's momentum is smaller than beta_1; they come to rest."""


@dataclass(frozen=True, kw_only=True)
class NadamRule(Rule):
    """Dozat (2016): Adam with Nesterov's momentum, which grows to `beta_1`."""

    name = "nadam"
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def own_slots(self) -> Mapping[str, float]:
        return {"m": 0.0, "v": 0.0}

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        m, v = slots
        scratch = gradient.copy()
        _average(m, self.beta_1, scratch)
        np.multiply(gradient, gradient, out=scratch)
        _average(v, self.beta_2, scratch)
        np.divide(v, 1 - self.beta_2**step, out=scratch)
        np.sqrt(scratch, out=scratch)
        scratch += self.epsilon
        own = (1 - self._momentum(step)) / (1 - self._product(step))
        change = m * (self._momentum(step + 1) / (1 - self._product(step + 1)))
        change += own * gradient
        change /= scratch
        change *= rate
        value -= change

    def _momentum(self, step: int) -> float:
        return self.beta_1 * (1 - 0.5 * _NADAM_DECAY**step)

    def _product(self, step: int) -> float:
        """That of the momentum of all steps so far."""
        factor = float(_NADAM_PRODUCTS[min(step, len(_NADAM_PRODUCTS)) - 1])
        return self.beta_1**step * factor


@dataclass(frozen=True, kw_only=True)
class LionRule(Rule):
    """Chen et al. (2023): the sign of the momentum alone."""

    name = "lion"
    beta_1: float = 0.9
    beta_2: float = 0.99

    def own_slots(self) -> Mapping[str, float]:
        return {"m": 0.0}

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        (m,) = slots
        scratch = gradient * (1 - self.beta_1)
        scratch += self.beta_1 * m
        np.sign(scratch, out=scratch)
        scratch *= rate
        value -= scratch
        np.multiply(gradient, 1 - self.beta_2, out=scratch)
        m *= self.beta_2
        m += scratch


@dataclass(frozen=True, kw_only=True)
class LambRule(Rule):
    """You et al. (2020): Adam's direction, in proportion to the norm of the variable."""

    name = "lamb"
    is_elementwise = False
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-7

    def own_slots(self) -> Mapping[str, float]:
        return {"m": 0.0, "v": 0.0}

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        change = fused(lambda g, m, v: self._direction(g, m, v, step), gradient, *slots)
        squares = np.sum(np.square(value)), np.sum(np.square(change))
        _subtract(value, change, fused(lambda a, b: rate * _ratio_of_norms(a, b), *squares))

    def _direction(self, gradient: Array, m: Array, v: Array, step: int) -> Array:
        scratch = gradient.copy()
        _average(m, self.beta_1, scratch)
        np.multiply(gradient, gradient, out=scratch)
        _average(v, self.beta_2, scratch)
        np.divide(v, 1 - self.beta_2**step, out=scratch)
        np.sqrt(scratch, out=scratch)
        scratch += self.epsilon
        np.divide(m, scratch, out=scratch)
        scratch /= 1 - self.beta_1**step
        return scratch


@dataclass(frozen=True, kw_only=True)
class AdafactorRule(Rule):
    """Shazeer and Stern (2018): of the second moments of a matrix only the means are kept.

    Those of its rows and of its columns, of the last two dimensions; a vector has all of its own.
    """

    name = "adafactor"
    is_elementwise = False
    beta_2_decay: float = -0.8
    epsilon_1: float = 1e-30
    epsilon_2: float = 1e-3
    clip_threshold: float = 1.0
    relative_step: bool = True

    def own_slots(self) -> Mapping[str, float]:
        return {"r": 0.0, "c": 0.0, "v": 0.0}

    def slot_shape(self, slot: str, shape: tuple[int, ...]) -> tuple[int, ...]:
        if slot not in ("r", "c", "v"):
            return shape
        is_matrix = len(shape) > 1
        if slot == "v":
            return () if is_matrix else shape
        if not is_matrix:
            return ()
        return shape[:-1] if slot == "r" else (*shape[:-2], shape[-1])

    def move(self, value: Array, gradient: Array, slots: Slots, rate: float, step: int) -> None:
        r, c, v = slots
        decay = 1 - step**self.beta_2_decay
        square = fused(lambda g: g * g + self.epsilon_1, gradient)
        if value.ndim > 1:
            for slot, axis in ((r, -1), (c, -2)):
                fused(lambda own, new: _average(own, decay, new), slot, np.mean(square, axis=axis))
            row = r / np.mean(r, axis=-1, keepdims=True)
            parts = gradient, row[..., None], c[..., None, :]
            change = fused(lambda g, row, column: g / np.sqrt(row * column), *parts)
        else:
            fused(lambda own, new: _average(own, decay, new), v, square)
            change = fused(lambda g, v: g / np.sqrt(v), gradient, v)
        if self.relative_step:
            rate = min(rate, 1 / math.sqrt(step))
        squares = np.mean(np.square(value)), np.mean(np.square(change))
        _subtract(value, change, fused(lambda a, b: self._scale(a, b, rate), *squares))

    def _scale(self, of_value: Array, of_change: Array, rate: float) -> Array:
        """By what a change is multiplied: of the means of the squares of a value and its change."""
        # Of "not a number", as of what is too small, the bound is taken.
        roots = [np.sqrt(mean.astype(np.float64)) for mean in (of_value, of_change)]
        size = rate * np.fmax(roots[0], self.epsilon_2)
        return size / np.fmax(roots[1] / self.clip_threshold, 1.0)


def _ratio_of_norms(of_value: Array, of_change: Array) -> Array:
    """The ratio, in float64, of the roots of two sums of squares; 1 where one of them is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        norm, other = (np.sqrt(squares.astype(np.float64)) for squares in (of_value, of_change))
        return np.where((norm > 0) & (other > 0), norm / other, 1.0)


def _subtract(value: Array, change: Array, factor: Array) -> None:
    """`value -= factor · change`; the factor is a number in float64 that lies where they lie."""
    fused(_scaled_difference, value, change, factor.astype(value.dtype))


def _scaled_difference(value: Array, change: Array, factor: Array) -> None:
    change *= factor
    value -= change
