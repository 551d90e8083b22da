"""Synchronous training on several workers, each with one or more devices."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass

from ..cluster import ClusterError, ClusterResolver, MPIClusterResolver, job_id, resolve
from ..collectives import DEFAULT_TIMEOUT_SECS, Communicator, Member
from .cross_device_ops import CrossDeviceOps, ReductionToOneDevice
from .devices import HOST, Device, list_devices
from .devices import resolve as resolve_devices
from .extended import StrategyExtended
from .strategy import Strategy

_logger = logging.getLogger("paceline")


class CommunicationImplementation(enum.Enum):
    """How workers talk to each other."""

    AUTO = "AUTO"
    """MPI under mpirun, RING elsewhere."""
    RING = "RING"
    """gRPC for control; shared memory, TCP or gRPC streams for arrays."""
    MPI = "MPI"
    """mpi4py; the workers are the ranks of one `mpirun`."""

    @classmethod
    def parse(cls, value: CommunicationImplementation | str) -> CommunicationImplementation:
        """One of them from itself or from its name in any case.

        Raises:
            ValueError: There is none of this name.
        """
        if isinstance(value, CommunicationImplementation):
            return value
        if isinstance(value, str) and value.upper() in cls.__members__:
            return cls[value.upper()]
        raise ValueError(
            f"communication must be one of {', '.join(cls.__members__)}, not {value!r}"
        )


@dataclass(frozen=True, kw_only=True)
class CommunicationOptions:
    """How workers talk to each other.

    Args:
        implementation: By what.
        timeout_seconds: How long a worker may keep the others waiting; > 0.
        start_timeout_secs: How long to wait for all workers at the start; > 0.
    """

    implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO
    timeout_seconds: float = DEFAULT_TIMEOUT_SECS
    start_timeout_secs: float = 600.0

    def __post_init__(self) -> None:
        CommunicationImplementation.parse(self.implementation)
        for name in ("timeout_seconds", "start_timeout_secs"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be > 0, it is {getattr(self, name)}")


class MultiWorkerMirroredStrategy(Strategy):
    """One replica per device of every worker; every variable has a copy on each, kept equal.

    Every worker runs the same program. Making the strategy joins the workers and waits for all of
    them. A process that is alone, or that evaluates beside the workers, trains with its own
    replicas only.

    Args:
        communication: The same as `communication_options.implementation`.
        cluster_resolver: Who the workers are; by default what the launcher says (TF_CONFIG,
            mpirun, Slurm, torchrun).
        communication_options: How they talk to each other.
        devices: This worker's devices; by default all GPUs, or the host. All workers have equally
            many.
        cross_device_ops: How the arrays of one worker's devices are added up.

    Raises:
        ClusterError: The cluster has parameter servers, or a description that makes no sense.
        CollectiveError: Not all workers came in time, or they do not fit together.
    """

    def __init__(
        self,
        communication: CommunicationImplementation | str | None = None,
        cluster_resolver: ClusterResolver | None = None,
        communication_options: CommunicationOptions | None = None,
        devices: Sequence[str] | None = None,
        cross_device_ops: CrossDeviceOps | None = None,
    ) -> None:
        options = communication_options or CommunicationOptions()
        implementation = CommunicationImplementation.parse(communication or options.implementation)
        self._resolver = cluster_resolver or resolve(os.environ)
        found: Sequence[str | Device] = devices if devices is not None else list_devices("GPU")
        resolved = resolve_devices(found or [HOST])
        communicator = join_workers(self._resolver, implementation, options)
        ops = cross_device_ops or ReductionToOneDevice()
        super().__init__(StrategyExtended(resolved, resolved, ops, communicator))
        self._check_device_counts()
        _logger.info(
            "Using %r: worker %d of %d, %d replicas in all.",
            self,
            self.extended.worker_index,
            self.extended.num_workers,
            self.num_replicas_in_sync,
        )

    @property
    def cluster_resolver(self) -> ClusterResolver:
        return self._resolver

    def _check_device_counts(self) -> None:
        counts = self.extended.workers.gather_numbers(
            self.extended.num_local_replicas, "number of devices"
        )
        if len(set(counts)) > 1:
            named = ", ".join(f"worker {i} has {n}" for i, n in enumerate(counts))
            raise ClusterError(f"all workers need equally many devices, but {named}")


def join_workers(
    resolver: ClusterResolver,
    implementation: CommunicationImplementation,
    options: CommunicationOptions,
) -> Communicator | None:
    """The communicator of the training tasks; None for a task that is alone or does not train.

    Raises:
        ClusterError: The cluster has parameter servers.
        CollectiveError: Not all workers came in time.
    """
    spec, task = resolver.cluster_spec(), resolver.task
    tasks = spec.training_tasks()
    if spec.num_tasks("ps"):
        raise ClusterError(
            "the cluster has parameter servers (ps), which MultiWorkerMirroredStrategy does not "
            "use; leave them out"
        )
    by_mpi = implementation is CommunicationImplementation.MPI
    if by_mpi or (
        implementation is CommunicationImplementation.AUTO
        and isinstance(resolver, MPIClusterResolver)
    ):
        from ..collectives.mpi import mpi_communicator  # needs an MPI to be installed

        world = mpi_communicator(
            expected_size=len(spec.tasks()) or None, timeout_secs=options.timeout_seconds
        )
        # All ranks take part in this, also one that evaluates.
        part = world.split(int(task in tasks), world.rank)
        return part if task in tasks and part.size > 1 else None
    if task is None or task not in tasks or len(tasks) < 2:
        return None
    from ..collectives.ring import connect_ring

    members = [Member(i, str(t), spec.address(t)) for i, t in enumerate(tasks)]
    return connect_ring(
        members,
        tasks.index(task),
        job_id=job_id(spec),
        timeout_secs=options.timeout_seconds,
        start_timeout_secs=options.start_timeout_secs,
    )
