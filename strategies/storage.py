"""`Storage`: where the variables of a strategy live; `LocalStorage`: on this worker's devices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, final

import numpy as np

from ..autodiff import Array, IndexedSlices
from ..collectives.arrays import dense_blocks
from .aggregation import VariableAggregation, VariableSynchronization, spread_over_copies
from .devices import Device
from .workers import Workers

if TYPE_CHECKING:
    from .variables import Variable

_BLOCK = 1 << 16
"""Elements that are updated at a time."""


class Rule(Protocol):
    """An update rule, as a storage of variables needs to know it.

    Attributes:
        name: By which a parameter server knows it.
        numbers: Its hyper-parameters.
    """

    @property
    def name(self) -> str: ...

    @property
    def numbers(self) -> Mapping[str, float]: ...

    def update(
        self, value: Array, gradient: Array, slots: Sequence[Array], rate: float, step: int
    ) -> None:
        """Change `value` and `slots` (1-d, contiguous, of one length) in their `step`-th update."""


@dataclass(slots=True)
class RuleStep:
    """One application of an optimizer's rule.

    Args:
        rule: The rule.
        learning_rate: That of this update.
        step: The number of this update, from 1.
        rows_only: Whether `IndexedSlices` change the rows alone that they are of; without it the
            others change too, as by a gradient of zero.
        average: Whether the gradients of workers that do not reduce them among themselves are
            averaged, by their numbers of examples, or added up.
    """

    rule: Rule
    learning_rate: float
    step: int
    rows_only: bool = False
    average: bool = True

    def change(self, value: Array, gradient: Array, slots: Sequence[Array]) -> None:
        """Change a value and its slots, block by block: temporaries then stay in the cache.

        Args:
            value, gradient, slots: Contiguous, of one shape.
        """
        update, rate, step = self.rule.update, self.learning_rate, self.step
        value, gradient = value.reshape(-1), gradient.reshape(-1)
        slots = [slot.reshape(-1) for slot in slots]
        if value.size <= _BLOCK:
            update(value, gradient, slots, rate, step)
            return
        for start in range(0, value.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            of_block = [slot[block] for slot in slots]
            update(value[block], gradient[block], of_block, rate, step)


@dataclass(frozen=True, slots=True)
class SavedValue:
    """The value of a variable in a checkpoint, not read so far.

    Args:
        path: The checkpoint.
        shape, dtype: Of the value.
        read: Reads it.
    """

    path: str
    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[], Array]


class Storage(ABC):
    """Where variables live: how they come to be, are read, and are changed.

    What replicas do to variables in a step may be put off until `flush`.
    """

    @property
    @abstractmethod
    def is_remote(self) -> bool:
        """Whether variables live in other processes: they are fetched, and changes put off."""

    @property
    @abstractmethod
    def averages_workers(self) -> bool:
        """Whether an update has one worker's gradient, and the mean of all is taken behind it."""

    @property
    @abstractmethod
    def figures(self) -> Mapping[str, float]:
        """What is worth knowing of the last step, by name."""

    @property
    @abstractmethod
    def num_writers(self) -> int:
        """How many processes write a checkpoint: the chief, and those that keep variables."""

    @abstractmethod
    def share_checkpoint(self, draft: str) -> Callable[[], Sequence[str]]:
        """Have the other writers keep the values that they are to write. Only the chief does so.

        Args:
            draft: The path of the unfinished checkpoint.

        Returns:
            A function, for another thread, that has them write and returns their reports.
        """

    @abstractmethod
    def of(self, synchronization: VariableSynchronization, saved: bool) -> Storage:
        """Where variables of a kind live: here, or in another storage."""

    @abstractmethod
    def create(
        self,
        name: str,
        initial: Callable[[], Array | SavedValue],
        synchronization: VariableSynchronization,
        aggregation: VariableAggregation,
        beside: Variable | None,
    ) -> list[Array]:
        """The copies on this worker of a new variable.

        Args:
            name: Its name.
            initial: Gives the value to begin with; only called where it is needed.
            synchronization, aggregation: See `Variable`.
            beside: A variable of the same shape that this one is used with.
        """

    @abstractmethod
    def fetch(self, variable: Variable) -> None:
        """Bring the value here of a variable that is elsewhere."""

    @abstractmethod
    def fetch_rows(self, variable: Variable, rows: Array) -> Array:
        """Some rows of a variable that is elsewhere.

        Args:
            rows: Their numbers, of any shape, from 0.
        """

    @abstractmethod
    def written(self, variable: Variable, verb: str, value: Array, at_once: bool) -> None:
        """Note that the copies here were changed by `assign`, `assign_add` or `assign_sub`.

        Args:
            at_once: Whether it is not part of a step, and nothing may be put off.
        """

    @abstractmethod
    def update(
        self,
        variable: Variable,
        gradient: Array | IndexedSlices,
        slots: Sequence[Variable],
        how: RuleStep,
        local_index: int,
    ) -> None:
        """Change what replica `local_index` sees of a variable along a reduced gradient."""

    @abstractmethod
    def increase(self, counter: Variable, local_index: int) -> None:
        """Add one to what replica `local_index` sees of a counter."""

    @abstractmethod
    def begin_run(self) -> None:
        """The replicas are about to run: what they read may not be too old."""

    @abstractmethod
    def flush(self, num_examples: float) -> None:
        """Carry out what was put off: the changes of one step of this worker.

        Args:
            num_examples: How many examples are behind it.
        """


