"""`Variable`: one value of the model, kept as one copy or as a copy per replica."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...autodiff import (
    PRINT_OPTIONS,
    Array,
    Awaited,
    IndexedSlices,
    MutableLeaf,
    Tensor,
    TensorLike,
    effect,
    is_placing,
    look,
    operation,
    snapshot,
)
from ..context import CurrentStrategy, ReplicaContext
from ..devices.arrays import as_array
from ..devices.device import Device, in_use, to_host
from ..devices.upload import put_together
from ..replicas.frame import current_frame, stands_in
from .aggregation import (
    aggregate,
    agreed,
    may_convert,
)
from .casting import cast_to, variables_cast_to
from .cell import Assignment, Cell
from .local import LocalCell, set_together
from .places import seen_from

_constructor: list[Callable[..., Variable]] = []
_warning = threading.Lock()


def install_constructor(create: Callable[..., Variable]) -> None:
    """Let `create` serve `Variable(...)`. Called once, by the module of variable stores."""
    assert not _constructor, "there is one way in which variables are constructed"
    _constructor.append(create)


class _Constructed(type):
    """`Variable(...)` is a request to the current model's store, which may know the variable."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _constructor[0](*args, **kwargs)

    def of_cell(cls, cell: Cell, strategy: CurrentStrategy, warns: bool = True) -> Any:
        """A new variable; for the store."""
        return super().__call__(cell, strategy, warns)


