"""`Channel`: how the trainers and parameter servers of one cluster reach each other."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, final

from ...cluster import ClusterResolver, ClusterSpec, MPIClusterResolver, Task, job_id, job_token
from ...collectives import DEFAULT_TIMEOUT_SECS, Member
from ...collectives.parameter_server import Client, Connection, Handler
from ..communication import (
    CommunicationImplementation,
    CommunicationOptions,
    pick_implementation,
)


class Serving(Protocol):
    """A server that answers until it is closed."""

    def close(self) -> None:
        """Answer what is under way, and hang up."""


class Channel(ABC):
    """The ways between the tasks of a job, seen from one of them.

    Args:
        spec: Who is in the job.
        task: This one.

    Attributes:
        trainers: Those who train, by rank.
        servers: Those who keep variables, by index.
        rank: This task's number, among the trainers or among the servers.
    """

    def __init__(self, spec: ClusterSpec, task: Task) -> None:
        tasks = spec.training_tasks()
        servers = [Task("ps", index) for index in range(spec.num_tasks("ps"))]
        self.trainers = [Member(i, str(t), spec.address(t)) for i, t in enumerate(tasks)]
        self.servers = [Member(i, str(t), spec.address(t)) for i, t in enumerate(servers)]
        self.rank = tasks.index(task) if task in tasks else task.index

    @abstractmethod
    def connect(self, server: int, timeout_secs: float) -> Connection:
        """A connection from this trainer to a server, which is waited for.

        Raises:
            CollectiveError: It does not come in time.
        """

    @abstractmethod
    def serve(
        self,
        handler: Handler,
        on_joined: Callable[[Client], None],
        on_lost: Callable[[Client, str], None],
        on_left: Callable[[Client], None],
    ) -> Serving:
        """Answer the trainers, as this server, until closed.

        Raises:
            CollectiveError: The port is in use.
        """


@final
class AddressChannel(Channel):
    """Tasks call each other at their addresses.

    Args:
        spec, task: See `Channel`.
        options: Token, kinds of links and timeouts.
    """

    def __init__(self, spec: ClusterSpec, task: Task, options: CommunicationOptions) -> None:
        super().__init__(spec, task)
        self._terms: dict[str, Any] = {
            "job_id": job_id(spec),
            "token": options.token or job_token(os.environ),
            "links": options.links,
            "timeout_secs": options.timeout_seconds or DEFAULT_TIMEOUT_SECS,
        }

    def connect(self, server: int, timeout_secs: float) -> Connection:
        from ...collectives.parameter_server import connect  # loads gRPC

        me = self.trainers[self.rank]
        return connect(self.servers[server], me, start_timeout_secs=timeout_secs, **self._terms)

    def serve(
        self,
        handler: Handler,
        on_joined: Callable[[Client], None],
        on_lost: Callable[[Client, str], None],
        on_left: Callable[[Client], None],
    ) -> Serving:
        from ...collectives.parameter_server import serve  # loads gRPC

        return serve(
            self.servers[self.rank],
            handler,
            on_joined=on_joined,
            on_lost=on_lost,
            on_left=on_left,
            **self._terms,
        )


@final
class MpiChannel(Channel):
    """Tasks are the ranks of one `mpirun`. All of them make one, an evaluator too.

    Args:
        spec, task: See `Channel`.
        options: Timeouts.
    """

    def __init__(self, spec: ClusterSpec, task: Task, options: CommunicationOptions) -> None:
        super().__init__(spec, task)
        self._timeout_secs = options.timeout_seconds or DEFAULT_TIMEOUT_SECS
        self._tasks = [str(t) for t in spec.tasks()]
        self._job = _mpi_job(self._tasks, options.start_timeout_secs)

    def connect(self, server: int, timeout_secs: float) -> Connection:
        connection: Connection = self._job.connect(
            self._tasks.index(self.servers[server].task),
            self.trainers[self.rank],
            timeout_secs=self._timeout_secs,
            start_timeout_secs=timeout_secs,
        )
        return connection

    def serve(
        self,
        handler: Handler,
        on_joined: Callable[[Client], None],
        on_lost: Callable[[Client, str], None],
        on_left: Callable[[Client], None],
    ) -> Serving:
        serving: Serving = self._job.serve(
            handler,
            on_joined=on_joined,
            on_lost=on_lost,
            on_left=on_left,
            timeout_secs=self._timeout_secs,
        )
        return serving


_jobs: list[Any] = []
"""The MPI job that this process belongs to: it has one, also for a second strategy."""


def _mpi_job(tasks: list[str], start_timeout_secs: float) -> Any:
    from ...collectives.parameter_server.mpi import mpi_job  # needs an MPI to be installed

    if not _jobs:
        _jobs.append(
            mpi_job(tasks=tasks, expected_size=len(tasks), start_timeout_secs=start_timeout_secs)
        )
    return _jobs[0]


def channel_of(resolver: ClusterResolver, options: CommunicationOptions) -> Channel:
    """How the tasks of a cluster reach each other.

    Under mpirun all its ranks call this at the same point of the program.

    Raises:
        RuntimeError: There is something wrong with MPI.
    """
    spec, task = resolver.cluster_spec(), resolver.task
    assert task is not None
    implementation, _ = pick_implementation(options.implementation, resolver)
    by_mpi = implementation is CommunicationImplementation.MPI
    if by_mpi and isinstance(resolver, MPIClusterResolver):
        return MpiChannel(spec, task, options)
    return AddressChannel(spec, task, options)
