"""From what a push says to what is done: everything is checked before anything is changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np

from .rules import ASSIGN, BUILT_IN, Change, Gradient, UpdateRule
from .shards import Array, Shard
from .table import ShardTable
from .variable_requests import OptimizerSpec, Push, Update

_MAX_REHEARSED = 10_000


@final
class Planner:
    """Makes changes of pushes.

    A rule is rehearsed on empty arrays before it is let at variables: one that does not take its
    hyper-parameters or slots fails there, with nothing half done.

    Args:
        table: The shards.
        rules: The update rules by name.

    Raises:
        ValueError: A rule has the name of a built-in one.
    """

    def __init__(self, table: ShardTable, rules: Mapping[str, UpdateRule]) -> None:
        if taken := BUILT_IN.keys() & rules:
            raise ValueError(
                f"rules must not be called {' or '.join(sorted(taken))}: these are built in"
            )
        self._table = table
        self._rules = {**BUILT_IN, **rules}
        self._rehearsed: set[Any] = set()

    def changes(self, push: Push, arrays: Sequence[Array]) -> list[Change]:
        """What the push asks for.

        Raises:
            ValueError: It cannot be done.
        """
        gradients = _gradients(push, arrays)
        changes = [
            self._change(update, push.optimizers, gradient)
            for update, gradient in zip(push.updates, gradients, strict=True)
        ]
        touched = [shard for change in changes for shard in (change.shard, *change.slots)]
        if len(set(touched)) < len(touched):
            raise ValueError(
                "a variable occurs twice in a push, as what is updated or as a slot; push the sum "
                "of its gradients"
            )
        return changes

    def _change(
        self, update: Update, optimizers: Sequence[OptimizerSpec], gradient: Gradient
    ) -> Change:
        if update.optimizer >= len(optimizers):
            raise ValueError(
                f"optimizer must be one of the {len(optimizers)} that are given, from 0; for id "
                f"{update.id} it is {update.optimizer}"
            )
        shard = self._table[update.id]
        slots = tuple([self._table[number] for number in update.slots])
        for slot in slots:
            if slot.shape != shard.shape or slot.dtype != shard.dtype:
                raise ValueError(f"a slot of {shard.spec} must be like it, it is {slot.spec}")
        optimizer = optimizers[update.optimizer]
        rule = self._rule(optimizer, shard.dtype, len(slots))
        if optimizer.rule == ASSIGN and update.rows:
            raise ValueError(f"assign takes all of a variable, for {shard.spec} rows are given")
        return Change(shard, slots, _checked(gradient, shard), optimizer, rule)

    def _rule(self, optimizer: OptimizerSpec, dtype: np.dtype[Any], num_slots: int) -> UpdateRule:
        rule = self._rules.get(optimizer.rule)
        if rule is None:
            raise ValueError(
                f"rule '{optimizer.rule}' is unknown; there are {', '.join(sorted(self._rules))}"
            )
        key = (optimizer.rule, dtype.char, num_slots, *optimizer.hyper.items())
        if key not in self._rehearsed:
            nothing = [np.empty(0, dtype) for _ in range(2 + num_slots)]
            value, gradient, *slots = nothing
            try:
                rule(
                    value, gradient, slots, optimizer.learning_rate, optimizer.step, optimizer.hyper
                )
            except Exception as error:
                raise ValueError(
                    f"rule '{optimizer.rule}' does not take {optimizer.hyper} and {num_slots} "
                    f"slots of {dtype}: {error}"
                ) from error
            if len(self._rehearsed) < _MAX_REHEARSED:
                self._rehearsed.add(key)
        return rule


def check_rows(rows: Array, shard: Shard) -> Array:
    """The row numbers, if they are some of the shard.

    Raises:
        ValueError: They are not.
    """
    if rows.ndim != 1 or rows.dtype != np.int64:
        raise ValueError(
            f"rows of {shard.spec} must be int64 of one dimension, they are {rows.dtype} "
            f"{rows.shape}"
        )
    if not shard.shape:
        raise ValueError(f"{shard.spec} is a scalar and has no rows")
    num_rows = shard.shape[0]
    if len(rows) and (rows.min() < 0 or rows.max() >= num_rows):
        raise ValueError(
            f"rows of {shard.spec} must be from 0 to {num_rows - 1}, counted within the shard; "
            f"they are from {rows.min()} to {rows.max()}"
        )
    return rows


def _gradients(push: Push, arrays: Sequence[Array]) -> list[Gradient]:
    """The arrays by update."""
    num_arrays = sum([2 if update.rows else 1 for update in push.updates])
    if len(arrays) != num_arrays:
        raise ValueError(f"the updates need {num_arrays} arrays, {len(arrays)} came with them")
    left = iter(arrays)
    gradients = []
    for update in push.updates:
        rows = next(left) if update.rows else None
        gradients.append(Gradient(next(left), rows))
    return gradients


def _checked(gradient: Gradient, shard: Shard) -> Gradient:
    values, rows, shape = gradient.values, gradient.rows, shard.shape
    if rows is not None:
        check_rows(rows, shard)
        shape = (len(rows), *shape[1:])
    if values.shape != shape:
        raise ValueError(
            f"the gradient of {shard.spec} must have shape {shape} here, it has {values.shape}"
        )
    if values.dtype == shard.dtype:
        return gradient
    if not np.can_cast(values.dtype, shard.dtype):
        raise ValueError(
            f"the gradient of {shard.spec} must be {shard.dtype}, or narrower; it is {values.dtype}"
        )
    return Gradient(values.astype(shard.dtype), rows)
