"""A trainer's connections to all servers of a job; a server that has died is waited for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias, TypeVar, final

import numpy as np

from ...collectives import CollectiveError
from ...collectives.parameter_server import (
    FAILURE_KEY,
    Asks,
    Body,
    Done,
    ParameterClient,
    Post,
    RefusedRequest,
    ServerLost,
    Started,
)
from .channel import Channel
from .requests import ServerRequest

_logger = logging.getLogger("paceline")

R = TypeVar("R", bound=Body)

StartedRequests: TypeAlias = "dict[int, tuple[ServerRequest, Started[Any] | ServerLost]]"
"""Requests by server with what stands for the reply; of a server that cannot be asked, why."""


class Rejoiner(Protocol):
    """Makes a server that is back fit to be used."""

    def rejoin(self, server: int, client: ParameterClient, is_new: bool) -> None:
        """Join a server again; one that is new was started anew, and holds nothing."""


@final
class ServerConnections:
    """One connection to each server. One thread at a time uses them.

    Args:
        channel: Makes them; asked again when a server has died.
        start_timeout_secs: How long servers are waited for that have not been started yet.
        absence_secs: How long a server that has died is waited for.
        rejoiner: Is asked when a server is back.

    Attributes:
        clients: One for each server.
        names: Of the servers.
    """

    def __init__(
        self, channel: Channel, start_timeout_secs: float, absence_secs: float, rejoiner: Rejoiner
    ) -> None:
        self.names = [str(server) for server in channel.servers]
        self._channel = channel
        self._absence_secs = absence_secs
        self._rejoiner = rejoiner
        self._has_given_up = False
        self.clients: list[ParameterClient] = []
        try:
            for index in range(len(self.names)):
                self.clients.append(ParameterClient(channel.connect(index, start_timeout_secs)))
        except BaseException:
            self.close()  # a server would count on a trainer that has given up
            raise

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
            _logger.warning("%s is lost at the end: %s.", self.names[server], error)

    def start(self, requests: Mapping[int, ServerRequest]) -> StartedRequests:
        """Ask; of a server that cannot be asked, why."""
        return {server: (asked, self._start(server, asked)) for server, asked in requests.items()}

    def finish(self, started: StartedRequests) -> dict[int, Any]:
        """The replies; servers that give none are back, and filled, when this returns.

        A server that has lived on, and has only lost the connection, is asked again: each request
        can be repeated, and a push that has come already is not applied again.
        """
        replies: dict[int, Any] = {}
        lost: dict[int, ServerLost] = {}
        # Those that are well have answered before anybody is waited for that has died.
        for server, (_, reply) in started.items():
            try:
                replies[server] = _reply(reply)
            except ServerLost as error:
                lost[server] = error
        for server, reason in lost.items():
            again = self._ask_again(server, started[server][0], reason)
            if again is not None:
                replies[server] = again
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

    def _start(self, server: int, asked: ServerRequest) -> Started[Any] | ServerLost:
        try:
            return self.clients[server].start(asked.request, asked.arrays, asked.into)
        except ServerLost as error:
            return error

    def _ask_again(self, server: int, asked: ServerRequest, reason: ServerLost) -> Any | None:
        """The reply of a server that was lost; None if it was started anew, or cannot be asked."""
        while self._regain(server, reason):
            if not asked.is_repeatable:
                _logger.warning(
                    "%s may have missed its part of this step, which cannot be sent again: with "
                    "overlap=True its arrays belong to the next step by now.",
                    self.names[server],
                )
                return None
            try:
                return _reply(self._start(server, asked))
            except ServerLost as again:
                reason = again
        return None

    def _regain(self, server: int, reason: ServerLost) -> bool:
        """Wait for a server that was lost, and see to it that it has its variables.

        Returns:
            Whether it has lived on, and knows all that it has been told.

        Raises:
            CollectiveError: It does not come back in time, or has lost its variables for good.
        """
        incarnation = self.clients[server].incarnation
        try:
            while True:
                try:
                    self._reconnect(server, reason)
                    return self.clients[server].incarnation == incarnation
                except ServerLost as again:  # while it was being filled
                    reason = again
        except (CollectiveError, RefusedRequest) as error:
            self.give_up(str(error))
            raise

    def _reconnect(self, server: int, reason: ServerLost) -> None:
        before = self.clients[server]
        _logger.warning(
            "%s is lost: %s. It is waited for %g s; then this task ends.",
            self.names[server],
            reason,
            self._absence_secs,
        )
        before.close()  # else the server would take the new one for a second connection
        client = ParameterClient(self._channel.connect(server, self._absence_secs))
        self.clients[server] = client
        self._rejoiner.rejoin(server, client, client.incarnation != before.incarnation)


def _reply(started: Started[Any] | ServerLost) -> Any:
    """What a server has answered.

    Raises:
        ServerLost: It could not be asked, or has not answered.
    """
    if isinstance(started, ServerLost):
        raise started
    return started.wait()
