"""`Variable`: one value of the model, kept as one copy or as a copy per replica."""

from __future__ import annotations

import logging
import threading
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

import numpy as np

from ..autodiff import Array, IndexedSlices, MutableLeaf, Tensor, TensorLike, record, snapshot
from .aggregation import (
    VariableAggregation,
    VariableSynchronization,
    aggregate,
    all_equal,
    check_aggregation,
    may_convert,
    spread_over_copies,
)
from .arrays import as_array
from .context import ReplicaContext, current_frame, stands_in
from .devices import Device, to_host
from .interrupts import InterruptsPutOff

if TYPE_CHECKING:
    from .storage import Storage
    from .strategy import Strategy

_constructor: list[Callable[..., Variable]] = []
_warning = threading.Lock()


def install_constructor(create: Callable[..., Variable]) -> None:
    """Let `create` serve `Variable(...)`. Called once, by the module of variable stores."""
    assert not _constructor, "there is one way in which variables are constructed"
    _constructor.append(create)


def may_be_trained(
    trainable: bool, dtype: np.dtype, synchronization: VariableSynchronization
) -> bool:
    """Whether optimizers change a variable that is created so."""
    on_read = synchronization is VariableSynchronization.ON_READ
    return trainable and not on_read and np.issubdtype(dtype, np.floating)


