"""Which strategy and which replica the calling code runs under.

The answer is one context variable: a strategy's `scope` sets it to (strategy, no replica), which is
the cross-replica context, and `run` sets it to (strategy, replica) for each replica. At the bottom
lies the default strategy with its one replica.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autodiff import lift
from ..inputs import nest
from .devices import Device, to_host
from .reduce_op import ReduceOp, mean_of
from .rendezvous import Rendezvous
from .values import regroup, select_replica

if TYPE_CHECKING:
    from .strategy import Strategy


@dataclass(frozen=True, slots=True)
class Frame:
    """Where code runs: under which strategy, and as which replica (None: cross-replica)."""

    strategy: Strategy
    replica: ReplicaContext | None


_frame: ContextVar[Frame] = ContextVar("paceline_frame")
_bottom: list[Frame] = []


def install_default(strategy: Strategy) -> None:
    """Make `strategy` the one that is current outside any scope. Called once, by its module."""
    assert not _bottom, "the default strategy is a singleton"
    _bottom.append(Frame(strategy, ReplicaContext(strategy, 0, Rendezvous(1))))


def current_frame() -> Frame:
    return _frame.get(None) or _bottom[0]


@contextmanager
def entered(frame: Frame) -> Iterator[None]:
    """Run the block under `frame`."""
    token = _frame.set(frame)
    try:
        yield
    finally:
        _frame.reset(token)


def get_strategy() -> Strategy:
    """The strategy whose scope (or `run`) the caller is in; outside any, the default strategy."""
    return current_frame().strategy


def has_strategy() -> bool:
    """Whether a strategy other than the default one is current."""
    return current_frame().strategy is not _bottom[0].strategy


def in_cross_replica_context() -> bool:
    """Whether the caller is inside a strategy's scope but not inside a replica of it."""
    return current_frame().replica is None


def get_replica_context() -> ReplicaContext | None:
    """The replica that the caller runs as; None in cross-replica context.

    Outside any scope this is the only replica of the default strategy.
    """
    return current_frame().replica


class ReplicaContext:
    """What a step function can ask and do as one replica among several.

    The verbs that combine values must be called by all replicas of the strategy, in the same order;
    they block until all have come.
    """

    __slots__ = ("_rendezvous", "local_index", "strategy")

    def __init__(self, strategy: Strategy, local_index: int, rendezvous: Rendezvous) -> None:
        self.strategy = strategy
        self.local_index = local_index
        self._rendezvous = rendezvous

    @property
    def replica_id_in_sync_group(self) -> int:
        """This replica's number among all replicas of all workers, from 0."""
        extended = self.strategy.extended
        return extended.worker_index * extended.num_local_replicas + self.local_index

    @property
    def num_replicas_in_sync(self) -> int:
        return self.strategy.num_replicas_in_sync

    @property
    def devices(self) -> tuple[str, ...]:
        """The name of this replica's device, as a 1-tuple."""
        return (str(self.device),)

    @property
    def device(self) -> Device:
        return self.strategy.extended.replica_devices[self.local_index]

    def exchange(self, place: str, value: Any) -> list[Any]:
        """Give `value` to all local replicas; return theirs, in replica order, as they are."""
        return self._rendezvous.exchange(self.local_index, place, value)

    def all_reduce(self, reduce_op: ReduceOp | str, value: Any, options: Any = None) -> Any:
        """Combine a structure of arrays over all replicas; every replica gets the result.

        Args:
            reduce_op: `ReduceOp.SUM` or `ReduceOp.MEAN`, or its name.
            value: A tensor, an array, a number, or a nested structure of them, of equal shapes on all
                replicas. No gradient flows through the result.
            options: Accepted for TensorFlow's signature.

        Returns:
            The same structure with the combined arrays, on this replica's device.
        """
        op = ReduceOp.parse(reduce_op)
        mine = nest.map_structure(lambda leaf: lift(leaf).data, value)
        theirs = self.exchange("all_reduce", mine)
        ops = self.strategy.extended.cross_device_ops

        def combine(*arrays: Any) -> Any:
            total = ops.reduce(
                [np.asarray(a) if np.isscalar(a) else a for a in arrays], self.device
            )
            return total if op is ReduceOp.SUM else mean_of(total, len(arrays))

        return nest.map_structure(combine, *theirs)

    def all_gather(self, value: Any, axis: int, options: Any = None) -> Any:
        """Concatenate the replicas' arrays along `axis`, in replica order; every replica gets all.

        Args:
            value: An array or tensor of rank ≥ 1, or a nested structure of them; the lengths along
                `axis` may differ between replicas.
            axis: In [0, rank).
        """
        theirs = self.exchange("all_gather", nest.map_structure(lambda v: lift(v).data, value))
        ops = self.strategy.extended.cross_device_ops
        return nest.map_structure(lambda *arrays: ops.gather(arrays, axis, self.device), *theirs)

    def merge_call(
        self, merge_fn: Callable[..., Any], args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        """Meet all local replicas, call `merge_fn` once for all of them, and go on with its result.

        Args:
            merge_fn: Called in cross-replica context as `merge_fn(strategy, *args, **kwargs)`, each
                argument a `PerReplica` of what the replicas gave.

        Returns:
            This replica's part of what `merge_fn` returned.
        """
        place = f"merge_call({merge_fn.__name__})"
        theirs = self.exchange(place, (args, kwargs or {}))
        result = error = None
        if self.local_index == 0:
            merged_args, merged_kwargs = regroup(theirs)
            try:
                with entered(Frame(self.strategy, None)):
                    result = merge_fn(self.strategy, *merged_args, **merged_kwargs)
            except BaseException as e:
                error = e
        if error is not None:
            raise error
        return select_replica(self.exchange(place, result)[0], self.local_index)