@final
class LocalStorage(Storage):
    """Each variable has a copy on every device where this worker keeps variables.

    Args:
        devices: Those devices.
        workers: The others have copies as well, which begin with the chief's value.
    """

    def __init__(self, devices: Sequence[Device], workers: Workers) -> None:
        self._devices = devices
        self._workers = workers

    @property
    def is_remote(self) -> bool:
        return False

    @property
    def averages_workers(self) -> bool:
        return False

    @property
    def figures(self) -> Mapping[str, float]:
        return {}

    @property
    def num_writers(self) -> int:
        return 1

    def share_checkpoint(self, draft: str) -> Callable[[], Sequence[str]]:
        return tuple

    def of(self, synchronization: VariableSynchronization, saved: bool) -> Storage:
        return self

    def create(
        self,
        name: str,
        initial: Callable[[], Array | SavedValue],
        synchronization: VariableSynchronization,
        aggregation: VariableAggregation,
        beside: Variable | None,
    ) -> list[Array]:
        found = initial()
        own = found.read() if isinstance(found, SavedValue) else found
        value = self._workers.from_chief(own, f"initial value of variable {name!r}")
        is_first = self._workers.rank == 0
        spread = spread_over_copies(
            value, len(self._devices), synchronization, aggregation, is_first
        )
        return [device.put(part) for device, part in zip(self._devices, spread, strict=True)]

    def fetch(self, variable: Variable) -> None:
        raise AssertionError(f"{variable.name!r} is here")

    def fetch_rows(self, variable: Variable, rows: Array) -> Array:
        raise AssertionError(f"{variable.name!r} is here")

    def written(self, variable: Variable, verb: str, value: Array, at_once: bool) -> None:
        pass

    def update(
        self,
        variable: Variable,
        gradient: Array | IndexedSlices,
        slots: Sequence[Variable],
        how: RuleStep,
        local_index: int,
    ) -> None:
        if is_left_to_first(variable, local_index):
            return
        value = variable.leaf(local_index).writable()
        arrays = [slot.leaf(local_index).writable() for slot in slots]
        if not isinstance(gradient, IndexedSlices):
            how.change(value, gradient, arrays)
        elif how.rows_only:
            _update_rows(value, gradient.unique(), arrays, how)
        else:
            _update_all(value, gradient.unique(), arrays, how)

    def increase(self, counter: Variable, local_index: int) -> None:
        if not is_left_to_first(counter, local_index):
            leaf = counter.leaf(local_index)
            count = leaf.data.copy()  # whoever computed with the old count keeps it
            count += 1
            leaf.data = count

    def begin_run(self) -> None:
        pass

    def flush(self, num_examples: float) -> None:
        pass


def is_left_to_first(variable: Variable, local_index: int) -> bool:
    """Whether a variable has one copy for all replicas, which the first of them changes."""
    return local_index > 0 and variable.num_copies == 1


def _update_all(value: Array, rows: IndexedSlices, slots: Sequence[Array], how: RuleStep) -> None:
    """Apply the rule to all rows, with a gradient of zero for those that were not read."""
    for block, gradient in dense_blocks(rows.indices, rows.values, len(value), _BLOCK):
        how.change(value[block], gradient, [slot[block] for slot in slots])


def _update_rows(value: Array, rows: IndexedSlices, slots: Sequence[Array], how: RuleStep) -> None:
    """Apply the rule to the rows that were read; the others keep their values and slots."""
    row_slots = [slot[rows.indices] for slot in slots]
    row_values = value[rows.indices]
    how.change(row_values, rows.values, row_slots)
    value[rows.indices] = row_values
    for slot, row_slot in zip(slots, row_slots, strict=True):
        slot[rows.indices] = row_slot
