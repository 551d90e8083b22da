"""What a push does to variables: checked whole before anything is changed, then applied.

The rules of optimizers are handed in: this package knows the arithmetic of rows, shards and means,
and nothing of Adam.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, TypeAlias, final

import numpy as np

from ..arrays import dense_blocks
from .requests import parse
from .shards import Array, Shard, ShardTable
from .step_requests import Push
from .variable_requests import OptimizerSpec, PushPlan, Update

UpdateFunction: TypeAlias = Callable[[Array, Array, Sequence[Array], float, int], None]
"""`update(value, gradient, slots, learning_rate, step)`.

Elementwise on one-dimensional contiguous arrays of one length: overwrites `value` and each slot,
leaves `gradient` alone. `step` is the number of the update, from 1. Raises for a number of slots
that it does not take, also when the arrays are empty.
"""

UpdateRule: TypeAlias = Callable[[Mapping[str, "bool | float"]], UpdateFunction]
"""`rule(hyper)`: the function for these hyper-parameters. Raises for those that it does not take.
"""

_BLOCK = 1 << 16
"""Elements of a gradient that are written out at a time."""

ASSIGN = "assign"
_ADD = "add"
_NUM_KEPT_PLANS = 64


def _assign(value: Array, new: Array, slots: Sequence[Array], *_: object) -> None:
    value[...] = new


def _add(value: Array, change: Array, slots: Sequence[Array], *_: object) -> None:
    value += change


BUILT_IN: Mapping[str, UpdateRule] = {ASSIGN: lambda _: _assign, _ADD: lambda _: _add}
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
class Target:
    """A variable that a plan changes, and how; checked but for the gradient.

    Attributes:
        shard, slots: What is changed; the slots have the shard's shape and dtype.
        shards: The shard and its slots.
        optimizer, update: How.
        optimizer_index: The position of the optimizer in the plan.
        has_rows: Whether the gradient is of some rows only.
        locks: Of the shard and its slots, in the order in which everybody takes them.
        group: What the plan changes in the same way, this among others; None if it is alone.
    """

    shard: Shard
    slots: tuple[Shard, ...]
    shards: Sequence[Shard]
    optimizer: OptimizerSpec
    update: UpdateFunction
    optimizer_index: int
    has_rows: bool
    locks: Sequence[Lock]
    group: Group | None = None


@final
@dataclass(slots=True, eq=False)
class Change:
    """What a push does to one variable; it has been checked and can be done.

    Attributes:
        target: What is changed, and how.
        gradient: Along what.
        rate, step: The learning rate, and the number of the update.
    """

    target: Target
    gradient: Gradient
    rate: float
    step: int

    def apply(self) -> None:
        """Make the change: nobody sees a variable, or its slots, half changed."""
        target, gradient = self.target, self.gradient.unique()
        with _Held(target.locks):
            arrays = [shard.own() for shard in target.shards]
            if gradient.rows is None:
                self.run_rule(arrays, gradient.values)
            else:
                self._change_rows(arrays, gradient.rows, gradient.values)

    def _change_rows(self, arrays: Sequence[Array], rows: Array, values: Array) -> None:
        # The other rows change as by a gradient of zero, block by block so that the gradient need
        # never be there as a whole.
        if not self.target.optimizer.rows_only:
            blocks = dense_blocks(rows, values, len(arrays[0]), _BLOCK)
            for block, dense in blocks:
                self.run_rule([array[block] for array in arrays], dense)
            return
        # Rules want contiguous memory: the rows are taken out, changed and put back.
        picked = [array.take(rows, axis=0) for array in arrays]
        self.run_rule(picked, values)
        for array, changed in zip(arrays, picked, strict=True):
            array[rows] = changed

    def run_rule(self, arrays: Sequence[Array], gradient: Array) -> None:
        """Overwrite a value and its slots."""
        value, *slots = [array.reshape(-1) for array in arrays]
        self.target.update(value, gradient.reshape(-1), slots, self.rate, self.step)


@final
class _Held:
    """Holds locks, taken in their order; a class, for these are taken for each variable."""

    __slots__ = ("_locks",)

    def __init__(self, locks: Sequence[Lock]) -> None:
        self._locks = locks

    def __enter__(self) -> None:
        for lock in self._locks:
            lock.acquire()

    def __exit__(self, *about: object) -> None:
        for lock in self._locks:
            lock.release()


@final
class Group:
    """Small variables that a plan changes in the same way: one call of the rule changes all.

    To call a rule takes longer than to change some hundreds of elements. So their values lie one
    after the other from here on, and so do each of their slots.

    Args:
        targets: The variables, each with as many slots, of one dtype and optimizer; none of them
            has been moved before.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        columns = list(zip(*[target.shards for target in targets], strict=True))
        dtype = targets[0].shard.dtype
        sizes = [math.prod(target.shard.shape) for target in targets]
        self._shards = columns[0]
        all_shards = [shard for column in columns for shard in column]
        self._locks = [shard.lock for shard in sorted(all_shards, key=id)]
        self._arrays = [np.empty(sum(sizes), dtype) for _ in columns]
        ends = np.cumsum(sizes).tolist()
        with _Held(self._locks):
            for column, array in zip(columns, self._arrays, strict=True):
                for shard, end, size in zip(column, ends, sizes, strict=True):
                    shard.move(array[end - size : end])

    def apply(self, changes: Sequence[Change]) -> None:
        """Make changes of this group: at once if it is all of them, and else one by one."""
        if tuple([change.target.shard for change in changes]) != self._shards:
            for change in changes:
                change.apply()
            return
        gradient = np.concatenate([change.gradient.values.reshape(-1) for change in changes])
        with _Held(self._locks):
            changes[0].run_rule(self._arrays, gradient)


