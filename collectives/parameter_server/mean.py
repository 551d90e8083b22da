"""The one update that comes of several trainers' pushes of one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from .rules import ASSIGN, Change, Gradient, add_rows
from .shards import Array

Weighted: TypeAlias = "tuple[float, Change]"


def mean_of(pushes: Sequence[tuple[float, Sequence[Change]]]) -> list[Change]:
    """One push for several, given with their weights in the order of ranks.

    What becomes of a variable its aggregation says, on which all agree:

    - "mean": the weighted mean. Who pushed nothing for a variable that others push has a gradient
      of zero; what is assigned is the mean of what was given; whole numbers are taken from the
      first: a step counter that all trainers increase is increased once.
    - "sum": the sum, whatever the weights.
    - "first": what the first one gives.
    - "equal": the same, and it was seen to it that all give that (see `Agreement`).

    Sums are made in the order given, so that the result does not depend on who came first; a single
    push is done bit for bit as it is. Weight 0 is nothing.
    """
    pushes = [(weight, changes) for weight, changes in pushes if weight > 0]
    if len(pushes) == 1:
        return list(pushes[0][1])
    by_shard: dict[object, list[Weighted]] = {}
    for weight, changes in pushes:
        for change in changes:
            by_shard.setdefault(change.shard, []).append((weight, change))
    weights = [weight for weight, _ in pushes]
    return [_merged(parts, weights) for parts in by_shard.values()]


def _merged(parts: list[Weighted], weights: Sequence[float]) -> Change:
    """One variable's change; `weights` are those of all pushes."""
    first = parts[0][1]
    aggregation = first.optimizer.aggregation
    if aggregation == "sum":
        return replace(first, gradient=_sum([change.gradient for _, change in parts]))
    if aggregation != "mean" or first.shard.dtype.kind != "f":
        return first
    if first.optimizer.rule == ASSIGN:
        weights = [weight for weight, _ in parts]
    if len(set(weights)) == 1:
        total = _sum([change.gradient for _, change in parts])
        np.divide(total.values, len(weights), out=total.values)
    else:
        whole = sum(weights)
        total = _sum([_scaled(change.gradient, weight / whole) for weight, change in parts])
    return replace(first, gradient=total)


def _scaled(gradient: Gradient, factor: float) -> Gradient:
    return Gradient(gradient.values * gradient.values.dtype.type(factor), gradient.rows)


def _sum(gradients: Sequence[Gradient]) -> Gradient:
    """The sum, in order, in new memory: of rows if all are, of whole arrays otherwise."""
    rows = [gradient.rows for gradient in gradients if gradient.rows is not None]
    if len(rows) == len(gradients):
        values = np.concatenate([gradient.values for gradient in gradients])
        return Gradient(values, np.concatenate(rows)).unique()
    shape = next(gradient.values.shape for gradient in gradients if gradient.rows is None)
    total = _dense(gradients[0], shape)
    for gradient in gradients[1:]:
        if gradient.rows is None:
            total += gradient.values
        else:
            add_rows(total, gradient.rows, gradient.values)
    return Gradient(total)


def _dense(gradient: Gradient, shape: tuple[int, ...]) -> Array:
    """A copy, of the whole."""
    if gradient.rows is None:
        return gradient.values.copy()
    whole = np.zeros(shape, gradient.values.dtype)
    add_rows(whole, gradient.rows, gradient.values)
    return whole