class _Constructed(type):
    """`Variable(...)` is a request to the current model's store, which may know the variable."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _constructor[0](*args, **kwargs)

    def with_copies(cls, *args: Any, **kwargs: Any) -> Any:
        """A new variable from its copies; for the store."""
        return super().__call__(*args, **kwargs)


class _Leaf(MutableLeaf):
    """A copy of a variable in expressions: it knows the variable, but does not keep it alive.

    A variable is thus gone with its last holder, and not at some later time.
    """

    __slots__ = ("_owner",)

    @property
    def owner(self) -> Variable | None:
        return self._owner()

    @owner.setter
    def owner(self, variable: Variable) -> None:
        self._owner = ref(variable)

    @property
    def label(self) -> str:
        owner = self.owner
        return super().label if owner is None else f"variable {owner.name!r}"


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

    Raises:
        ValueError: The aggregation is a mean of whole numbers, or a sum of truth values; or the
            variable was found and has another shape than `initial_value`.
    """

    __slots__ = (
        "__weakref__",
        "_copies",
        "_storage",
        "_strategy",
        "_warned",
        "aggregation",
        "is_elsewhere",
        "name",
        "saved",
        "synchronization",
        "trainable",
    )

    def __init__(
        self,
        copies: Sequence[Array],
        strategy: Strategy,
        *,
        name: str,
        trainable: bool,
        synchronization: VariableSynchronization,
        aggregation: VariableAggregation,
        saved: bool,
        storage: Storage,
    ) -> None:
        dtype = copies[0].dtype
        check_aggregation(name, dtype, aggregation)
        self.name = name
        self.trainable = may_be_trained(trainable, dtype, synchronization)
        self.synchronization = synchronization
        self.aggregation = aggregation
        self.saved = saved
        self._copies = tuple(_Leaf(copy, self.trainable, owner=self) for copy in copies)
        self._strategy = strategy
        self._storage = storage
        self._warned = False
        self.is_elsewhere = storage.is_remote

    def tensor(self) -> Tensor:
        """The tensor that stands for this variable where the caller runs, and changes with it."""
        if self.is_elsewhere:
            self._storage.fetch(self)
        replica, copies = self.replica_here(), self._copies
        if replica is not None:
            leaf = copies[replica.local_index if len(copies) > 1 else 0]
            return self._from_afar(leaf, replica) if self._strategy.extended.is_afar else leaf
        if self.differs_between_replicas:
            return Tensor(self.device_of(0).bring(self._of_all_copies()))
        return copies[0]

    @property
    def differs_between_replicas(self) -> bool:
        """Whether its value as a whole is the aggregate of copies that differ.

        Where there are several workers all of them have to read it together.
        """
        on_read = self.synchronization is VariableSynchronization.ON_READ
        return on_read and self._strategy.extended.num_replicas > 1

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
        workers, place = self._strategy.extended.workers, f"read of {self.name!r}"
        parts = workers.of_all_replicas(self.local_values(), self.like(), place)
        return aggregate(parts, self.aggregation)

    def leaf(self, local_index: int) -> MutableLeaf:
        """The tensor that stands for this variable in replica `local_index` of this worker.

        Its value is not to be relied on while the variable `is_elsewhere`.
        """
        return self._copies[local_index if len(self._copies) > 1 else 0]

    def like(self) -> Array:
        return self._copies[0].data

    def read_rows(self, rows: Array) -> tuple[Tensor, Array]:
        replica = self.replica_here()
        leaf: Tensor = self.leaf(0 if replica is None else replica.local_index)
        if self.is_elsewhere:
            found = self._storage.fetch_rows(self, to_host(rows))
        elif replica is None:
            leaf, found = self.tensor().read_rows(rows)
        else:
            found = np.take(leaf.data, self.device_of(replica.local_index).bring(rows), axis=0)
        return leaf, found if replica is None else replica.device.bring(found)

    @property
    def storage(self) -> Storage:
        """Where it lives."""
        return self._storage

    def value_in(self, local_index: int) -> Array:
        """The array that replica `local_index` of this worker sees; it is not to be written to."""
        if self.is_elsewhere:
            self._storage.fetch(self)
        return self.leaf(local_index).data

    @property
    def num_copies(self) -> int:
        """The number of copies on this worker."""
        return len(self._copies)

    def require_copies_for(self, num_replicas: int) -> None:
        """Make sure that so many replicas each have a copy, or all share the only one.

        Raises:
            RuntimeError: There are copies for another number of replicas.
        """
        if len(self._copies) not in (1, num_replicas):
            raise RuntimeError(
                f"variable {self.name!r} was created in the scope of {self._strategy!r} and is "
                f"used by {num_replicas} replica(s) of another strategy; create it in the scope of "
                f"the strategy that runs, and make training steps in its run"
            )

    def local_values(self) -> list[Array]:
        """The copies of this worker, in replica order. They are not to be written to."""
        for leaf in self._copies:
            leaf.share()
        return [self.value_in(index) for index in range(len(self._copies))]

    def checksum(self, local_index: int) -> str:
        """The name and the CRC-32 of the value that a replica of this worker sees."""
        value = np.ascontiguousarray(to_host(self.value_in(local_index))).reshape(-1)
        return f"a value of {self.name!r} with checksum {zlib.crc32(value.view(np.uint8).data):08x}"

    @property
    def strategy(self) -> Strategy:
        """The strategy in whose scope it was created."""
        return self._strategy

    @property
    def device(self) -> str:
        """The name of the device of the (first) copy."""
        return str(self.device_of(0))

    def device_of(self, local_index: int) -> Device:
        """The device of the copy that replica `local_index` of this worker uses."""
        return self._strategy.extended.variable_devices[local_index if len(self._copies) > 1 else 0]

    def _from_afar(self, leaf: Tensor, replica: ReplicaContext) -> Tensor:
        """A copy as a replica on another device reads it: brought there, and its gradient back."""
        home = self.device_of(replica.local_index)
        brought = replica.device.bring(leaf.data)
        if brought is leaf.data:
            return leaf
        return record(brought, (leaf,), lambda gradient, outs: (home.bring(gradient),))

    def value(self) -> Tensor:
        """The value here and now as a tensor; a gradient flows to the variable through it.

        It stays as it is when the variable changes.
        """
        return snapshot(self.tensor())

    read_value = value

    def assign(self, value: Any) -> Variable:
        """Set the value.

        Outside replicas all copies are set. In a replica it depends on the synchronization: an
        `ON_READ` or `NONE` variable sets this replica's copy; for another one all replicas must
        make the call, and all copies get the aggregate of their values. A replica without examples
        makes the call with the others, and has no influence on the value.

        Returns:
            This variable.

        Raises:
            ValueError: `value` has another shape; or the replicas gave different values and the
                aggregation is NONE.
            TypeError: `value` is a fraction (or complex) and the variable holds whole numbers
                (or reals).
        """
        return self._update("assign", value, lambda old, new: new)

    def assign_common(self, value: Any) -> Variable:
        """`assign` for a value that all replicas have in common, from what they have exchanged.

        The copy of a replica without examples is set as well: else it would fall behind the others.
        """
        return self._update("assign", value, lambda old, new: new, is_common=True)

    def assign_add(self, delta: Any) -> Variable:
        """Add to the value; as `assign`, where what is aggregated is `delta`."""
        return self._update("assign_add", delta, np.add)

    def assign_sub(self, delta: Any) -> Variable:
        """Subtract from the value; as `assign`, where what is aggregated is `delta`."""
        return self._update("assign_sub", delta, np.subtract)

    def _update(
        self,
        verb: str,
        value: Any,
        combine: Callable[[Array, Array], Array],
        is_common: bool = False,
    ) -> Variable:
        new = self._converted(value)
        if self.is_elsewhere:
            self._storage.fetch(self)
        replica = self.replica_here()
        if replica is not None and not self._keeps_own_values(replica):
            write = partial(self._write_agreed, verb, combine)
            replica.contribute(f"{verb} of variable {self.name!r}", new, write)
        elif stands_in() and not is_common:
            pass
        elif replica is None:
            self._write_all(combine, self.tensor().data, new)
            self._storage.written(self, verb, new, at_once=True)
        else:
            index = replica.local_index
            leaf = self._copies[index]
            leaf.data = self._put(combine(leaf.data, self.device_of(index).bring(new)), index)
        return self

    def _write_agreed(
        self, verb: str, combine: Callable[[Array, Array], Array], given: Sequence[Array]
    ) -> None:
        """Give all copies what the replicas that have examples, of all workers, agree on."""
        workers, place = self._strategy.extended.workers, f"assignment to {self.name!r}"
        values = workers.of_all_replicas(given, self.like(), place)
        if values:
            agreed = self._agreed(values)
            self._write_all(combine, self._copies[0].data, agreed)
            self._storage.written(self, verb, agreed, at_once=False)

    def _write_all(self, combine: Callable[[Array, Array], Array], old: Array, new: Array) -> None:
        """Give all copies one value; a value that is a sum over replicas goes to the first."""
        value = combine(old, self.device_of(0).bring(new))
        parts = spread_over_copies(
            value,
            len(self._copies),
            self.synchronization,
            self.aggregation,
            self._strategy.extended.worker_index == 0,
        )
        arrays = [self._put(part, index) for index, part in enumerate(parts)]
        with InterruptsPutOff() as interrupts:  # one value for all copies, or the old one
            interrupts.begin()
            for leaf, array in zip(self._copies, arrays, strict=True):
                leaf.data = array

    def _put(self, value: Array, local_index: int) -> Array:
        """`value` as a copy keeps it: on its device, and never the array somebody else holds."""
        return self.device_of(local_index).put(value)

    def _agreed(self, values: Sequence[Array]) -> Array:
        """The one value that the replicas' values stand for."""
        if self.aggregation is not VariableAggregation.NONE:
            return aggregate(values, self.aggregation)
        if not all_equal(values):
            raise ValueError(
                f"variable {self.name!r} was assigned different values in different replicas, and "
                f"its aggregation is NONE; create it with aggregation=VariableAggregation.MEAN, "
                f"SUM or ONLY_FIRST_REPLICA, or with synchronization=ON_READ to keep a value per "
                f"replica"
            )
        return values[0]

    def _converted(self, value: Any) -> Array:
        """An array of this variable's shape and dtype."""
        array, like = as_array(value), self._copies[0].data
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
        each_has_one = len(self._copies) == replica.strategy.extended.num_local_replicas
        return each_has_one and self.synchronization in (
            VariableSynchronization.ON_READ,
            VariableSynchronization.NONE,
        )

    def replica_here(self) -> ReplicaContext | None:
        """The replica whose copy the caller uses; None where it uses the variable as a whole.

        Raises:
            RuntimeError: The caller is one of several replicas of a strategy for which there are no
                copies.
        """
        frame = current_frame()
        replica = frame.replica
        if replica is None or frame.strategy is self._strategy:
            return replica
        return self._replica_elsewhere(frame.strategy, replica)

    def _replica_elsewhere(
        self, strategy: Strategy, replica: ReplicaContext
    ) -> ReplicaContext | None:
        """The same in a replica of a strategy that did not create the variable."""
        if strategy.extended.num_local_replicas == 1:
            return None
        self.require_copies_for(strategy.extended.num_local_replicas)
        if len(self._copies) == 1:
            self._warn_once(strategy)
        return replica

    def _warn_once(self, strategy: Strategy) -> None:
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
        names = [self.name] + [f"{self.name}/replica_{i}" for i in range(1, len(self._copies))]
        copies = [
            f"<Variable {name!r} shape={leaf.data.shape} dtype={leaf.data.dtype}, "
            f"numpy={to_host(leaf.data)}>"
            for name, leaf in zip(names, self._copies, strict=True)
        ]
        if len(copies) == 1:
            return copies[0]
        lines = ",\n".join(f"  {i}: {copy}" for i, copy in enumerate(copies))
        return f"MirroredVariable:{{\n{lines}\n}}"
