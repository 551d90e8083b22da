"""How the workers of a job find and reach each other: the options, and the joining itself."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal, TypeAlias

import numpy as np

from ..cluster import ClusterError, ClusterResolver, MPIClusterResolver, job_id, job_token
from ..collectives import DEFAULT_TIMEOUT_SECS, Communicator, Member
from .devices import list_devices

LinkKind: TypeAlias = Literal["shm", "tcp", "grpc"]

BYTES_PER_PACK = 4 << 20

_logger = logging.getLogger("paceline")


class CommunicationImplementation(enum.Enum):
    """How workers talk to each other."""

    AUTO = "AUTO"
    """MPI under mpirun, RING elsewhere."""
    RING = "RING"
    """gRPC for control; shared memory, TCP or gRPC streams for arrays."""
    NCCL = "NCCL"
    """A wish for NVIDIA's library between GPUs; what is not to be had falls back to AUTO."""
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
        bytes_per_pack: Gradients are packed together until they have reached this size, and travel
            while backward goes on to the next pack; the first pack of a step is a quarter of it, so
            that something travels soon. At least 0; 0 stands for 4 MiB. A small number sends each
            gradient on its own, one larger than the model sends all of them at the end.
        timeout_seconds: How long a worker may keep the others waiting; > 0. None stands for the
            default of 30 s.
        implementation: By what.
        start_timeout_secs: How long to wait for all workers at the start; > 0.
        wire_dtype: "float16" sends gradients of float32 and float64 between workers in half the
            bytes or less; they are added up in float16 too, so that results differ by about
            1e-3 of a gradient. Gradients beyond its range (65504) are an error. None sends them
            as they are.
        links: What RING may use for arrays between two workers, best first, of "shm" (memory that
            processes of one host share), "tcp" and "grpc". The first that works is taken.
        token: The job's secret of at least 16 characters, for RING between machines: the same on
            all workers. By default what the environment variable PACELINE_TOKEN holds.

    Raises:
        ValueError: One of them is out of its range.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO
    start_timeout_secs: float = 600.0
    wire_dtype: str | None = None
    links: Sequence[LinkKind] = ("shm", "tcp", "grpc")
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        CommunicationImplementation.parse(self.implementation)
        if self.bytes_per_pack < 0:
            raise ValueError(f"bytes_per_pack must be at least 0, it is {self.bytes_per_pack}")
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise ValueError(f"timeout_seconds must be > 0, it is {self.timeout_seconds}")
        if not self.start_timeout_secs > 0:
            raise ValueError(f"start_timeout_secs must be > 0, it is {self.start_timeout_secs}")
        if self.wire_dtype not in (None, "float16"):
            raise ValueError(f"wire_dtype must be 'float16' or None, it is {self.wire_dtype!r}")
        if not self.links or not {"shm", "tcp", "grpc"} >= set(self.links):
            raise ValueError(f"links must be some of shm, tcp and grpc, they are {self.links!r}")
        if self.token is not None and len(self.token) < 16:
            raise ValueError(f"token must have at least 16 characters, it has {len(self.token)}")

    def merge(self, other: CommunicationOptions) -> CommunicationOptions:
        """These options, with what `other` sets to something else than the default."""
        values = {
            f.name: getattr(other if getattr(other, f.name) != f.default else self, f.name)
            for f in fields(self)
        }
        return CommunicationOptions(**values)

    @property
    def compressed_dtype(self) -> np.dtype[np.float16] | None:
        """`wire_dtype` as NumPy's."""
        return None if self.wire_dtype is None else np.dtype(self.wire_dtype)


def join_workers(resolver: ClusterResolver, options: CommunicationOptions) -> Communicator | None:
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
    timeout_secs = options.timeout_seconds or DEFAULT_TIMEOUT_SECS
    if _takes_mpi(options.implementation, resolver):
        from ..collectives.mpi import mpi_communicator  # needs an MPI to be installed

        world = mpi_communicator(expected_size=len(spec.tasks()) or None, timeout_secs=timeout_secs)
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
        token=options.token or job_token(os.environ),
        timeout_secs=timeout_secs,
        start_timeout_secs=options.start_timeout_secs,
        links=options.links,
    )


def _takes_mpi(wish: CommunicationImplementation | str, resolver: ClusterResolver) -> bool:
    """Whether the workers are to be joined by MPI, and not by a ring of their own."""
    implementation = CommunicationImplementation.parse(wish)
    if implementation is CommunicationImplementation.NCCL:
        missing = "has no NCCL yet" if list_devices("GPU") else "finds no GPU here"
        _logger.warning(
            "communication is NCCL, but paceline %s; arrays travel as under AUTO.", missing
        )
    if implementation in (CommunicationImplementation.RING, CommunicationImplementation.MPI):
        return implementation is CommunicationImplementation.MPI
    by_mpirun = isinstance(resolver, MPIClusterResolver)
    picked = "MPI: mpirun has started" if by_mpirun else "RING: no mpirun has started"
    _logger.info("Communication: AUTO picks %s this process.", picked)
    return by_mpirun
