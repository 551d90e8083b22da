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

UnderWay: TypeAlias = "dict[int, tuple[Question, Started[Any] | ServerLost]]"
"""Requests by server with what stands for the reply; of a server that cannot be asked, why."""


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
        return {server: (asked, self._start(server, asked)) for server, asked in questions.items()}

    def finish(self, under_way: UnderWay) -> dict[int, Any]:
        """The replies; servers that give none are back, and filled, when this returns.

        A server that has lived on, and has only lost the connection, is asked again: each request
        can be repeated, and a push that has come already is not applied again.
        """
        replies: dict[int, Any] = {}
        lost: dict[int, ServerLost] = {}
        for server, (_, started) in under_way.items():
            try:
                replies[server] = _reply(started)
            except ServerLost as error:
                lost[server] = error
        for server, reason in lost.items():
            reply = self._ask_again(server, under_way[server][0], reason)
            if reply is not None:
                replies[server] = reply
        return replies

    def _ask_again(self, server: int, asked: Question, reason: ServerLost) -> Any | None:
        """The reply of a server that was lost; None if it was started anew, or cannot be asked."""
        while self._regain(server, reason):
            if not asked.may_be_repeated:
                _logger.warning(
                    "%s may have missed its part of this step, which cannot be sent again: with "
                    "overlap=True its arrays belong to the next step by now.",
                    self._names[server],
                )
                return None
            try:
                return _reply(self._start(server, asked))
            except ServerLost as again:
                reason = again
        return None

    def _start(self, server: int, asked: Question) -> Started[Any] | ServerLost:
        try:
            return self.clients[server].start(asked.request, asked.arrays, asked.into)
        except ServerLost as error:
            return error

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

    def _regain(self, server: int, reason: ServerLost) -> bool:
        """Wait for a server that has died, and see to it that it has its variables.

        Returns:
            Whether it has lived on, and knows all that it has been told.

        Raises:
            CollectiveError: It does not come back in time, or has lost its variables for good.
        """
        try:
            return self._bring_back(server, reason)
        except (CollectiveError, RefusedRequest) as error:
            self.give_up(str(error))
            raise

    def _bring_back(self, server: int, reason: ServerLost) -> bool:
        name, before = self._names[server], self.clients[server]
        incarnation = before.incarnation
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
                return client.incarnation == incarnation
            except ServerLost as again:
                before, reason = client, again


def _reply(started: Started[Any] | ServerLost) -> Any:
    """What a server has answered.

    Raises:
        ServerLost: It could not be asked, or has not answered.
    """
    if isinstance(started, ServerLost):
        raise started
    return started.wait()