class Variable(TensorLike, metaclass=_Constructed):
    """A named value that training changes, in plain NumPy expressions usable like an array.

    Inside a strategy's scope it has a copy on every device where the strategy keeps variables. In a
    replica an expression sees that replica's copy; elsewhere it sees the first copy, or, for an
    `ON_READ` variable, the aggregate of all.

    Written as `Variable(initial_value, ...)` it takes part in the store of the calling model (see
    `get_variable`): in a `model_fn`, which is called anew for each step, it is created by the first
    call and found again by its name in the next.

    Args:
        initial_value: An array, a number, or a function of no argument that gives one. Python
            floats become float32, what has a dtype keeps it.
        trainable: Whether optimizers change it. Only floats can be trained, and not `ON_READ`
            variables, whose copies differ.
        name: Its name in checkpoints; made unique with a number where it is taken.
        dtype: Converts the initial value.
        synchronization, aggregation: When and how copies are brought together.
        saved: Whether it belongs into checkpoints.
        constraint: A function of its value, as an array, that gives what it may be: applied after
            each update by an optimizer.

    Raises:
        ValueError: The aggregation is a mean of whole numbers, or a sum of truth values; several
            replicas are not to be synchronized (NONE); or the variable was found and has another
            shape than `initial_value`.
    """

    __slots__ = (
        "__weakref__",
        "_warned",
        "aggregation",
        "cell",
        "name",
        "saved",
        "strategy",
        "synchronization",
        "trainable",
    )

    def __init__(self, cell: Cell, strategy: CurrentStrategy, warns: bool = True) -> None:
        spec = cell.spec
        spec.require_dtype(cell.leaves[0].dtype)
        self.cell = cell
        self.name = spec.name
        self.trainable = cell.leaves[0].requires_grad
        self.synchronization = spec.synchronization
        self.aggregation = spec.aggregation
        self.saved = spec.saved
        self.strategy = strategy
        self._warned = not warns
        for leaf in cell.leaves:
            leaf.owner = self

    @look
    def tensor(self) -> Tensor:
        """The tensor that stands for this variable where the caller runs, and changes with it.

        Where variables are cast (see `variables_cast_to`) it is one that is computed from that.
        """
        dtype = cast_to.get()
        if dtype is not None:
            return self._cast(dtype)
        replica = self.replica_here()
        source = self._source_in(replica)
        index = 0 if replica is None else replica.local_index
        home = self.cell.device(index)
        here = in_use() if replica is None else replica.device
        return source if home is here else seen_from(here, source, home)

    def source(self) -> Tensor:
        return self._source_in(self.replica_here())

    def _source_in(self, replica: ReplicaContext | None) -> Tensor:
        if replica is not None:
            return self.cell.read(replica.local_index)
        if self.differs_between_replicas:
            return Tensor(self.device_of(0).bring(self._of_all_copies()))
        return self.cell.read(0)

    @property
    def constraint(self) -> Callable[[Array], Array] | None:
        """What its value is held to by each update, if anything."""
        return self.cell.spec.constraint

    def _cast(self, dtype: np.dtype) -> Tensor:
        with variables_cast_to(None):
            tensor = self.tensor()
        is_same = tensor.data.dtype == dtype or tensor.data.dtype.kind != "f"
        if is_same:
            return tensor
        cast: Tensor = tensor.astype(dtype)
        return cast

    @property
    def differs_between_replicas(self) -> bool:
        """Whether its value as a whole is the aggregate of copies that differ.

        Where there are several workers all of them have to read it together.
        """
        num_copies = self.num_copies * self.strategy.extended.num_workers
        return self.cell.spec.keeps_own_values and num_copies > 1

    @look
    def as_a_whole(self) -> np.ndarray:
        """The value that is seen outside replicas, as a new array on the host.

        In a replica all replicas must make this call, those without examples included: what they
        have collected before counts.
        """
        replica = self.replica_here()
        if replica is None:
            return self.numpy()

        def read(_: list[Any]) -> np.ndarray:
            here = to_host(self.value_in(0))
            return self._of_all_copies() if self.differs_between_replicas else here

        whole: np.ndarray = replica.exchange(f"read of {self.name!r} as a whole", None, read)
        return whole.copy()

    def _of_all_copies(self) -> np.ndarray:
        self.cell.spec.require_one_value()
        workers, place = self.strategy.extended.workers, f"read of {self.name!r}"
        parts = workers.of_all_replicas(self.local_values(), self.cell.leaves[0].data, place)
        return aggregate(parts, self.aggregation)

    def leaf(self, local_index: int) -> MutableLeaf:
        """The tensor that stands for this variable in replica `local_index` of this worker.

        The value of one that `is_remote` is there once it was read.
        """
        return self.cell.leaf(local_index)

    def like(self) -> Array:
        data = self.cell.leaves[0].data
        if isinstance(data, np.ndarray) or is_placing():
            return data
        return np.broadcast_to(np.zeros((), data.dtype), data.shape)  # for who is on the host

    @property
    def shape(self) -> tuple[int, ...]:
        return self.cell.leaves[0].data.shape

    def read_rows(self, rows: Array) -> tuple[Tensor, Array | Awaited]:
        replica = self.replica_here()
        if replica is None and self.differs_between_replicas:
            return self.tensor().read_rows(rows)
        index = 0 if replica is None else replica.local_index
        here = in_use() if replica is None else replica.device
        return self.cell.leaf(index), self.cell.rows(index, rows, here)

    def settle(self) -> None:
        """Have it as this task's last step has left it, or refuse: see `Cell.settle`."""
        self.cell.settle()

    def bring_here(self) -> None:
        """Keep the value that it has now in this process, where other processes have kept it."""
        value = self.value_in(0).copy()
        self.cell = LocalCell(self.cell.spec, [value], self.cell.devices[:1], is_first_worker=True)
        self.cell.leaves[0].owner = self

    @property
    def is_remote(self) -> bool:
        """Whether its value lives in other processes, which also write it into checkpoints."""
        return self.cell.is_remote

    @look
    def value_in(self, local_index: int) -> Array:
        """The array that replica `local_index` of this worker sees; it is not to be written to."""
        return self.cell.read(local_index).data

    @property
    def num_copies(self) -> int:
        """The number of copies on this worker."""
        return len(self.cell.leaves)

    def require_copies_for(self, num_replicas: int) -> None:
        """Make sure that so many replicas each have a copy, or all share the only one.

        Raises:
            RuntimeError: There are copies for another number of replicas.
        """
        if self.num_copies not in (1, num_replicas):
            raise RuntimeError(
                f"variable {self.name!r} was created in the scope of {self.strategy!r} and is "
                f"used by {num_replicas} replica(s) of another strategy; create it in the scope of "
                f"the strategy that runs, and make training steps in its run"
            )

    def local_values(self) -> list[Array]:
        """The copies of this worker, in replica order. They are not to be written to."""
        for leaf in self.cell.leaves:
            leaf.share()
        return [self.value_in(index) for index in range(self.num_copies)]

    def checksum(self, local_index: int) -> str:
        """The name and the CRC-32 of the value that a replica of this worker sees."""
        value = np.ascontiguousarray(to_host(self.value_in(local_index))).reshape(-1)
        return f"a value of {self.name!r} with checksum {zlib.crc32(value.view(np.uint8).data):08x}"

    @property
    def device(self) -> str:
        """The name of the device of the (first) copy."""
        return str(self.device_of(0))

    def device_of(self, local_index: int) -> Device:
        """The device of the copy that replica `local_index` of this worker uses."""
        return self.cell.device(local_index)

    @operation
    def value(self) -> Tensor:
        """The value here and now as a tensor; a gradient flows to the variable through it.

        It stays as it is when the variable changes.
        """
        return snapshot(self.tensor())

    read_value = value

    def assign(self, value: Any) -> Variable:
        """Set the value.

        Outside replicas the value as a whole is set: all copies get it; of `ON_READ` copies that
        are read as a sum the first gets it, and the others zero. In a replica an `ON_READ` variable
        sets this replica's copy; for another one all replicas must make the call, and all copies
        get the aggregate of their values. A replica without examples makes the call with the
        others, and has no influence on the value.

        Returns:
            This variable.

        Raises:
            ValueError: `value` has another shape; or the replicas gave different values and the
                aggregation is NONE.
            TypeError: `value` is a fraction (or complex) and the variable holds whole numbers
                (or reals).
        """
        return self._assign(Assignment.SET, value)

    @staticmethod
    def assign_together(values: Iterable[tuple[Variable, Any]]) -> None:
        """`assign` for several variables at once, as when they are restored.

        Outside replicas values of the host come to a card in few copies, and where one of them is
        refused no variable is set.
        """
        pairs = list(values)
        if stands_in() or any(variable.replica_here() is not None for variable, _ in pairs):
            for variable, value in pairs:
                variable.assign(value)
            return
        given = [(variable.cell, variable._converted(value)) for variable, value in pairs]
        local = [(cell, new) for cell, new in given if isinstance(cell, LocalCell)]
        arrays = put_together([(new, cell.device(0)) for cell, new in local])
        set_together([(cell, a) for (cell, _), a in zip(local, arrays, strict=True)])
        for cell, new in given:
            if cell.is_remote:
                cell.assign(Assignment.SET, new, new, at_once=True)

    def assign_common(self, value: Any) -> Variable:
        """`assign` for a value that all replicas have in common, from what they have exchanged.

        The copy of a replica without examples is set as well: else it would fall behind the others.
        """
        return self._assign(Assignment.SET, value, is_common=True)

    def assign_add(self, delta: Any) -> Variable:
        """Add to the value; as `assign`, where what is aggregated is `delta`.

        Raises:
            ValueError: As `assign`; or it is called outside replicas, and the `ON_READ` copies are
                read as their sum, or not as one value at all (aggregation NONE).
        """
        return self._assign(Assignment.ADD, delta)

    def assign_sub(self, delta: Any) -> Variable:
        """Subtract from the value; see `assign_add`."""
        return self._assign(Assignment.SUBTRACT, delta)

    @effect
    def _assign(self, how: Assignment, value: Any, is_common: bool = False) -> Variable:
        new = self._converted(value)
        replica, cell = self.replica_here(), self.cell
        if replica is None:
            if how is not Assignment.SET and self.differs_between_replicas:
                self.cell.spec.require_one_difference(how.value)
            if not stands_in() or is_common:
                old = cell.read(0) if how is Assignment.SET else self._source_in(None)
                cell.assign(how, old.data, new, at_once=True)
        elif not self._keeps_own_values(replica):
            write = partial(self._assign_agreed, how)
            replica.contribute(f"{how.value} of variable {self.name!r}", new, write)
        elif replica.has_examples or is_common:
            # A new array, and not in place: expressions that have read the old one keep its value.
            index = replica.local_index
            leaf, device = cell.read(index), cell.device(index)
            leaf.data = device.put(how.applied(leaf.data, device.bring(new)))
        return self

    def _assign_agreed(self, how: Assignment, given: Sequence[Array]) -> None:
        """Give all copies what the replicas that have examples, of all workers, agree on."""
        workers, place = self.strategy.extended.workers, f"assignment to {self.name!r}"
        values = workers.of_all_replicas(given, self.cell.leaves[0].data, place)
        if values:
            value = agreed(values, self.cell.spec)
            self.cell.assign(how, self.cell.read(0).data, value, at_once=False)

    def _converted(self, value: Any) -> Array:
        """An array of this variable's shape and dtype."""
        array, like = as_array(value), self.cell.leaves[0].data
        if array.shape != like.shape:
            raise ValueError(
                f"variable {self.name!r} has shape {like.shape} and was assigned a value of shape "
                f"{array.shape}; reshape the value, a variable keeps its shape"
            )
        if not may_convert(array.dtype, like.dtype):
            raise TypeError(
                f"variable {self.name!r} has dtype {like.dtype} and was assigned a value of dtype "
                f"{array.dtype}; convert the value with .astype(...) where that is meant"
            )
        dense = array.to_dense() if isinstance(array, IndexedSlices) else array
        return dense.astype(like.dtype, copy=False)

    def _keeps_own_values(self, replica: ReplicaContext) -> bool:
        """Whether each replica has a copy of its own, and they may differ."""
        each_has_one = self.num_copies == replica.strategy.extended.num_local_replicas
        return each_has_one and self.cell.spec.keeps_own_values

    def replica_here(self) -> ReplicaContext | None:
        """The replica whose copy the caller uses; None where it uses the variable as a whole.

        Raises:
            RuntimeError: The caller is one of several replicas of a strategy for which there are no
                copies.
        """
        frame = current_frame()
        replica = frame.replica
        if replica is None or frame.strategy is self.strategy:
            return replica
        return self._replica_elsewhere(frame.strategy, replica)

    def _replica_elsewhere(
        self, strategy: CurrentStrategy, replica: ReplicaContext
    ) -> ReplicaContext | None:
        """The same in a replica of a strategy that did not create the variable."""
        if strategy.extended.num_local_replicas == 1:
            return None
        self.require_copies_for(strategy.extended.num_local_replicas)
        if self.num_copies == 1:
            self._warn_once(strategy)
        return replica

    def _warn_once(self, strategy: CurrentStrategy) -> None:
        with _warning:
            first_time, self._warned = not self._warned, True
        if first_time:
            logging.getLogger("paceline").warning(
                "Variable %r was created outside the scope of %s, so its replicas share one copy; "
                "create it inside `with strategy.scope():`.",
                self.name,
                strategy,
            )

    def __repr__(self) -> str:
        if self.cell.is_late:
            self.cell.settle()
        names = [self.name] + [f"{self.name}/replica_{i}" for i in range(1, self.num_copies)]
        shown = PRINT_OPTIONS
        copies = [
            f"<{shown.prefix}Variable {name + shown.suffix!r} shape={leaf.data.shape} "
            f"dtype={leaf.data.dtype}, numpy={to_host(leaf.data)}>"
            for name, leaf in zip(names, self.cell.leaves, strict=True)
        ]
        if len(copies) == 1:
            return copies[0]
        lines = ",\n".join(f"  {i}: {copy}" for i, copy in enumerate(copies))
        return f"MirroredVariable:{{\n{lines}\n}}"
