"""`StrategyExtended`: the three policies that a strategy is made of, and its rarely used verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..autodiff import Array, lift
from .context import Frame, ReplicaContext, entered
from .cross_device_ops import CrossDeviceOps
from .devices import HOST, Device
from .reduce_op import ReduceOp, mean_of
from .rendezvous import Rendezvous, run_replicas
from .values import local_values
from .variable_store import names_counted_apart


class StrategyExtended:
    """Where variables live, where the step runs, and how values are reduced.

    Args:
        replica_devices: The device of each local replica.
        variable_devices: The devices that hold a copy of each variable: as many as there are local
            replicas, or a single one.
        cross_device_ops: How arrays of several local replicas become one.
    """

    def __init__(
        self,
        replica_devices: Sequence[Device],
        variable_devices: Sequence[Device],
        cross_device_ops: CrossDeviceOps,
    ) -> None:
        self.replica_devices = tuple(replica_devices)
        self.variable_devices = tuple(variable_devices)
        self.cross_device_ops = cross_device_ops
        self.num_workers = 1
        self.worker_index = 0

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The names of the compute devices; the index is that of the local replica."""
        return tuple(str(device) for device in self.replica_devices)

    @property
    def num_local_replicas(self) -> int:
        return len(self.replica_devices)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The names of the devices that hold variables."""
        return tuple(str(device) for device in self.variable_devices)

    def call_for_each_replica(self, strategy: Any, fn: Callable[[int], Any]) -> list[Any]:
        """`fn(local_index)` in the context of every local replica, at the same time."""
        if self.num_local_replicas == 1:
            replica = ReplicaContext(strategy, 0, _ALONE)
            with entered(Frame(strategy, replica)), self.replica_devices[0].use():
                return [fn(0)]
        rendezvous = Rendezvous(self.num_local_replicas)

        def as_replica(index: int) -> Any:
            replica = ReplicaContext(strategy, index, rendezvous)
            with entered(Frame(strategy, replica)), self.replica_devices[index].use():
                if index == 0:
                    return fn(index)
                with names_counted_apart():
                    return fn(index)

        return run_replicas(
            [partial(as_replica, i) for i in range(self.num_local_replicas)],
            rendezvous,
            [f"replica {i} on {device}" for i, device in enumerate(self.worker_devices)],
        )

    def reduce_to(
        self, reduce_op: ReduceOp | str, value: Any, destinations: Device | str = HOST
    ) -> Array:
        """Combine the replicas' arrays, of equal shapes, on a device of choice.

        Args:
            reduce_op: SUM or MEAN.
            value: One array (tensor, number) per local replica, as a `PerReplica`; a plain value
                where there is a single replica.
            destinations: The device that gets the result.

        Raises:
            ValueError: The shapes differ.
        """
        op = ReduceOp.parse(reduce_op)
        arrays = [_array(v) for v in local_values(value)]
        shapes = [a.shape for a in arrays]
        if len(set(shapes)) > 1:
            raise ValueError(
                f"the replicas' values have different shapes {shapes} and cannot be combined as "
                f"they are; pass axis=0 to reduce over the batch dimension as well"
            )
        total = self.cross_device_ops.reduce(arrays, Device.parse(destinations))
        return total if op is ReduceOp.SUM else mean_of(total, len(arrays))

    def batch_reduce_to(
        self, reduce_op: ReduceOp | str, value_destination_pairs: Sequence[tuple[Any, Any]]
    ) -> list[Array]:
        """`reduce_to` for several (value, destination) pairs at once."""
        return [self.reduce_to(reduce_op, v, d) for v, d in value_destination_pairs]


_ALONE = Rendezvous(1)


def _array(value: Any) -> Array:
    data = lift(value).data
    return np.asarray(data) if np.isscalar(data) else data
