"""`StrategyExtended`: the three policies that a strategy is made of, and its rarely used verbs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..autodiff import Array, IndexedSlices
from ..inputs import nest
from ..observe import log_once
from .devices.arrays import Summand, add_up, as_array, moved, no_rows, nothing_like, summands
from .devices.cross_device_ops import CrossDeviceOps, ReduceOp, mean_of
from .devices.device import HOST, Device
from .replicas.frame import current_frame, require_no_replica
from .replicas.values import local_values
from .variables.cell import RemoteStorage, Storage
from .variables.local import LocalStorage
from .workers.job import Job, VariableServer, WorkersJob
from .workers.joining import BYTES_PER_PACK, CommunicationOptions
from .workers.workers import Workers

GIVE_ALL = "give CommunicationOptions to the strategy, for all of its collectives"
"""What a warning of options of a single collective advises."""


class StrategyExtended:
    """Where variables live, where the step runs, and how values are reduced.

    Args:
        replica_devices: The device of each local replica.
        variable_devices: The devices that hold a copy of each variable: as many as there are local
            replicas, or a single one.
        cross_device_ops: How arrays of several local replicas become one.
        workers: How arrays of several workers become one; by default this worker is alone.
        bytes_per_pack: Gradients are packed together until they have reached this size.
        remote_storage: Where variables live, if not on `variable_devices`.
        job: The tasks that train one model; by default `workers` are all of them.
        server: What this task does instead of training, if it is a parameter server.

    Attributes:
        server: As given.
        storage: Where variables live.
        remote_storage: The same where that is in other processes, else None.
        num_workers: The number of processes that train together.
        num_local_replicas: The number of replicas of this worker.
        num_replicas: The number of replicas of all workers.
        shard: How many workers share the gradients and the data of a step, and this one's number.
            They are those that train together; or, where parameter servers take the sum or mean of
            what all hand in for a step, all of these, who do not meet within it.
    """

    def __init__(
        self,
        replica_devices: Sequence[Device],
        variable_devices: Sequence[Device],
        cross_device_ops: CrossDeviceOps,
        workers: Workers | None = None,
        bytes_per_pack: int = BYTES_PER_PACK,
        remote_storage: RemoteStorage | None = None,
        job: Job | None = None,
        server: VariableServer | None = None,
    ) -> None:
        self.replica_devices = tuple(replica_devices)
        self.variable_devices = tuple(variable_devices)
        self.cross_device_ops = cross_device_ops
        self.workers = workers or Workers()
        self.remote_storage = remote_storage
        self.storage: Storage = remote_storage or LocalStorage(self.variable_devices, self.workers)
        self.server = server
        self._job = job or WorkersJob(self.workers)
        self.bytes_per_pack = bytes_per_pack
        self.num_workers, self.num_local_replicas = self.workers.size, len(self.replica_devices)
        self.num_replicas = self.num_workers * self.num_local_replicas
        self.shard = self.num_workers, self.workers.rank
        if remote_storage is not None and remote_storage.averages_workers:
            self.shard = self._job.num_trainers, self._job.trainer_index

    @property
    def job(self) -> Job:
        """The tasks that train one model, seen from this one.

        Raises:
            RuntimeError: This task is a parameter server.
        """
        if self.server is not None:
            raise RuntimeError(
                "this process is a parameter server (ps), which does not train; call "
                "train_and_evaluate, the same in every process of the job"
            )
        return self._job

    @property
    def should_checkpoint(self) -> bool:
        """Whether this process writes checkpoints: it is the chief, of which a job has one."""
        return self.server is None and self._job.is_chief

    @property
    def should_save_summary(self) -> bool:
        """Whether this process writes summaries: it is the chief."""
        return self.should_checkpoint

    @property
    def is_synchronous(self) -> bool:
        """Whether each update is made of the gradients of all workers for the same step."""
        return self.remote_storage is None or self.remote_storage.averages_workers

    @property
    def figures(self) -> Mapping[str, float]:
        """What is worth knowing of where variables live after a step, by name."""
        return {} if self.remote_storage is None else self.remote_storage.figures

    @property
    def worker_devices(self) -> tuple[str, ...]:
        """The names of the compute devices; the index is that of the local replica."""
        return tuple(str(device) for device in self.replica_devices)

    @property
    def parameter_devices(self) -> tuple[str, ...]:
        """The names of the devices that hold variables."""
        return tuple(str(device) for device in self.variable_devices)

    @property
    def worker_index(self) -> int:
        """This process's number among them."""
        return self.workers.rank

    def reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value: Any,
        destinations: Device | str = HOST,
        options: CommunicationOptions | None = None,
    ) -> Summand:
        """Combine the replicas' arrays, of equal shapes, on a device of choice.

        Args:
            reduce_op: SUM or MEAN.
            value: A `PerReplica`, or with a single replica a plain value.
            destinations: A device, or its name.
            options: As in `ReplicaContext.all_reduce`.
        """
        return self.batch_reduce_to(reduce_op, [(value, destinations)], options)[0]

    def batch_reduce_to(
        self,
        reduce_op: ReduceOp | str,
        value_destination_pairs: Sequence[tuple[Any, Device | str]],
        options: CommunicationOptions | None = None,
    ) -> list[Summand]:
        """`reduce_to` for several (value, destination) pairs at once.

        Between workers arrays of one dtype travel together.
        """
        require_no_replica("reduce_to")
        values = [
            [as_array(part) for part in self.parts_of("reduce_to", value)]
            for value, _ in value_destination_pairs
        ]
        destinations = [Device.parse(device) for _, device in value_destination_pairs]
        op = ReduceOp.parse(reduce_op)
        return self._reduced(op, values, self.has_examples(), destinations, options)

    def has_examples(self) -> Sequence[bool]:
        """For each local replica, whether what it gave to the calling `merge_call` counts.

        Outside of one, in cross-replica context, what callers pass has no such origin: it counts.
        """
        known = current_frame().has_examples
        return (True,) * self.num_local_replicas if known is None else known

    def all_reduce(
        self,
        op: ReduceOp,
        values: Sequence[Sequence[Summand]],
        has_examples: Sequence[bool],
        options: CommunicationOptions | None = None,
    ) -> list[list[Summand]]:
        """The combination of the local replicas' arrays, once for each of them on its device.

        Args:
            op: How to combine them.
            values: Any number of them, each with one array for each local replica.
            has_examples: For each replica, whether it counts. Where none does on any worker, all
                do: the step is not made, and what programs exchange should be numbers as ever.
            options: How workers talk to each other this time.
        """
        devices = [self.replica_devices[0]] * len(values)
        totals = self._reduced(op, values, has_examples, devices, options)
        return [self._spread(total) for total in totals]

    def all_gather(
        self, axis: int, parts: Sequence[Summand], has_examples: Sequence[bool]
    ) -> list[Summand]:
        """The concatenation of the local replicas' arrays, once for each of them on its device."""
        return self._spread(self.gather_to(parts, axis, self.replica_devices[0], has_examples))

    def gather_to(
        self,
        parts: Sequence[Summand],
        axis: int,
        destination: Device,
        has_examples: Sequence[bool],
    ) -> Array:
        """The concatenation of the local replicas' arrays on a device of choice.

        Args:
            parts: One for each local replica.
            has_examples: As in `all_reduce`: what does not count adds nothing along `axis`.

        Raises:
            ValueError: They are no arrays that can be joined along `axis`.
        """
        if any(isinstance(part, IndexedSlices) for part in parts):
            raise ValueError(
                "gather takes dense arrays, these are IndexedSlices; "
                "call to_dense() on them, or reduce them instead"
            )
        counted = [
            part if has else no_rows(part, axis)
            for part, has in zip(parts, has_examples, strict=True)
        ]
        joined = self._joined(counted, axis, destination)
        if not joined.shape[axis]:
            joined = self._joined(parts, axis, destination)
        return destination.bring(joined)

    def _joined(self, parts: Sequence[Summand], axis: int, destination: Device) -> Array:
        local = self.cross_device_ops.gather(parts, axis, destination)
        return self.workers.gather(local, axis, "gather")

    def parts_of(self, verb: str, value: Any) -> tuple[Any, ...]:
        """The values of the local replicas.

        Raises:
            ValueError: There is not one for each, or `value` is a structure of several values.
        """
        if nest.steps_into(value) is not None:
            raise ValueError(
                f"{verb} takes one value of the replicas, it was given a structure of several "
                f"({type(value).__name__}); call it for each of them"
            )
        parts = local_values(value)
        if len(parts) != self.num_local_replicas:
            raise ValueError(
                f"{verb} needs one value for each of the {self.num_local_replicas} replicas, "
                f"it was given {len(parts)} ({type(value).__name__}); pass what `run` returned"
            )
        return parts

    def _reduced(
        self,
        op: ReduceOp,
        values: Sequence[Sequence[Summand]],
        has_examples: Sequence[bool],
        destinations: Sequence[Device],
        options: CommunicationOptions | None,
    ) -> list[Summand]:
        if not values:
            return []
        # What does not count is left out, not multiplied by zero: it may be no number.
        counted = values
        if not all(has_examples):
            counted = [
                [part for part, has in zip(parts, has_examples, strict=True) if has]
                or [nothing_like(parts[0])]
                for parts in values
            ]
        bytes_per_pack, timeout_secs = self._heeded(options)
        totals, count = self.workers.add_up_counted(
            self._added_up(counted, destinations),
            sum(has_examples),
            "reduce",
            bytes_per_pack,
            timeout_secs,
        )
        # Where nobody has examples all count: the model goes on with numbers as ever, and the step
        # is not made.
        if not count:
            everyone = (True,) * len(has_examples)
            return self._reduced(op, values, everyone, destinations, options)
        pairs = [(moved(t, d), d) for t, d in zip(totals, destinations, strict=True)]
        if op is ReduceOp.SUM:
            return [total for total, _ in pairs]
        return [_divided(total, count, device) for total, device in pairs]

    def _heeded(self, options: CommunicationOptions | None) -> tuple[int, float | None]:
        """What counts of the options of one reduction: the size of packs, and a time if given."""
        if options is None:
            return self.bytes_per_pack, None
        if replace(options, bytes_per_pack=0, timeout_seconds=None) != CommunicationOptions():
            text = (
                "Of the options of one reduction only bytes_per_pack and timeout_seconds count; %s."
            )
            log_once(logging.WARNING, text, GIVE_ALL)
        return options.bytes_per_pack or self.bytes_per_pack, options.timeout_seconds

    def _added_up(
        self, values: Sequence[Sequence[Summand]], destinations: Sequence[Device]
    ) -> list[Summand]:
        """The sum of each value's parts on its destination."""
        sums: list[Any] = [None] * len(values)
        dense = []
        for index, (parts, destination) in enumerate(zip(values, destinations, strict=True)):
            if any(isinstance(part, IndexedSlices) for part in parts):
                with destination.use():
                    sums[index] = add_up([moved(part, destination) for part in parts])
            else:
                dense.append((index, summands(parts), destination))
        if dense:
            indexes, arrays, devices = zip(*dense, strict=True)
            reduced = self.cross_device_ops.batch_reduce(arrays, devices)
            for index, total in zip(indexes, reduced, strict=True):
                sums[index] = total
        return sums

    def _spread(self, result: Summand) -> list[Summand]:
        """`result` for the first replica, on whose device it is, and copies for the others."""
        others = self.replica_devices[1:]
        if not isinstance(result, IndexedSlices):
            return [result, *self.cross_device_ops.broadcast(result, others)]
        copies = zip(
            self.cross_device_ops.broadcast(result.values, others),
            self.cross_device_ops.broadcast(result.indices, others),
            strict=True,
        )
        return [result, *(IndexedSlices(v, i, result.dense_shape) for v, i in copies)]


def _divided(total: Summand, count: float, device: Device) -> Summand:
    with device.use():
        if isinstance(total, IndexedSlices):
            means = mean_of(total.values, count)
            return IndexedSlices(means, total.indices, total.dense_shape)
        return mean_of(total, count)
