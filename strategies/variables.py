"""`Variable`: one value of the model, kept as one copy or as a copy per replica."""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from ..autodiff import Array, Tensor, TensorLike, lift
from .context import ReplicaContext, current_frame
from .devices import to_host
from .reduce_op import mean_of

if TYPE_CHECKING:
    from .strategy import Strategy


class VariableSynchronization(enum.Enum):
    """When the copies of a variable are brought together."""

    AUTO = "AUTO"
    """At each assignment (the same as `ON_WRITE`)."""
    NONE = "NONE"
    """Never: each replica has a value of its own; outside replicas the first one's is read."""
    ON_WRITE = "ON_WRITE"
    """At each assignment: the replicas' values are aggregated and all copies get the result."""
    ON_READ = "ON_READ"
    """When it is read outside replicas (and so when it is saved): replicas write for themselves."""


class VariableAggregation(enum.Enum):
    """How the replicas' values become one."""

    NONE = "NONE"
    SUM = "SUM"
    MEAN = "MEAN"
    ONLY_FIRST_REPLICA = "ONLY_FIRST_REPLICA"


Creator: TypeAlias = "Callable[..., Variable]"
_creators: ContextVar[tuple[Callable[..., Variable], ...]] = ContextVar(
    "paceline_variable_creators", default=()
)
_constructor: list[Creator] = []


def install_constructor(create: Creator) -> None:
    """Let `create` serve `Variable(...)`. Called once, by the module of variable stores."""
    assert not _constructor, "there is one way in which variables are constructed"
    _constructor.append(create)


@contextmanager
def variable_creator_scope(creator: Callable[..., Variable]) -> Iterator[None]:
    """Let `creator(next_creator, **kwargs)` take part in creating each variable in this block.

    It may change the arguments before it calls `next_creator(**kwargs)`, and wrap or replace what
    comes back. Scopes nest; the innermost is asked first.
    """
    token = _creators.set((*_creators.get(), creator))
    try:
        yield
    finally:
        _creators.reset(token)


def create_through_scopes(create: Creator, **kwargs: Any) -> Variable:
    """`create(**kwargs)`, seen by each `variable_creator_scope` around the caller."""
    for creator in _creators.get():
        create = partial(creator, create)
    return create(**kwargs)


