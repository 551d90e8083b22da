"""`Cell`: the value of one variable, where it lives; `Storage`: where new ones come to live."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, SupportsFloat
from weakref import ref

import numpy as np

from ...autodiff import Array, Awaited, IndexedSlices, MutableLeaf, fused
from ..devices.device import Device
from .aggregation import VariableSpec

BLOCK = 1 << 16
"""Elements that are updated at a time."""


class Rule(Protocol):
    """An update rule, by the name and the hyper-parameters of which a parameter server knows it.

    Those with the same are equal.
    """

    def __hash__(self) -> int: ...

    @property
    def name(self) -> str: ...

    @property
    def numbers(self) -> Mapping[str, float]: ...

    @property
    def is_elementwise(self) -> bool:
        """Whether a part of a variable can be updated without the rest."""

    def is_one_pass(self, value: Array, gradient: Array, slots: Sequence[Array]) -> bool:
        """Whether `update` goes through these once, so that smaller ones would not be quicker."""

    def update(
        self, value: Array, gradient: Array, slots: Sequence[Array], rate: float, step: int
    ) -> None:
        """Change `value` and `slots` in their `step`-th update.

        They are 1-d, contiguous and of one length; or the whole, in its shape, where the rule is
        not elementwise.
        """


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
        where: A truth value of shape (): whether anything is to change. None: it is.
    """

    rule: Rule
    learning_rate: float
    step: int
    rows_only: bool = False
    average: bool = True
    where: Array | None = None

    def on(self, device: Device) -> RuleStep | None:
        """The same for values that lie on `device`; None where nothing of them is to change.

        A GPU itself chooses by `where`, which nobody waits for. Only for the host it is waited for.
        """
        if self.where is None:
            return self
        where = device.bring(self.where)
        if isinstance(where, np.ndarray):
            return replace(self, where=None) if where else None
        return replace(self, where=where)

    def change(self, value: Array, gradient: Array, slots: Sequence[Array]) -> None:
        """Change a value and its slots: in one kernel on a GPU, and else block by block.

        Args:
            value, gradient, slots: Contiguous, of one shape; the whole of a variable, where the
                rule is not elementwise. They lie where `where` is.
        """
        chosen = () if self.where is None else (self.where,)
        if not self.rule.is_elementwise:
            self._follow(value, gradient, slots, *chosen)
            return
        if value.ndim != 1:
            assert value.flags.c_contiguous, "a copy would be changed"
            value, gradient = value.reshape(-1), gradient.reshape(-1)
            slots = [slot.reshape(-1) for slot in slots]
        if not isinstance(value, np.ndarray):
            num = len(slots)
            operands = value, gradient, *slots, *chosen
            fused(lambda v, g, *rest: self._follow(v, g, rest[:num], *rest[num:]), *operands)
            return
        # Rules are elementwise: cut into blocks they give the same bits, and a rule with several
        # temporaries goes through the cache and not through memory.
        if value.size <= BLOCK or self.rule.is_one_pass(value, gradient, slots):
            self._follow(value, gradient, slots)
            return
        for start in range(0, value.size, BLOCK):
            block = slice(start, start + BLOCK)
            of_block = [slot[block] for slot in slots]
            self._follow(value[block], gradient[block], of_block)

    def _follow(
        self, value: Array, gradient: Array, slots: Sequence[Array], where: Any = None
    ) -> None:
        """Change a value and its slots by the rule; where `where` is false they stay the same."""
        if where is None:
            self.rule.update(value, gradient, slots, self.learning_rate, self.step)
            return
        arrays = (value, *slots)
        before = [array.copy() for array in arrays]
        self.rule.update(value, gradient, slots, self.learning_rate, self.step)
        for array, old in zip(arrays, before, strict=True):
            array[...] = np.where(where, array, old)


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


class Assignment(enum.Enum):
    """A way to give a variable a value; its verb is the value."""

    SET = "assign"
    ADD = "assign_add"
    SUBTRACT = "assign_sub"

    def applied(self, old: Array, given: Array) -> Array:
        """What becomes of `old`; it is not changed."""
        if self is Assignment.SET:
            return given
        return old + given if self is Assignment.ADD else old - given


class Leaf(MutableLeaf):
    """A copy of a variable in expressions: it knows the variable, but does not keep it alive.

    A variable is thus gone with its last holder, and not at some later time.
    """

    __slots__ = ("_owner",)

    @property
    def owner(self) -> Any:
        """The variable, once it is there; None where it is gone."""
        return self._owner()

    @owner.setter
    def owner(self, variable: Any) -> None:
        self._owner = _nobody if variable is None else ref(variable)

    @property
    def label(self) -> str:
        owner = self.owner
        return super().label if owner is None else f"variable {owner.name!r}"


