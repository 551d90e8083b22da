"""A trainer's end: what it asks of one parameter server, as objects and not as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, final

from ..members import Member
from .bodies import as_body
from .connection import Connection, Pending
from .messages import Array, Message
from .verbs import Reply, Verb

R = TypeVar("R", bound=Reply)
R_co = TypeVar("R_co", bound=Reply, covariant=True)


class Asks(Protocol[R_co]):
    """A request that is answered by an `R`: see the classes in `verbs`."""

    @property
    def verb(self) -> Verb:
        """Its number."""

    @property
    def reply(self) -> type[R_co]:
        """What it is answered by."""


@final
class Started(Generic[R]):
    """A request that is under way.

    Args:
        pending: The connection's.
        kind: What the reply is.

    Attributes:
        arrays: Those of the reply, once it has been waited for.
    """

    def __init__(self, pending: Pending, kind: type[R]) -> None:
        self.arrays: Sequence[Array] = ()
        self._pending = pending
        self._kind = kind

    def wait(self, timeout_secs: float | None = None) -> R:
        """The reply.

        Raises:
            RefusedRequest: The server says no.
            ServerLost: It is gone.
            CollectiveTimeoutError: Nothing has come in time; one may wait on.
        """
        message = self._pending.wait(timeout_secs)
        self.arrays = message.arrays
        return self._kind.model_validate_json(message.body)


@final
class ParameterClient:
    """Asks one server. One thread at a time uses it, for one request at a time.

    Several servers are at work at once when a request to each is started before the first is waited
    for.

    Args:
        connection: To the server; owned from here on.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def server(self) -> Member:
        return self._connection.server

    @property
    def incarnation(self) -> str:
        """Another one means that the server was started anew in between, and is empty."""
        return self._connection.incarnation

    @property
    def num_bytes(self) -> int:
        """Bytes of bodies and arrays that went either way."""
        return self._connection.num_sent_bytes + self._connection.num_received_bytes

    def start(
        self, request: Asks[R], arrays: Sequence[Array] = (), into: Sequence[Array] = ()
    ) -> Started[R]:
        """Send a request.

        Args:
            request: One of the classes in `verbs`; its docstring says which arrays go with it.
            arrays: These; they may be changed as soon as this returns.
            into: Where to put the arrays of the reply, in order, where dtype and shape fit; the
                others are made anew.

        Raises:
            ServerLost: The server is gone.
        """
        message = Message(request.verb, as_body(request), arrays)
        pending = self._connection.start(message, into, what=request.verb.name)
        return Started(pending, request.reply)

    def ask(
        self,
        request: Asks[R],
        arrays: Sequence[Array] = (),
        into: Sequence[Array] = (),
        timeout_secs: float | None = None,
    ) -> R:
        """`start`, and wait for the reply; for the connection's time if none is given.

        Raises:
            RefusedRequest, ServerLost, CollectiveTimeoutError: As `Started.wait`.
        """
        return self.start(request, arrays, into).wait(timeout_secs)

    def close(self) -> None:
        """Say goodbye and close the connection."""
        self._connection.close()
