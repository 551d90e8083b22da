"""How the workers of a job find and reach each other: the options, and the joining itself."""

from __future__ import annotations

import enum
import logging
import os
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

import numpy as np

from ...cluster import (
    MIN_TOKEN_CHARACTERS,
    ClusterError,
    ClusterResolver,
    ClusterSpec,
    MPIClusterResolver,
    Task,
    job_id,
    job_token,
)
from ...collectives import (
    ALL_LINKS,
    DEFAULT_LINKS,
    DEFAULT_SILENCE_SECS,
    DEFAULT_TIMEOUT_SECS,
    MIN_SILENCE_SECS,
    Communicator,
    LinkKind,
    Member,
    choose_exit_code,
)
from ..devices.device import Device, list_devices

if TYPE_CHECKING:
    from .workers import Cards

BYTES_PER_PACK = 4 << 20


_logger = logging.getLogger("paceline")


class CommunicationImplementation(enum.Enum):
    """How workers talk to each other."""

    AUTO = "AUTO"
    """MPI under mpirun, RING elsewhere."""
    RING = "RING"
    """gRPC for control; shared memory, TCP or gRPC streams for arrays."""
    NCCL = "NCCL"
    """NVIDIA's library for gradients on GPUs, one GPU of each worker; all else as under AUTO."""
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
        timeout_seconds: How long a worker that gives signs of life may keep the others waiting, for
            instance because it evaluates or saves; > 0. None stands for the default of 1800 s. A
            wait of 30 s and more is logged, with who is waited for and when this worker gives up.
        silence_secs: How long a worker may give no sign of life, because it was stopped or its
            host is switched off or cut off, before it is taken for lost; at least 3, by the
            default of 20 s. One whose process dies is noticed at once. A call into C that holds
            Python's lock stops heartbeats too: raise this where one takes that long.
        implementation: What carries their arrays, also by its name in any case.
        start_timeout_secs: How long to wait for all workers at the start; > 0.
        overlap: Whether packs travel while backward goes on, or when it has ended, which is faster
            where no core is to spare. None decides by the number of cores for each worker.
        wire_dtype: "float16" sends gradients of float32 and float64 between workers in half the
            bytes or less; they are added up in float16 too, so that results differ by about
            1e-3 of a gradient. Gradients beyond its range (65504) are an error. None sends them
            as they are.
        links: What may carry arrays between two workers under RING, and between a worker and a
            parameter server, best first, of "shm" (memory that processes of one host share), "tcp"
            and "grpc". The first that works is taken. With parameter servers under mpirun there is
            "mpi", too, for networks that MPI knows to use better than TCP does: ("shm", "mpi").
        bind_host: Where RING listens, if that is not the host in this task's own address: "0.0.0.0"
            where the address is that of a gateway or a service, as in Kubernetes.
        token: The job's secret of at least 16 characters, for RING between machines: the same on
            all workers. By default what the environment variable PACELINE_TOKEN, or the file that
            PACELINE_TOKEN_FILE names, holds; `paceline launch` makes such a file.
        gpu_aware_mpi: Whether MPI is given arrays on GPUs as they are. None asks the MPI library,
            and gives it them if it says that it takes them, on all workers; True is for one that
            cannot be asked. A library that does not take them, whatever was said, crashes. False
            lets arrays go through host memory.

    Raises:
        ValueError: One of them is out of its range.
    """

    bytes_per_pack: int = 0
    timeout_seconds: float | None = None
    silence_secs: float = DEFAULT_SILENCE_SECS
    implementation: CommunicationImplementation | str = CommunicationImplementation.AUTO
    start_timeout_secs: float = 600.0
    overlap: bool | None = None
    wire_dtype: str | None = None
    links: Sequence[LinkKind] = DEFAULT_LINKS
    bind_host: str | None = None
    token: str | None = field(default=None, repr=False)
    gpu_aware_mpi: bool | None = None

    def __post_init__(self) -> None:
        CommunicationImplementation.parse(self.implementation)
        if self.bytes_per_pack < 0:
            raise ValueError(f"bytes_per_pack must be at least 0, it is {self.bytes_per_pack}")
        if self.timeout_seconds is not None and not self.timeout_seconds > 0:
            raise ValueError(f"timeout_seconds must be > 0, it is {self.timeout_seconds}")
        if not self.silence_secs >= MIN_SILENCE_SECS:
            raise ValueError(
                f"silence_secs must be at least {MIN_SILENCE_SECS}, it is {self.silence_secs}"
            )
        if not self.start_timeout_secs > 0:
            raise ValueError(f"start_timeout_secs must be > 0, it is {self.start_timeout_secs}")
        if self.wire_dtype not in (None, "float16"):
            raise ValueError(f"wire_dtype must be 'float16' or None, it is {self.wire_dtype!r}")
        if self.gpu_aware_mpi not in (None, True, False):
            raise ValueError(
                f"gpu_aware_mpi must be True, False or None, it is {self.gpu_aware_mpi!r}"
            )
        if not self.links or not set(ALL_LINKS) >= set(self.links):
            known = ", ".join(ALL_LINKS)
            raise ValueError(f"links must be some of {known}, they are {self.links!r}")
        if self.token is not None and len(self.token) < MIN_TOKEN_CHARACTERS:
            raise ValueError(
                f"token must have at least {MIN_TOKEN_CHARACTERS} characters, "
                f"it has {len(self.token)}"
            )

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


def join_cards(
    communicator: Communicator | None, options: CommunicationOptions, device: Device, strict: bool
) -> Cards | None:
    """What moves arrays between the cards of workers that are joined already, if anything does.

    That is NCCL, for who wants it, else an MPI that takes arrays on GPUs.

    Args:
        communicator: Joins the workers.
        options: The same for all of them.
        device: Where this worker adds up its gradients.
        strict: Whether it is an error that one of them is wanted and not to be had.
    """
    if communicator is None:
        return None
    from .gpu_aware_mpi import join_by_mpi  # here: few need these
    from .nccl import join_by_nccl

    found: Cards | None = None
    if _wants_nccl(options):
        found = join_by_nccl(communicator, device, strict, options.wire_dtype)
    wish = options.gpu_aware_mpi
    return found or join_by_mpi(communicator, device, wish, strict, options.wire_dtype)


def _wants_nccl(options: CommunicationOptions) -> bool:
    wish = CommunicationImplementation.parse(options.implementation)
    return wish is CommunicationImplementation.NCCL


@dataclass(frozen=True)
class _World:
    """Whom this process has joined, and as what it was told to."""

    communicator: Communicator
    options: CommunicationOptions


_worlds: dict[Hashable, _World] = {}
"""It has one address among the others, also for a second strategy."""


def join_workers(resolver: ClusterResolver, options: CommunicationOptions) -> Communicator | None:
    """The communicator of the training tasks; None for a task that is alone or does not train."""
    spec, task = resolver.cluster_spec(), resolver.task
    tasks = spec.training_tasks()
    if spec.num_tasks("ps"):
        raise ClusterError(
            "the cluster has parameter servers (ps), which MultiWorkerMirroredStrategy does not "
            "use; leave them out, or pass "
            "RunConfig(train_distribute=ParameterServerStrategy())"
        )
    implementation, why = pick_implementation(options.implementation, resolver)
    if len(tasks) > 1:
        choose_exit_code()
        num_gpus = len(list_devices("GPU"))
        gpus = f"{num_gpus} GPUs" if num_gpus else "no GPU"
        _logger.info("Workers communicate by %s (%s; %s here).", implementation.value, why, gpus)
    if implementation is CommunicationImplementation.MPI:
        joined = _join_by_mpi(resolver, options)
    elif task is None or task not in tasks or len(tasks) < 2:
        joined = None
    else:
        joined = _join_by_ring(spec, tasks, tasks.index(task), options)
    if joined is None and _wants_nccl(options) and not list_devices("GPU"):
        _logger.warning("communication is NCCL, but paceline finds no GPU here.")
    if joined is not None:
        joined.timeout_secs = options.timeout_seconds or DEFAULT_TIMEOUT_SECS
        joined.overlaps = joined.overlaps if options.overlap is None else options.overlap
    return joined


def _join_by_mpi(resolver: ClusterResolver, options: CommunicationOptions) -> Communicator | None:
    """Part the ranks of mpirun into those that train and the others; all of them take part."""
    from ...collectives.mpi import mpi_communicator  # needs an MPI to be installed

    spec, task = resolver.cluster_spec(), resolver.task
    started_by_mpirun = isinstance(resolver, MPIClusterResolver)
    if "MPI" not in _worlds:
        communicator = mpi_communicator(
            tasks=[str(t) for t in spec.tasks()] if started_by_mpirun else None,
            expected_size=len(spec.tasks()) or None,
            silence_secs=options.silence_secs,
            start_timeout_secs=options.start_timeout_secs,
        )
        _worlds["MPI"] = _World(communicator, options)
    world = _shared("MPI", options)
    trains = task in spec.training_tasks()
    part = world.split(int(trains), world.rank)
    return part if trains and part.size > 1 else None


def _join_by_ring(
    spec: ClusterSpec, tasks: Sequence[Task], rank: int, options: CommunicationOptions
) -> Communicator:
    """Join the other training tasks; the first one's address is known to all."""
    from ...collectives.session import connect_ring

    if not spec.address(tasks[0]):
        raise ClusterError(
            f"the launcher does not tell the address of {tasks[0]}, where the others come together "
            f"under RING; set TF_CONFIG with an address for each task, set RANK, WORLD_SIZE, "
            f"MASTER_ADDR and MASTER_PORT, or start the job with mpirun or srun"
        )
    members = [Member(i, str(t), spec.address(t)) for i, t in enumerate(tasks)]
    key = (tuple(members), rank)
    if key in _worlds and not _worlds[key].communicator.failure:
        return _shared(key, options).split(0, rank)
    if key in _worlds:  # a dead one helps nobody: join those who are there now
        _worlds.pop(key).communicator.close()
    world = connect_ring(
        members,
        rank,
        job_id=job_id(spec),
        token=options.token or job_token(os.environ),
        silence_secs=options.silence_secs,
        start_timeout_secs=options.start_timeout_secs,
        links=options.links,
        bind_host=options.bind_host,
    )
    _worlds[key] = _World(world, options)
    return world


def _shared(key: Hashable, options: CommunicationOptions) -> Communicator:
    """What this process has joined before, and a warning of what comes too late to be asked for."""
    usual, joined = CommunicationOptions(), _worlds[key].options
    ignored = [
        name
        for name in ("links", "bind_host", "token", "silence_secs")
        if getattr(options, name) not in (getattr(usual, name), getattr(joined, name))
    ]
    if ignored:
        _logger.warning(
            "CommunicationOptions(%s=...) of a further strategy has no effect: this process has "
            "joined the other workers already; give it to the first strategy.",
            "=..., ".join(ignored),
        )
    return _worlds[key].communicator


def pick_implementation(
    wish: CommunicationImplementation | str, resolver: ClusterResolver
) -> tuple[CommunicationImplementation, str]:
    """What carries the tasks' arrays, MPI or RING, and why."""
    implementation = CommunicationImplementation.parse(wish)
    if implementation in (CommunicationImplementation.RING, CommunicationImplementation.MPI):
        return implementation, "as asked for"
    if isinstance(resolver, MPIClusterResolver):
        return CommunicationImplementation.MPI, "mpirun has started this process"
    return CommunicationImplementation.RING, "no mpirun has started this process"
