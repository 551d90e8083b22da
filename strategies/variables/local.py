"""Variables in the memory of this worker's devices."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import SupportsFloat, final

import numpy as np

from ...autodiff import Array, IndexedSlices, MutableLeaf
from ...collectives.arrays import dense_blocks
from ..devices.device import HOST, Device
from ..replicas.interrupts import InterruptsPutOff
from ..workers.workers import Workers
from .aggregation import VariableSpec, spread_over_copies
from .cell import BLOCK, Assignment, Cell, RuleStep, SavedValue, Storage


@final
class LocalStorage(Storage):
    """Each variable has a copy on every device where this worker keeps variables.

    Other workers have copies as well, which begin with the chief's value.
    """

    def __init__(self, devices: Sequence[Device], workers: Workers) -> None:
        self._devices = devices
        self._workers = workers

    def create(
        self, spec: VariableSpec, initial: Callable[[], Array | SavedValue], beside: str | None
    ) -> LocalCell:
        found = initial()
        own = found.read() if isinstance(found, SavedValue) else found
        # A collective under the variable's name: workers whose models differ find out here. Only
        # the chief's value counts.
        value = self._workers.from_chief(own, f"initial value of variable {spec.name!r}")
        is_first = self._workers.rank == 0
        spread = spread_over_copies(value, len(self._devices), spec, is_first)
        devices = [_home(value, spec, device) for device in self._devices]
        copies = [device.put(part) for device, part in zip(devices, spread, strict=True)]
        return LocalCell(spec, copies, devices, is_first)


def _home(value: Array, spec: VariableSpec, device: Device) -> Device:
    """Where a copy lies. Counters stay on the host, which asks for them in each step."""
    is_counter = np.ndim(value) == 0 and value.dtype.kind in "iu"
    return HOST if (is_counter or spec.is_on_host) and device.kind == "GPU" else device


@final
class LocalCell(Cell):
    """The copies of a variable on this worker, changed where they are.

    The first worker keeps a value that is read as the sum of all copies.
    """

    is_remote = False

    def __init__(
        self,
        spec: VariableSpec,
        copies: Sequence[Array],
        devices: Sequence[Device],
        is_first_worker: bool,
    ) -> None:
        super().__init__(spec, copies, devices)
        self._is_first_worker = is_first_worker
        self._late: list[list[SupportsFloat]] = [[] for _ in copies]
        self._late_lock = threading.Lock()

    @property
    def is_late(self) -> bool:
        return any(self._late)

    def read(self, local_index: int) -> MutableLeaf:
        leaves = self.leaves
        index = local_index if len(leaves) > 1 else 0
        if self._late[index]:
            self._add_late(index)
        return leaves[index]

    def settle(self) -> None:
        for index in range(len(self.leaves)):
            self.read(index)

    def rows(self, local_index: int, numbers: Array, device: Device) -> Array:
        data, home = self.read(local_index).data, self.device(local_index)
        if home is device:
            return np.take(data, home.bring(numbers), axis=0)
        with home.use():
            found = np.take(data, home.bring(numbers), axis=0)
        return device.bring(found)

    def assign(self, how: Assignment, old: Array, given: Array, at_once: bool) -> None:
        home = self.device(0)
        with home.use():  # the caller may be another replica's thread, or none's
            value = how.applied(old, home.bring(given))
        set_together([(self, home.put(value))])

    def copies_of(self, first: Array) -> list[Array]:
        """New arrays for all copies, for a value whose array is new and the first copy's."""
        with self.device(0).use():
            parts = spread_over_copies(first, len(self.leaves), self.spec, self._is_first_worker)
        others = enumerate(parts[1:], start=1)
        return [parts[0], *[self.device(index).put(part) for index, part in others]]

    def update(
        self,
        gradient: Array | IndexedSlices,
        slots: Sequence[Cell],
        how: RuleStep,
        local_index: int,
    ) -> None:
        if local_index and len(self.leaves) == 1:
            return
        here = how.on(self.device(local_index))
        if here is None:
            return
        # In place: each copy is its replica's, whose thread this is. `writable` copies first what
        # somebody holds beyond a step, and marks the leaf as changed for graphs that have read it.
        value = self.read(local_index).writable()
        arrays = [slot.leaf(local_index).writable() for slot in slots]
        if not isinstance(gradient, IndexedSlices):
            here.change(value, gradient, arrays)
        elif how.rows_only:
            on_host = isinstance(value, np.ndarray)
            rows = gradient.unique() if on_host else gradient.repeated()
            _update_rows(value, rows, arrays, here)
        else:
            _update_all(value, gradient, arrays, here)
        if self.spec.constraint is not None:
            held = self.spec.constraint(value)
            value[...] = held if here.where is None else np.where(here.where, held, value)

    def increase(self, local_index: int, by: SupportsFloat = 1) -> None:
        if local_index and len(self.leaves) == 1:
            return
        if isinstance(by, (int, float)):
            self._add(self.read(local_index), by)
        else:
            self._late[local_index].append(by)

    def _add_late(self, index: int) -> None:
        # The replica's own thread and one outside replicas, a hook's say, may read at the same
        # time. A wait that is interrupted, or fails, leaves all to the next one who reads.
        with self._late_lock, InterruptsPutOff() as interrupts:
            late = self._late[index]
            num = len(late)  # meanwhile the replica may bring more, for the next one who reads
            by = sum(map(float, late[:num]))
            interrupts.begin()
            if num:
                self._add(self.leaves[index], by)
                del late[:num]

    @staticmethod
    def _add(leaf: MutableLeaf, by: float) -> None:
        count = leaf.data.copy()  # whoever computed with the old count keeps it
        count[()] = leaf.data.item() + by  # a fifth of the time of `count += by`
        leaf.data = count


def set_together(values: Sequence[tuple[LocalCell, Array]]) -> None:
    """Give all copies of each of these a value, or none of them.

    Args:
        values: New arrays, each on the device of its cell's first copy.
    """
    copies = [cell.copies_of(value) for cell, value in values]
    for cell, _ in values:
        cell.settle()
    with InterruptsPutOff() as interrupts:  # one value for all copies, or the old one
        interrupts.begin()
        for (cell, _), arrays in zip(values, copies, strict=True):
            for leaf, array in zip(cell.leaves, arrays, strict=True):
                leaf.data = array  # whoever holds the old one keeps the old value


def _update_all(value: Array, rows: IndexedSlices, slots: Sequence[Array], how: RuleStep) -> None:
    """Apply the rule to all rows, with a gradient of zero for those that were not read."""
    if not how.rule.is_elementwise or not isinstance(value, np.ndarray):
        how.change(value, rows.to_dense(), slots)
        return
    rows = rows.unique()
    for block, gradient in dense_blocks(rows.indices, rows.values, len(value), BLOCK):
        how.change(value[block], gradient, [slot[block] for slot in slots])


def _update_rows(value: Array, rows: IndexedSlices, slots: Sequence[Array], how: RuleStep) -> None:
    """Apply the rule to the rows that were read; the others keep their values and slots."""
    row_slots = [slot[rows.indices] for slot in slots]
    row_values = value[rows.indices]
    how.change(row_values, rows.values, row_slots)
    value[rows.indices] = row_values
    for slot, row_slot in zip(slots, row_slots, strict=True):
        slot[rows.indices] = row_slot