def apply_all(changes: Iterable[Change]) -> None:
    """Make changes of different variables."""
    in_groups: dict[Group, list[Change]] = {}
    for change in changes:
        group = change.target.group
        if group is None:
            change.apply()
        else:
            in_groups.setdefault(group, []).append(change)
    for group, members in in_groups.items():
        group.apply(members)


def add_rows(dense: Array, rows: Array, values: Array) -> None:
    """Add each of `values` to its row, in order; `np.add.at` is fast in one dimension only."""
    width = math.prod(dense.shape[1:])
    elements = rows[:, None] * width + np.arange(width)
    np.add.at(dense.reshape(-1), elements.reshape(-1), values.reshape(-1))


@final
@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan whose ids are shards, and whose rules are there."""

    targets: Sequence[Target]
    num_optimizers: int
    num_arrays: int
    pull: Sequence[Shard]


@final
class PushPlanner:
    """Makes changes of pushes.

    What holds for all pushes of a plan is found out when it is seen first. A rule is then rehearsed
    on empty arrays before it is let at variables: one that does not take its hyper-parameters or
    slots fails there, with nothing half done.

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
        self._groups: dict[tuple[Sequence[Shard], ...], Group] = {}
        self._grouping = Lock()  # threads may come with the same plan at the same time
        # The table only grows: what a plan was once found to mean it means for good.
        self.prepared = lru_cache(maxsize=_NUM_KEPT_PLANS)(self._prepare)

    def changes(self, plan: Prepared, push: Push, arrays: Sequence[Array]) -> list[Change]:
        """What the push asks for, whose plan is given.

        Raises:
            ValueError: It cannot be done.
        """
        if len(arrays) != plan.num_arrays:
            raise ValueError(
                f"the updates need {plan.num_arrays} arrays, {len(arrays)} came with them"
            )
        if len(push.rates) != plan.num_optimizers:
            raise ValueError(
                f"the plan has {plan.num_optimizers} optimizers, {len(push.rates)} rates came with "
                f"it"
            )
        left, rates = iter(arrays), push.rates
        changes = []
        for target in plan.targets:
            rows = next(left) if target.has_rows else None
            gradient = _checked(Gradient(next(left), rows), target.shard)
            changes.append(Change(target, gradient, *rates[target.optimizer_index]))
        return changes

    def _prepare(self, text: str) -> Prepared:
        """The plan of a text."""
        plan = parse(PushPlan, text, "plan of a PUSH")
        targets = [self._target(update, plan.optimizers) for update in plan.updates]
        touched = [shard for target in targets for shard in target.shards]
        if len(set(touched)) < len(touched):
            raise ValueError(
                "a variable occurs twice in a push, as what is updated or as a slot; push the sum "
                "of its gradients"
            )
        with self._grouping:
            self._group(targets)
        num_arrays = sum([2 if target.has_rows else 1 for target in targets])
        pull = [self._table[number] for number in plan.pull]
        return Prepared(targets, len(plan.optimizers), num_arrays, pull)

    def _group(self, targets: Sequence[Target]) -> None:
        """Put together what is small and changes alike."""
        alike: dict[tuple[int, str], list[Target]] = {}
        for target in targets:
            if not target.has_rows:
                key = target.optimizer_index, target.shard.dtype.str
                alike.setdefault(key, []).append(target)
        for candidates in alike.values():
            # Those of a group that another plan, of other updates too, has made are there as well.
            members = [t for t in candidates if t.shard.can_move or t.shard.has_moved]
            shards = tuple([target.shards for target in members])
            group = self._groups.get(shards)
            if group is None:
                members = [t for t in members if all(shard.can_move for shard in t.shards)]
                if len(members) < 2:
                    continue
                shards = tuple([target.shards for target in members])
                group = self._groups[shards] = Group(members)
            for target in members:
                target.group = group

    def _target(self, update: Update, optimizers: Sequence[OptimizerSpec]) -> Target:
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
        how = self._update_function(optimizer, shard.dtype, len(slots))
        if optimizer.rule == ASSIGN and update.rows:
            raise ValueError(f"assign takes all of a variable, for {shard.spec} rows are given")
        shards = (shard, *slots)
        locks = [one.lock for one in sorted(shards, key=id)]
        return Target(shard, slots, shards, optimizer, how, update.optimizer, update.rows, locks)

    def _update_function(
        self, optimizer: OptimizerSpec, dtype: np.dtype[Any], num_slots: int
    ) -> UpdateFunction:
        rule = self._rules.get(optimizer.rule)
        if rule is None:
            raise ValueError(
                f"rule '{optimizer.rule}' is unknown; there are {', '.join(sorted(self._rules))}"
            )
        value, gradient, *slots = [np.empty(0, dtype) for _ in range(2 + num_slots)]
        try:
            update = rule(optimizer.hyper)
            update(value, gradient, slots, 0.0, 1)
        except Exception as error:
            raise ValueError(
                f"rule '{optimizer.rule}' does not take {optimizer.hyper} and {num_slots} slots of "
                f"{dtype}: {error}"
            ) from error
        return update


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
