"""`Fleet`: connections to all servers of a job, of which one that has died is waited for."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias, TypeVar, final

import numpy as np

from ...collectives import CollectiveError
from ...collectives.parameter_server import (
    FAILURE_KEY,
    Asks,
    Connection,
    Done,
    ParameterClient,
    Post,
    RefusedRequest,
    Reply,
    ServerLost,
    Started,
)
from .questions import Question

_logger = logging.getLogger("paceline")

R = TypeVar("R", bound=Reply)

UnderWay: TypeAlias = "dict[int, Started[Any] | ServerLost]"
"""Requests by server; of a server that cannot be asked, why."""


@final
class Fleet:
    """The servers of a job, as ends of connections. One thread at a time uses it.

    Args:
        connect: Makes a connection to the server of an index within so many seconds; called again
            when one has died.
        names: Of the servers, by index.
        start_timeout_secs: How long servers are waited for that have not been started yet.
        absence_secs: How long a server that has died is waited for.
        rejoin: `rejoin(server, is_new)` sees to it that a server that is back can be used; one that
            is new holds nothing.

    Attributes:
        clients: One for each server.
    """

    def __init__(
        self,
        connect: Callable[[int, float], Connection],
        names: Sequence[str],
        start_timeout_secs: float,
        absence_secs: float,
        rejoin: Callable[[int, bool], None],
    ) -> None:
        self._connect = connect
        self._names = names
        self._absence_secs = absence_secs
        self._rejoin = rejoin
        self._has_given_up = False
        self.clients = [
            ParameterClient(connect(index, start_timeout_secs)) for index in range(len(names))
        ]

    @property
    def num_bytes(self) -> int:
        """Bytes sent and received since the connections were made."""
        return sum(client.num_bytes for client in self.clients)

    def ask(self, server: int, request: Asks[R], arrays: Sequence[np.ndarray] = ()) -> R:
        """The reply of one server, however often it dies."""
        while True:
            try:
                return self.clients[server].ask(request, arrays)
            except ServerLost as error:
                self._regain(server, error)

    def tell(self, server: int, request: Asks[R]) -> None:
        """Say something at the end that a server that has died need not know."""
        try:
            self.clients[server].ask(request)
        except ServerLost as error:
            _logger.warning("%s is lost at the end: %s.", self._names[server], error)

    def start(self, questions: Mapping[int, Question]) -> UnderWay:
        """Ask; of a server that cannot be asked, why."""
        started: UnderWay = {}
        for server, asked in questions.items():
            try:
                client = self.clients[server]
                started[server] = client.start(asked.request, asked.arrays, asked.into)
            except ServerLost as error:
                started[server] = error
        return started

    def finish(self, started: UnderWay) -> dict[int, Any]:
        """The replies; servers that give none are back, and filled, when this returns."""
        replies: dict[int, Any] = {}
        lost: dict[int, ServerLost] = {}
        for server, request in started.items():
            if isinstance(request, ServerLost):
                lost[server] = request
                continue
            try:
                replies[server] = request.wait()
            except ServerLost as error:
                lost[server] = error
        for server, reason in lost.items():
            self._regain(server, reason)
        return replies

    def give_up(self, reason: str) -> None:
        """Let the servers that can be reached know why this trainer makes no more steps."""
        if self._has_given_up:
            return
        self._has_given_up = True
        for client in self.clients:
            with suppress(CollectiveError, RefusedRequest):
                client.ask(Post(key=FAILURE_KEY, text=reason))
                client.ask(Done())

    def close(self) -> None:
        """Say goodbye to all."""
        for client in self.clients:
            client.close()

    def _regain(self, server: int, reason: ServerLost) -> None:
        """Wait for a server that has died, and see to it that it has its variables.

        Raises:
            CollectiveError: It does not come back in time, or has lost its variables for good.
        """
        try:
            self._bring_back(server, reason)
        except (CollectiveError, RefusedRequest) as error:
            self.give_up(str(error))
            raise

    def _bring_back(self, server: int, reason: ServerLost) -> None:
        name, before = self._names[server], self.clients[server]
        while True:
            _logger.warning(
                "%s is lost: %s. It is waited for %g s; then this task ends.",
                name,
                reason,
                self._absence_secs,
            )
            before.close()
            client = ParameterClient(self._connect(server, self._absence_secs))
            self.clients[server] = client
            try:
                self._rejoin(server, client.incarnation != before.incarnation)
                return
            except ServerLost as again:
                before, reason = client, again
