"""`Channel`: how the trainers and parameter servers of one cluster reach each other."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, final

from ...cluster import ClusterResolver, Task, job_id, job_token
from ...collectives import DEFAULT_TIMEOUT_SECS, Member
from ...collectives.parameter_server import Client, Connection, Handler, Serving
from ..communication import CommunicationOptions


@final
class Channel:
    """The ways between the tasks of a job, seen from one of them.

    Args:
        resolver: Who is in the job, and which task this is.
        options: How tasks talk to each other.
    """

    def __init__(self, resolver: ClusterResolver, options: CommunicationOptions) -> None:
        spec, task = resolver.cluster_spec(), resolver.task
        assert task is not None
        tasks = spec.training_tasks()
        self._options = options
        self._trainers = [Member(i, str(t), spec.address(t)) for i, t in enumerate(tasks)]
        servers = [Task("ps", index) for index in range(spec.num_tasks("ps"))]
        self._servers = [Member(t.index, str(t), spec.address(t)) for t in servers]
        self._is_trainer = task in tasks
        self._rank = tasks.index(task) if self._is_trainer else task.index
        self._terms: dict[str, Any] = {
            "job_id": job_id(spec),
            "token": options.token or job_token(os.environ),
            "links": options.links,
            "timeout_secs": options.timeout_seconds or DEFAULT_TIMEOUT_SECS,
        }

    @property
    def rank(self) -> int:
        """This task's number, among the trainers or among the servers."""
        return self._rank

    @property
    def num_servers(self) -> int:
        """How many tasks keep variables."""
        return len(self._servers)

    @property
    def num_trainers(self) -> int:
        """How many tasks train."""
        return len(self._trainers)

    @property
    def trainer_names(self) -> list[str]:
        """The trainers by rank."""
        return [member.task for member in self._trainers]

    @property
    def server_names(self) -> list[str]:
        """The servers by index."""
        return [str(member) for member in self._servers]

    def connect(self, server: int, timeout_secs: float) -> Connection:
        """A connection from this trainer to a server, which is waited for.

        Raises:
            CollectiveError: It does not come in time.
        """
        from ...collectives.parameter_server import connect  # starts gRPC

        return connect(
            self._servers[server],
            self._trainers[self._rank],
            start_timeout_secs=timeout_secs,
            **self._terms,
        )

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
        from ...collectives.parameter_server import serve  # starts gRPC

        return serve(
            self._servers[self._rank],
            handler,
            on_joined=on_joined,
            on_lost=on_lost,
            on_left=on_left,
            **self._terms,
        )
