"""Gradients kept within bounds.

All functions return new arrays; what they are given stays as it is.
A sparse gradient counts as the dense one that it stands for: where a row occurs several times, the
bound applies to the sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...autodiff import IndexedSlices, Tensor
from ...strategies import Pack, pairs_of


@dataclass(frozen=True)
class Clipping:
    """How an optimizer keeps gradients within one bound; see `Optimizer` for the arguments."""

    clipnorm: float | None = None
    clipvalue: float | None = None
    global_clipnorm: float | None = None
    limits: Mapping[str, float] = field(init=False)
    """The bound that is given, by its name; empty where there is none."""

    def __post_init__(self) -> None:
        limits = {name: bound for name, bound in vars(self).items() if bound is not None}
        object.__setattr__(self, "limits", limits)
        if len(limits) > 1:
            named = " and ".join(f"{name}={bound}" for name, bound in limits.items())
            raise ValueError(f"gradients can be clipped in one way, got {named}; keep one")

    def apply(self, packs: Sequence[Pack]) -> Sequence[Pack]:
        """All gradients of a step, of which none is missing, as they are applied."""
        if not self.limits:
            return packs
        if self.clipnorm is not None:  # a factor for each of them
            norm = self.clipnorm
            return [Pack.of_one(v, clip_by_norm(g, norm)) for v, g in pairs_of(packs)]
        if self.clipvalue is not None:
            most = self.clipvalue
            return [pack.changed(lambda g: clip_by_value(g, -most, most)) for pack in packs]
        assert self.global_clipnorm is not None
        gradients = [g for _, g in pairs_of(packs)]
        factor, _ = _global_factor(gradients, self.global_clipnorm)
        return [pack.changed(lambda g: scaled(g, factor)) for pack in packs]

    def __str__(self) -> str:
        return ", ".join(f"{name}={bound}" for name, bound in self.limits.items())


def clip_by_value(gradient: Any, clip_value_min: float, clip_value_max: float) -> Any:
    """Every element cut to [clip_value_min, clip_value_max].

    Args:
        gradient: An array, or `IndexedSlices`.

    Raises:
        ValueError: The bounds are the wrong way round, or zero is not between them and the gradient
            is sparse, so that rows that were never read would change.
    """
    if clip_value_min > clip_value_max:
        raise ValueError(
            f"clip_value_min must not be above clip_value_max, they are "
            f"{clip_value_min} and {clip_value_max}"
        )
    if not isinstance(gradient, IndexedSlices):
        return np.clip(gradient, clip_value_min, clip_value_max)
    if not clip_value_min <= 0 <= clip_value_max:
        raise ValueError(
            f"a sparse gradient is zero in all rows that were not read, and zero is not between "
            f"{clip_value_min} and {clip_value_max}; call to_dense() first if that is meant"
        )
    rows = gradient.unique()
    return rows.with_values(np.clip(rows.values, clip_value_min, clip_value_max))


def clip_by_norm(gradient: Any, clip_norm: float) -> Any:
    """The gradient, scaled down to the Euclidean norm `clip_norm` where its norm is larger.

    Args:
        gradient: An array, or `IndexedSlices`.
        clip_norm: Positive.
    """
    _check_norm(clip_norm)
    return scaled(gradient, _factor(global_norm([gradient]), clip_norm))


def clip_by_global_norm(
    gradients: Sequence[Any], clip_norm: float, use_norm: float | None = None
) -> tuple[list[Any], float]:
    """All gradients scaled by one factor, such that their joint norm is at most `clip_norm`.

    Args:
        gradients: Arrays or `IndexedSlices`; None, for a variable without gradient, stays None.
        clip_norm: Positive.
        use_norm: The joint norm where it is known already.

    Returns:
        The scaled gradients and the joint norm before. If the norm is not finite, all gradients are
        NaN: an update from the finite ones among them would hide the failure.
    """
    factor, norm = _global_factor(gradients, clip_norm, use_norm)
    return [None if g is None else scaled(g, factor) for g in gradients], norm


def _global_factor(
    gradients: Sequence[Any], clip_norm: float, use_norm: float | None = None
) -> tuple[Any, Any]:
    """The one factor of `clip_by_global_norm`, and the norm."""
    _check_norm(clip_norm)
    norm = global_norm(gradients) if use_norm is None else use_norm
    return _factor(norm, clip_norm), norm


def global_norm(gradients: Sequence[Any]) -> Any:
    """The Euclidean norm of all elements together, added up in float64; None counts as zero.

    A number; of gradients on a GPU an array there, for which nobody has to wait.
    """
    total = sum(_sum_of_squares(g) for g in gradients if g is not None)
    return math.sqrt(total) if isinstance(total, (int, float)) else np.sqrt(total)


def _sum_of_squares(gradient: Any) -> Any:
    values = gradient.unique().values if isinstance(gradient, IndexedSlices) else gradient
    if isinstance(values, Tensor):
        # As an array, into which it does not turn if the norm would have a gradient.
        values = np.asarray(values) if values.requires_grad else values.data
    total = np.sum(np.square(values, dtype=np.float64))
    return float(total) if isinstance(total, np.generic) else total


def _factor(norm: Any, clip_norm: float) -> Any:
    if not isinstance(norm, float):
        factor = np.where(norm > clip_norm, clip_norm / norm, 1.0)
        return np.where(np.isfinite(norm), factor, math.nan)
    if not math.isfinite(norm):
        return math.nan
    return clip_norm / norm if norm > clip_norm else 1.0


def scaled(gradient: Any, factor: Any) -> Any:
    """A gradient times a number, or a scalar array, in new memory."""
    if isinstance(gradient, IndexedSlices):
        return gradient.with_values(scaled(gradient.values, factor))
    return gradient * (factor if isinstance(factor, float) else factor.astype(gradient.dtype))


def _check_norm(clip_norm: float) -> None:
    if not clip_norm > 0:
        raise ValueError(f"clip_norm must be positive, it is {clip_norm}")
