"""`Channel`: how the trainers and parameter servers of one cluster reach each other."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, final

from ...cluster import ClusterResolver, ClusterSpec, MPIClusterResolver, Task, job_id, job_token
from ...collectives import DEFAULT_TIMEOUT_SECS, Member, choose_exit_code
from ...collectives.parameter_server import Connection, RequestHandler, Serving, connect, serve
from ..workers.joining import (
    CommunicationImplementation,
    CommunicationOptions,
    pick_implementation,
)


class Channel(ABC):
    """The ways between the tasks of a job, seen from one of them.

    Args:
        spec: Who is in the job.
        task: This one.
        can_leave_alone: Whether a task may end while the others go on.

    Attributes:
        trainers: Those who train, by rank.
        servers: Those who keep variables, by index.
        rank: This task's number, among the trainers or among the servers.
        can_leave_alone: As given.
    """

    def __init__(self, spec: ClusterSpec, task: Task, can_leave_alone: bool = True) -> None:
        tasks = spec.training_tasks()
        servers = [Task("ps", index) for index in range(spec.num_tasks("ps"))]
        self.trainers = [Member(i, str(t), spec.address(t)) for i, t in enumerate(tasks)]
        self.servers = [Member(i, str(t), spec.address(t)) for i, t in enumerate(servers)]
        self.can_leave_alone = can_leave_alone
        self.rank = tasks.index(task) if task in tasks else task.index

    @abstractmethod
    def connect(self, server: int, timeout_secs: float) -> Connection:
        """A connection from this trainer to a server, which is waited for.

        Raises:
            CollectiveError: It does not come in time.
        """

    @abstractmethod
    def serve(self, handler: RequestHandler) -> Serving:
        """Answer the trainers, as this server, until closed.

        Raises:
            CollectiveError: The port is in use.
        """

    @abstractmethod
    def abandon(self, trainers: Sequence[str]) -> None:
        """Note, as a server that ends, which trainers were lost: nobody waits for them any more."""


@final
class AddressChannel(Channel):
    """Tasks call each other at their addresses.

    Args:
        spec, task: See `Channel`.
        job_id, token: The job's name, and its secret if it has one.
        options: Kinds of links and timeouts.
        mpi_job: What has brought the tasks together, if MPI has. When one of its ranks ends early,
            mpirun ends all of them.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        task: Task,
        job_id: str,
        token: str | None,
        options: CommunicationOptions,
        mpi_job: Any = None,
    ) -> None:
        super().__init__(spec, task, can_leave_alone=mpi_job is None)
        self._mpi_job = mpi_job
        self._bind_host = options.bind_host
        self._terms: dict[str, Any] = {  # the same at both ends
            "job_id": job_id,
            "token": token,
            "links": options.links,
            "timeout_secs": options.timeout_seconds or DEFAULT_TIMEOUT_SECS,
            "silence_secs": options.silence_secs,
        }

    def connect(self, server: int, timeout_secs: float) -> Connection:
        me = self.trainers[self.rank]
        return connect(self.servers[server], me, start_timeout_secs=timeout_secs, **self._terms)

    def serve(self, handler: RequestHandler) -> Serving:
        me = self.servers[self.rank]
        return serve(me, handler, bind_host=self._bind_host, **self._terms)

    def abandon(self, trainers: Sequence[str]) -> None:
        if self._mpi_job is not None:
            self._mpi_job.abandon(trainers)


_jobs: list[Any] = []
"""The MPI job that this process belongs to: it has one, also for a second strategy."""


def _mpi_job(spec: ClusterSpec, start_timeout_secs: float) -> Any:
    from ...collectives.parameter_server.mpi import mpi_job  # needs an MPI to be installed

    if not _jobs:
        names = [str(task) for task in spec.tasks()]
        servers = [str(task) for task in spec.tasks() if task.type == "ps"]
        _jobs.append(mpi_job(names, servers=servers, start_timeout_secs=start_timeout_secs))
    return _jobs[0]


def _channel_by_mpi(spec: ClusterSpec, task: Task, options: CommunicationOptions) -> Channel:
    """The ranks of one `mpirun` tell each other their addresses. All of them call this."""
    job = _mpi_job(spec, options.start_timeout_secs)
    addresses: dict[str, list[str]] = {}
    for one, member in zip(spec.tasks(), job.members, strict=True):
        addresses.setdefault(one.type, []).append(member.address)
    return AddressChannel(ClusterSpec(addresses), task, job.job_id, job.token, options, job)


def channel_of(resolver: ClusterResolver, options: CommunicationOptions) -> Channel:
    """How the tasks of a cluster reach each other.

    Under mpirun all its ranks call this at the same point of the program.

    Raises:
        RuntimeError: There is something wrong with MPI.
    """
    choose_exit_code()
    spec, task = resolver.cluster_spec(), resolver.task
    assert task is not None
    implementation, _ = pick_implementation(options.implementation, resolver)
    by_mpi = implementation is CommunicationImplementation.MPI
    if by_mpi and isinstance(resolver, MPIClusterResolver):
        return _channel_by_mpi(spec, task, options)
    return AddressChannel(spec, task, job_id(spec), options.token or job_token(os.environ), options)