class _Constructed(type):
    """`Variable(...)` is a request to the current model's store, which may know the variable."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _constructor[0](*args, **kwargs)

    def with_copies(cls, *args: Any, **kwargs: Any) -> Any:
        """A new variable from its copies; for the store."""
        return super().__call__(*args, **kwargs)


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
            floats become float32.
        trainable: Whether optimizers change it. Only floats can be trained.
        name: Its name in checkpoints; made unique with a number where it is taken.
        dtype: Converts the initial value.
        synchronization, aggregation: When and how copies are brought together.
        saved: Whether it belongs into checkpoints.
    """

    __slots__ = (
        "__weakref__",
        "_copies",
        "_strategy",
        "_warned",
        "aggregation",
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
    ) -> None:
        trainable = trainable and np.issubdtype(copies[0].dtype, np.floating)
        self.name = name
        self.trainable = trainable
        self.synchronization = synchronization
        self.aggregation = aggregation
        self.saved = saved
        self._copies = tuple(Tensor(copy, trainable, owner=self) for copy in copies)
        self._strategy = strategy
        self._warned = False

    def tensor(self) -> Tensor:
        if len(self._copies) == 1:
            return self._copies[0]
        replica = self._replica()
        if replica is not None:
            return self._copies[replica.local_index]
        if self._differs_by_replica:
            return Tensor(_aggregate(self.local_values(), self.aggregation))
        return self._copies[0]

    def leaf(self, local_index: int) -> Tensor:
        """The tensor that stands for this variable in replica `local_index` of this worker."""
        return self._copies[local_index if len(self._copies) > 1 else 0]

    @property
    def num_copies(self) -> int:
        return len(self._copies)

    def local_values(self) -> list[Array]:
        """The copies of this worker, in replica order. They are not to be written to."""
        return [leaf.data for leaf in self._copies]

    @property
    def strategy(self) -> Strategy:
        """The strategy in whose scope it was created."""
        return self._strategy

    @property
    def device(self) -> str:
        """The device of the (first) copy."""
        return str(self._strategy.extended.variable_devices[0])

    def value(self) -> Tensor:
        """The value here and now as a tensor; a gradient flows to the variable through it."""
        return self.tensor()

    read_value = value

    def assign(self, value: Any) -> Variable:
        """Set the value; see `VariableSynchronization` for what happens to the copies."""
        return self._update("assign", value, lambda old, new: new)

    def assign_add(self, delta: Any) -> Variable:
        """Add to the value; aggregation applies to `delta`."""
        return self._update("assign_add", delta, np.add)

    def assign_sub(self, delta: Any) -> Variable:
        """Subtract from the value; aggregation applies to `delta`."""
        return self._update("assign_sub", delta, np.subtract)

    def _update(self, verb: str, value: Any, combine: Callable[[Array, Array], Array]) -> Variable:
        value = self._checked(lift(value).data)
        replica = self._replica()
        if replica is None or replica.strategy.extended.num_local_replicas == 1:
            old = self.tensor().data if replica is None else self.leaf(0).data
            self._write_all(combine(old, value))
        elif self._differs_by_replica and len(self._copies) > 1:
            leaf = self.leaf(replica.local_index)
            leaf.data = self._converted(combine(leaf.data, value))
        else:
            theirs = replica.exchange(f"{verb} of variable {self.name!r}", value)
            leaf = self.leaf(replica.local_index)
            new = combine(leaf.data, self._agreed(theirs))
            if len(self._copies) == 1:  # everyone has read the one copy before anyone writes it
                replica.exchange(f"{verb} of variable {self.name!r}", None)
            leaf.data = self._converted(new)
        return self

    def _write_all(self, value: Array) -> None:
        """Give all copies one value; a value that is a sum over replicas goes to the first."""
        spread = spread_over_copies(
            value, len(self._copies), self.synchronization, self.aggregation
        )
        devices = self._strategy.extended.variable_devices
        for leaf, device, part in zip(self._copies, devices, spread, strict=False):
            leaf.data = device.put(part).astype(leaf.data.dtype, copy=False)

    def _agreed(self, values: Sequence[Array]) -> Array:
        """The one value that the replicas' values stand for."""
        if self.aggregation is not VariableAggregation.NONE:
            return _aggregate(values, self.aggregation)
        if not all(np.array_equal(values[0], v) for v in values[1:]):
            raise ValueError(
                f"variable {self.name!r} was assigned different values in different replicas, and "
                f"its aggregation is NONE; create it with aggregation=VariableAggregation.MEAN, SUM "
                f"or ONLY_FIRST_REPLICA, or with synchronization=ON_READ to keep a value per replica"
            )
        return values[0]

    def _checked(self, value: Array) -> Array:
        if np.shape(value) != self.shape:
            raise ValueError(
                f"variable {self.name!r} has shape {self.shape} and was assigned a value of shape "
                f"{np.shape(value)}; reshape the value, a variable keeps its shape"
            )
        return value

    def _converted(self, value: Array) -> Array:
        """`value` as this variable keeps it: of its dtype, and never the array somebody else holds."""
        like = self._copies[0].data
        return np.array(value, dtype=like.dtype, order="C", like=like)

    @property
    def _differs_by_replica(self) -> bool:
        return self.synchronization in _PER_REPLICA

    def _replica(self) -> ReplicaContext | None:
        """The replica that calls, if it is one of several of a strategy."""
        frame = current_frame()
        replica = frame.replica
        if replica is not None and frame.strategy is not self._strategy:
            if frame.strategy.extended.num_local_replicas > 1:
                self._warn_once(frame.strategy)
            return replica if len(self._copies) == 1 else None
        return replica

    def _warn_once(self, strategy: Strategy) -> None:
        if not self._warned:
            self._warned = True
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
        return "Mirrored:{\n" + ",\n".join(f"  {i}: {c}" for i, c in enumerate(copies)) + "\n}"


_PER_REPLICA = (VariableSynchronization.ON_READ, VariableSynchronization.NONE)


def _aggregate(values: Sequence[Array], aggregation: VariableAggregation) -> Array:
    if aggregation in (VariableAggregation.ONLY_FIRST_REPLICA, VariableAggregation.NONE):
        return values[0]
    hosted = [to_host(v) for v in values]
    total = hosted[0].copy()
    for value in hosted[1:]:
        total += value
    return total if aggregation is VariableAggregation.SUM else mean_of(total, len(values))


def spread_over_copies(
    value: Array,
    num_copies: int,
    synchronization: VariableSynchronization,
    aggregation: VariableAggregation,
) -> list[Array]:
    """What each copy gets when the variable as a whole is set to `value`.

    A value that is read as the sum of its copies is given to the first one, the others get zeros:
    the total is kept to the bit, for whole numbers too.
    """
    summed = synchronization in _PER_REPLICA and aggregation is VariableAggregation.SUM
    rest = np.zeros_like(value) if summed else value
    return [value] + [rest] * (num_copies - 1)