def _nobody() -> None:
    pass


class Cell(ABC):
    """The value of one variable: this worker's handle to it, whatever process it lives in.

    Args:
        spec: What the variable is.
        copies: On this worker: one for each local replica, or one for all.
        devices: Where they are.

    Attributes:
        is_remote: Whether the value lives in other processes, which also write it into checkpoints.
        is_apart: Whether an `Arena` is to leave it out.
        leaves: The copies as tensors. What is remote is here only once it was `read`.
    """

    is_remote: bool

    def __init__(
        self, spec: VariableSpec, copies: Sequence[Array], devices: Sequence[Device]
    ) -> None:
        is_trained = spec.is_trained(copies[0].dtype)
        self.spec = spec
        self.devices = devices
        self.is_apart = False
        self.leaves = tuple([Leaf(copy, is_trained) for copy in copies])

    @property
    @abstractmethod
    def is_late(self) -> bool:
        """Whether `increase` was given a number that is still on its way."""

    @property
    def may_join(self) -> bool:
        """Whether it may be changed together with others that lie in one `Arena` with it.

        Large ones may not: a call more is nothing beside their way through memory, and to move them
        would take that much more of it.
        """
        is_small = self.leaves[0].data.size <= BLOCK
        return is_small and self.spec.constraint is None and not (self.is_apart or self.is_remote)

    def leaf(self, local_index: int) -> MutableLeaf:
        """The copy that replica `local_index` of this worker uses, whether it was read or not."""
        return self.leaves[local_index if len(self.leaves) > 1 else 0]

    def device(self, local_index: int) -> Device:
        """Where that copy is."""
        return self.devices[local_index if len(self.leaves) > 1 else 0]

    @abstractmethod
    def read(self, local_index: int) -> MutableLeaf:
        """The copy that replica `local_index` uses, with the value as it is now."""

    @abstractmethod
    def settle(self) -> None:
        """Have the copies as this task's last step has left the value: to save or set many at once.

        Raises:
            RuntimeError: There is no such moment, as other tasks change it by steps of their own.
        """

    @abstractmethod
    def rows(self, local_index: int, numbers: Array, device: Device) -> Array | Awaited:
        """Some rows of what replica `local_index` sees; from elsewhere they may be on their way.

        Args:
            numbers: Of the rows, of any shape, from 0.
            device: Where to put them: that of the caller.
        """

    @abstractmethod
    def assign(self, how: Assignment, old: Array, given: Array, at_once: bool) -> None:
        """Give all copies one value, made of `old` and `given`.

        Args:
            at_once: Whether it is not part of a step, and nothing may be put off.
        """

    @abstractmethod
    def update(
        self,
        gradient: Array | IndexedSlices,
        slots: Sequence[Cell],
        how: RuleStep,
        local_index: int,
    ) -> None:
        """Change what replica `local_index` sees along a reduced gradient.

        What all replicas share is changed when the first one asks for it.
        """

    @abstractmethod
    def increase(self, local_index: int, by: SupportsFloat = 1) -> None:
        """Add to what replica `local_index` sees of a variable of shape (); as `update`.

        Args:
            by: One that is no number so far (see `Device.fetch`) is waited for by whoever reads
                the variable next.
        """


class Storage(ABC):
    """Where variables live."""

    @abstractmethod
    def create(
        self, spec: VariableSpec, initial: Callable[[], Array | SavedValue], beside: str | None
    ) -> Cell:
        """The cell of a new variable.

        Args:
            spec: What it is.
            initial: Gives the value to begin with; only called where it is needed.
            beside: The name of a variable of the same shape that it is used with.
        """


class ShardWriters(ABC):
    """Processes that write shards of checkpoints: what a `Saver` asks of its `others`."""

    @property
    @abstractmethod
    def num(self) -> int:
        """How many they are."""

    @abstractmethod
    def begin(self, draft: str) -> None:
        """Have them keep the values that they are to write into the checkpoint at `draft`."""

    @abstractmethod
    def reports(self) -> Sequence[str]:
        """Have them write, and wait for their reports. For another thread."""


class RemoteStorage(Storage):
    """One in other processes. What replicas do to variables may be put off until `flush`."""

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
    def writers(self) -> ShardWriters:
        """Those that keep variables, as the chief has them write their part of a checkpoint."""

    @abstractmethod
    def begin_run(self) -> None:
        """The replicas are about to run: what they read may not be too old."""

    @abstractmethod
    def flush(self, num_examples: float) -> None:
        """Carry out what was put off: the changes of one step of this worker.

        Args:
            num_examples: How many examples are behind it.
        """
