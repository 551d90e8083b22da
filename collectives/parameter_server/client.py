"""A trainer's end: what it asks of one parameter server, as objects and as messages.

What can go wrong:

CollectiveError
└── PeerLostError
    └── ServerLost          the server died, ended, is silent, or closed this connection
RefusedRequest              the server is well and says no; the connection lives on
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Generic, NoReturn, Protocol, TypeVar, final

import numpy as np

from ..calls import Call
from ..communicator import MIN_SILENCE_SECS
from ..errors import (
    ClosedError,
    CollectiveError,
    CollectiveTimeoutError,
    PeerLostError,
    RefusedRequest,
)
from ..link import Health
from ..members import Member
from ..session import FrameError
from .frames import Array, FrameKind, Header, Message
from .requests import Body, Verb
from .wire import Wire

R = TypeVar("R", bound=Body)
R_co = TypeVar("R_co", bound=Body, covariant=True)


class ServerLost(PeerLostError):  # noqa: N818  (the name says what happened)
    """The server is gone, or has closed this connection, which is of no use any more."""


class Asks(Protocol[R_co]):
    """A request that is answered by an `R`: see the classes of requests."""

    @property
    def verb(self) -> Verb:
        """Its number."""

    @property
    def reply(self) -> type[R_co]:
        """What it is answered by."""

    def packed(self) -> bytes:
        """Its body."""


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
        return self._kind.unpacked(message.body)


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

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """A new array for values of replies; see `Connection.empty`."""
        return self._connection.empty(shape, dtype)

    def start(
        self, request: Asks[R], arrays: Sequence[Array] = (), into: Sequence[Array] = ()
    ) -> Started[R]:
        """Send a request.

        Args:
            request: One of the classes of requests; its docstring says which arrays go with it.
            arrays: These; they may be changed as soon as this returns.
            into: Where to put the arrays of the reply, in order, where dtype and shape fit; the
                others are made anew.

        Raises:
            ServerLost: The server is gone.
        """
        message = Message(request.verb, request.packed(), arrays)
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


@final
class Connection:
    """A connection to a parameter server. One thread at a time uses it; any may close it.

    Requests to several servers are under way at once when each is started before the first is
    waited for.

    Args:
        wire: Carries the messages; owned from here on.
        server: Who is at the other end.
        incarnation: Of the server's process.
        timeout_secs: How long to wait for the beginning of a reply if the caller does not say.
        health: News of the server, if there are any beyond those of the link.
        on_close: Called once, after the link has been closed.

    Attributes:
        server: The same.
        incarnation: The same: another one means that the server was started anew in between.
        num_sent_bytes: Bytes of bodies and arrays sent so far.
        num_received_bytes: Bytes of bodies and arrays received so far.
    """

    def __init__(
        self,
        wire: Wire,
        server: Member,
        incarnation: str,
        *,
        timeout_secs: float,
        health: Health | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.server = server
        self.incarnation = incarnation
        self.num_sent_bytes = 0
        self.num_received_bytes = 0
        self._wire = wire
        self._timeout_secs = timeout_secs
        self._health = health
        self._on_close = on_close
        self._sequence = 0
        self._pending: Pending | None = None
        self._is_between_messages = True
        self._failure: ServerLost | None = None

    def start(self, request: Message, into: Sequence[Array] = (), what: str = "") -> Pending:
        """Send ``request``, all of it, and return what stands for its reply.

        Args:
            request: Its arrays may be changed as soon as this returns.
            into: Arrays into which those of the reply are received, in this order, where dtype and
                shape fit; the others are made anew.
            what: What it is called in error texts, by default the number of its verb.

        Raises:
            TypeError, ValueError: The request cannot be sent.
            RuntimeError: The reply to the request before has not been waited for.
            ServerLost: The server is gone.
            ClosedError: This connection was closed by ourselves.
        """
        if self._failure is not None:
            raise ServerLost(f"unusable since an earlier failure: {self._failure}")
        if self._pending is not None:
            raise RuntimeError(
                f"the request before this one to {self.server} was not waited for; a connection "
                "carries one request at a time"
            )
        num_bytes = request.num_bytes
        call = _call(what or str(int(request.verb)), num_bytes)
        self._wire.name(call)
        # The reply bears the number: one that belongs to an earlier request is found out.
        self._sequence += 1
        self._is_between_messages = False
        try:
            self._wire.request(self._sequence, request, into)
        except (TypeError, ValueError):
            self._is_between_messages = True  # nothing was sent
            raise
        except ClosedError:
            raise
        except CollectiveError as error:
            self._lose(str(error), error)
        except BaseException:
            self._break()
            raise
        self._is_between_messages = True
        self.num_sent_bytes += num_bytes
        self._pending = Pending(self, call, into)
        return self._pending

    def empty(self, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
        """A new array, of any values, for those of replies: into which they come fastest.

        Once this connection is lost or closed another process may still change it. Whoever reads it
        after that reads the values anew.
        """
        return self._wire.empty(shape, dtype)

    def ask(
        self,
        request: Message,
        into: Sequence[Array] = (),
        timeout_secs: float | None = None,
        what: str = "",
    ) -> Message:
        """`start`, and wait for the reply."""
        return self.start(request, into, what).wait(timeout_secs)

    def close(self) -> None:
        """Say goodbye and close. Never raises; may be called again."""
        if self._wire.is_closed:
            return
        if self._is_between_messages:
            self._wire.say(FrameKind.GOODBYE)
        self._wire.close()
        if self._on_close is not None:
            self._on_close()

    def _finish(self, pending: Pending, timeout_secs: float | None) -> Message:
        """Return the reply to ``pending``, which is the one under way."""
        if self._failure is not None:
            raise ServerLost(f"unusable since an earlier failure: {self._failure}")
        self._wire.name(pending.call)
        header = self._await_header(self._timeout_secs if timeout_secs is None else timeout_secs)
        self._is_between_messages = False
        try:
            reply = self._wire.receive(header, pending.into)
        except ClosedError:
            raise
        except (FrameError, CollectiveError) as error:
            self._lose(self._sent(error), error)
        except BaseException:
            self._break()
            raise
        self._is_between_messages = True
        self._pending = None
        self.num_received_bytes += reply.num_bytes
        return self._unwrapped(header, reply)

    def _await_header(self, timeout_secs: float) -> Header:
        """Return the header of a reply. When none comes in time, the connection is still good."""
        try:
            return self._wire.await_header(timeout_secs)
        except ClosedError:
            raise
        except CollectiveTimeoutError as error:
            # Late, or dead and not given up so far: who says nothing does not think either.
            heard_secs = None if self._health is None else self._health.last_heard(1)
            if heard_secs is not None and heard_secs > MIN_SILENCE_SECS:
                self._lose(str(error), error)
            raise
        except (FrameError, CollectiveError) as error:
            self._lose(self._sent(error), error)

    def _unwrapped(self, header: Header, reply: Message) -> Message:
        if header.kind == FrameKind.CLOSING:
            self._lose(f"{self.server} closed this connection: {_text(reply)}")
        if header.kind == FrameKind.GOODBYE:
            self._lose(f"{self.server} has ended")
        if (
            header.kind not in (FrameKind.REPLY, FrameKind.REFUSAL)
            or header.sequence != self._sequence
        ):
            self._lose(f"{self.server} sent a frame of kind {header.kind} out of place")
        if header.kind == FrameKind.REFUSAL:
            raise _refusal(reply)
        return reply

    def _sent(self, error: Exception) -> str:
        return f"{self.server} sent {error}" if isinstance(error, FrameError) else str(error)

    def _lose(self, reason: str, cause: Exception | None = None) -> NoReturn:
        """Raise that the server is lost; if it has said why before it closed, say that."""
        if isinstance(cause, CollectiveError):
            header = self._wire.header_left_behind()
            if header is not None and header.kind == FrameKind.CLOSING:
                with suppress(FrameError, CollectiveError):
                    said = _text(self._wire.receive(header))
                    reason = f"{self.server} closed this connection: {said}"
        self._failure = ServerLost(reason)
        self._break()
        raise self._failure from cause

    def _break(self) -> None:
        """Close without a goodbye: nobody could tell where the next message begins."""
        self._failure = self._failure or ServerLost(
            f"the connection to {self.server} was interrupted in the middle of a message"
        )
        self._is_between_messages = False
        if self._health is not None:
            self._health.announce(str(self._failure))
        self.close()


@final
class Pending:
    """A request under way. Made by `Connection.start`.

    Attributes:
        call: The request, for error texts.
        into: Where arrays of the reply go.
    """

    def __init__(self, connection: Connection, call: Call, into: Sequence[Array]) -> None:
        self.call = call
        self.into = into
        self._connection = connection
        self._outcome: Message | RefusedRequest | None = None

    def wait(self, timeout_secs: float | None = None) -> Message:
        """Return the reply. May be called again, also after it was in vain.

        Args:
            timeout_secs: How long its beginning may take; by default what the connection says.

        Raises:
            RefusedRequest: The server says no; the connection is still good.
            CollectiveTimeoutError: The server is alive, but has not answered in time.
            ServerLost: The server is gone.
            ClosedError: This connection was closed by ourselves.
        """
        if self._outcome is None:
            try:
                self._outcome = self._connection._finish(self, timeout_secs)
            except RefusedRequest as refusal:
                self._outcome = refusal
        if isinstance(self._outcome, RefusedRequest):
            raise self._outcome
        return self._outcome


@lru_cache(maxsize=256)  # the same in each step
def _call(what: str, num_bytes: int) -> Call:
    return Call("request", what, num_bytes=num_bytes)


def _refusal(reply: Message) -> RefusedRequest:
    try:
        said = json.loads(reply.body)
        return RefusedRequest(str(said["text"]), str(said["kind"]))
    except (ValueError, KeyError, TypeError):
        return RefusedRequest(_text(reply) or "it gave no reason", "")


def _text(message: Message) -> str:
    return bytes(message.body).decode(errors="replace")
