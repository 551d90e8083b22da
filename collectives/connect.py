"""One way to a communicator, for programs with loops of their own."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Literal

from ..cluster import (
    ClusterError,
    ClusterResolver,
    MPIClusterResolver,
    Task,
    job_id,
    job_token,
    resolve,
)
from .communicator import DEFAULT_SILENCE_SECS, DEFAULT_TIMEOUT_SECS, Communicator
from .in_process import threads
from .leaving import choose_exit_code
from .link import DEFAULT_LINKS, LinkKind
from .members import Member

Transport = Literal["auto", "mpi", "ring"]


def connect(
    resolver: ClusterResolver | None = None,
    *,
    transport: Transport = "auto",
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
    start_timeout_secs: float = 600.0,
    links: Sequence[LinkKind] = DEFAULT_LINKS,
    bind_host: str | None = None,
    token: str | None = None,
) -> Communicator:
    """Return a communicator over the processes of this job, when all of them have come.

    Whoever started this process says which they are, by environment variables: TF_CONFIG,
    torchrun, mpirun, srun, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. A process that nobody
    started as part of a job is alone, with a communicator of one rank: the same program runs with
    any number of processes. All of them call this, once.

    Args:
        resolver: Who is in the job; by default what the environment says.
        transport: "mpi", "ring" (shared memory, TCP or gRPC streams), or "auto": MPI under mpirun,
            RING elsewhere. RING needs no MPI to be installed, also under mpirun on one machine.
        timeout_secs: How long a rank that gives signs of life may keep the others waiting.
        silence_secs: How long a rank may give no sign of life before it is lost.
        start_timeout_secs: How long to wait for the others to come.
        links: What RING may use for arrays between two ranks, best first.
        bind_host: Where RING listens, if not at this task's own address.
        token: The job's secret for RING between machines; by default that of PACELINE_TOKEN or of
            the file that PACELINE_TOKEN_FILE names.

    Raises:
        ClusterError: What the environment says makes no sense, or this process has no part in it.
        RendezvousError: The others have not come (RING; MPI aborts the job).
        ImportError: There is no MPI, and it was asked for.
    """
    if transport not in ("auto", "mpi", "ring"):
        raise ValueError(f"transport must be 'auto', 'mpi' or 'ring'; found {transport!r}")
    choose_exit_code()
    resolver = resolver or resolve()
    spec = resolver.cluster_spec()
    if transport == "mpi" or (transport == "auto" and isinstance(resolver, MPIClusterResolver)):
        from .mpi import mpi_communicator  # needs an MPI to be installed

        communicator = mpi_communicator(
            tasks=[str(task) for task in spec.tasks()] or None,
            expected_size=len(spec.tasks()) or None,
            silence_secs=silence_secs,
            start_timeout_secs=start_timeout_secs,
        )
        communicator.timeout_secs = timeout_secs
        return communicator
    tasks = spec.training_tasks()
    if len(tasks) < 2:
        return threads(1, timeout_secs)[0]
    from .session import connect_ring  # loads gRPC

    return connect_ring(
        [Member(rank, str(task), spec.address(task)) for rank, task in enumerate(tasks)],
        _rank_of(resolver, tasks),
        job_id=job_id(spec),
        token=token or job_token(os.environ),
        timeout_secs=timeout_secs,
        silence_secs=silence_secs,
        start_timeout_secs=start_timeout_secs,
        links=links,
        bind_host=bind_host,
    )


def _rank_of(resolver: ClusterResolver, tasks: Sequence[Task]) -> int:
    """Return this process's position among those that a communicator joins."""
    if resolver.task not in tasks:
        raise ClusterError(
            f"{resolver.describe()}; a communicator joins the chief and the workers: "
            "call collectives.connect() in these only"
        )
    if not resolver.cluster_spec().address(tasks[0]):
        raise ClusterError(
            f"{resolver.source} does not tell the address of {tasks[0]}, where the others come "
            "together: set MASTER_ADDR and MASTER_PORT, or TF_CONFIG, or start the job with mpirun"
        )
    return tasks.index(resolver.task)
