"""`Channel`: how the trainers and parameter servers of one cluster reach each other."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
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
        can_leave_alone: Whether a task may end while the others go on.
        abandon: Told by a server that ends which trainers were lost before.

    Attributes:
        trainers: Those who train, by rank.
        servers: Those who keep variables, by index.
        rank: This task's number, among the trainers or among the servers.
        can_leave_alone, abandon: As given.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        task: Task,
        can_leave_alone: bool = True,
        abandon: Callable[[Sequence[str]], None] = lambda trainers: None,
    ) -> None:
        tasks = spec.training_tasks()
        servers = [Task("ps", index) for index in range(spec.num_tasks("ps"))]
        self.trainers = [Member(i, str(t), spec.address(t)) for i, t in enumerate(tasks)]
        self.servers = [Member(i, str(t), spec.address(t)) for i, t in enumerate(servers)]
        self.can_leave_alone = can_leave_alone
        self.abandon = abandon
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


@dataclass(frozen=True)
class Terms:
    """On what terms the tasks of a job talk to each other.

    Args:
        job_id: The job's name.
        token: Its secret, if it has one.
        options: Kinds of links and timeouts.
    """

    job_id: str
    token: str | None = field(repr=False)
    options: CommunicationOptions

    def for_both_ends(self) -> dict[str, Any]:
        """The arguments that `connect` and `serve` have in common."""
        return {
            "job_id": self.job_id,
            "token": self.token,
            "links": self.options.links,
            "timeout_secs": self.options.timeout_seconds or DEFAULT_TIMEOUT_SECS,
            "silence_secs": self.options.silence_secs,
        }


@final
class AddressChannel(Channel):
    """Tasks call each other at their addresses.

    Args:
        spec, task, can_leave_alone, abandon: See `Channel`.
        terms: On which they talk.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        task: Task,
        terms: Terms,
        can_leave_alone: bool = True,
        abandon: Callable[[Sequence[str]], None] = lambda trainers: None,
    ) -> None:
        super().__init__(spec, task, can_leave_alone, abandon)
        self._terms = terms

    def connect(self, server: int, timeout_secs: float) -> Connection:
        from ...collectives.parameter_server import connect  # loads gRPC

        return connect(
            self.servers[server],
            self.trainers[self.rank],
            start_timeout_secs=timeout_secs,
            **self._terms.for_both_ends(),
        )

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
            bind_host=self._terms.options.bind_host,
            **self._terms.for_both_ends(),
        )


_jobs: list[Any] = []
"""The MPI job that this process belongs to: it has one, also for a second strategy."""


def _mpi_job(spec: ClusterSpec, start_timeout_secs: float) -> Any:
    from ...collectives.parameter_server.mpi import mpi_job  # needs an MPI to be installed

    if not _jobs:
        tasks = spec.tasks()
        servers = [str(task) for task in tasks if task.type == "ps"]
        names = [str(task) for task in tasks]
        _jobs.append(mpi_job(names, servers=servers, start_timeout_secs=start_timeout_secs))
    return _jobs[0]


def _channel_by_mpi(spec: ClusterSpec, task: Task, options: CommunicationOptions) -> Channel:
    """The ranks of one `mpirun` tell each other their addresses. All of them call this."""
    job = _mpi_job(spec, options.start_timeout_secs)
    addresses: dict[str, list[str]] = {}
    for one, member in zip(spec.tasks(), job.members, strict=True):
        addresses.setdefault(one.type, []).append(member.address)
    terms = Terms(job.job_id, job.token, options)
    # When one rank ends early, mpirun ends all of them.
    return AddressChannel(ClusterSpec(addresses), task, terms, False, job.abandon)


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
        return _channel_by_mpi(spec, task, options)
    token = options.token or job_token(os.environ)
    return AddressChannel(spec, task, Terms(job_id(spec), token, options))
