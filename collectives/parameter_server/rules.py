"""What a push does to a variable: a rule, applied to all of it or to some rows.

The rules of optimizers are handed in: this package knows the arithmetic of rows, shards and means,
and nothing of Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from ..arrays import dense_blocks
from .shards import Array, Shard
from .variable_requests import OptimizerSpec

UpdateRule: TypeAlias = Callable[
    [Array, Array, Sequence[Array], float, int, Mapping[str, "bool | float"]], None
]
"""`rule(value, gradient, slots, learning_rate, step, hyper)`.

Elementwise on one-dimensional contiguous arrays of one length: overwrites `value` and each slot,
leaves `gradient` alone. `step` is the number of the update, from 1. Raises for hyper-parameters or
a number of slots that it does not take, also when the arrays are empty.
"""

_BLOCK = 1 << 16
"""Elements of a gradient that are written out at a time."""

ASSIGN = "assign"
ADD = "add"


def _assign(value: Array, new: Array, slots: Sequence[Array], *_: object) -> None:
    value[...] = new


def _add(value: Array, change: Array, slots: Sequence[Array], *_: object) -> None:
    value += change


BUILT_IN: Mapping[str, UpdateRule] = {ASSIGN: _assign, ADD: _add}
"""For what is not a gradient: counters, moving averages."""


@final
@dataclass(slots=True, eq=False)
class Gradient:
    """What a trainer pushes for a variable.

    Attributes:
        values: Of the shard's shape; or (n, ...) of the rows.
        rows: None, or (n,) int64, which rows; one may occur more than once, the sum counts.
    """

    values: Array
    rows: Array | None = None

    def unique(self) -> Gradient:
        """The same with each row at most once, in rising order; summed in order of occurrence."""
        if self.rows is None or bool(np.all(self.rows[1:] > self.rows[:-1])):
            return self
        rows, position = np.unique(self.rows, return_inverse=True)
        values = np.zeros((len(rows), *self.values.shape[1:]), self.values.dtype)
        add_rows(values, position, self.values)
        return Gradient(values, rows)


@final
@dataclass(slots=True, eq=False)
class Change:
    """What a push does to one variable; it has been checked and can be done.

    Attributes:
        shard, slots: What is changed; the slots have the shard's shape and dtype.
        gradient: Along what.
        optimizer, rule: How.
    """

    shard: Shard
    slots: tuple[Shard, ...]
    gradient: Gradient
    optimizer: OptimizerSpec
    rule: UpdateRule

    def apply(self) -> None:
        """Make the change: nobody sees a variable, or its slots, half changed."""
        gradient = self.gradient.unique()
        # Always in the same order, whoever else takes some of them.
        shards = sorted((self.shard, *self.slots), key=id)
        for shard in shards:
            shard.lock.acquire()
        try:
            self._apply(gradient)
        finally:
            for shard in shards:
                shard.lock.release()

    def _apply(self, gradient: Gradient) -> None:
        rows, arrays = gradient.rows, [shard.own() for shard in (self.shard, *self.slots)]
        if rows is None:
            self._run_rule(arrays, gradient.values)
            return
        if not self.optimizer.rows_only:
            blocks = dense_blocks(rows, gradient.values, len(arrays[0]), _BLOCK)
            for block, dense in blocks:
                self._run_rule([array[block] for array in arrays], dense)
            return
        picked = [array.take(rows, axis=0) for array in arrays]
        self._run_rule(picked, gradient.values)
        for array, changed in zip(arrays, picked, strict=True):
            array[rows] = changed

    def _run_rule(self, arrays: Sequence[Array], gradient: Array) -> None:
        """Overwrite a value and its slots."""
        how, (value, *slots) = self.optimizer, [array.reshape(-1) for array in arrays]
        self.rule(value, gradient.reshape(-1), slots, how.learning_rate, how.step, how.hyper)


def add_rows(dense: Array, rows: Array, values: Array) -> None:
    """Add each of `values` to its row, in order; `np.add.at` is fast in one dimension only."""
    width = math.prod(dense.shape[1:])
    elements = rows[:, None] * width + np.arange(width)
    np.add.at(dense.reshape(-1), elements.reshape(-1), values.reshape(-1))
