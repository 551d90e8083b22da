"""A parameter server's end of all connections over a network: who is there, and what they ask."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from ...cluster import is_loopback
from ..communicator import DEFAULT_SILENCE_SECS, DEFAULT_TIMEOUT_SECS
from ..errors import LinkError
from ..link import DEFAULT_LINKS, LinkKind
from ..members import Member
from ..session import (
    DEFAULT_START_TIMEOUT_SECS,
    Endpoint,
    Frame,
    FrameError,
    Identity,
    RefusedError,
    Session,
    SessionHandler,
    TurnedAway,
    check_is_private,
    local_ip,
)
from .frames import DEFAULT_MAX_FRAME_BYTES, Client, ConnectionId, RequestHandler
from .service import LEFT, Ending, Service
from .wire import Wire

MAX_CONNECTIONS = 8
"""Of one client: it has one, and another one while it saves."""

_FAREWELL_SECS = 2.0
_JOIN_SECS = 5.0

_log = logging.getLogger("paceline")


def serve(
    me: Member,
    handler: RequestHandler,
    *,
    job_id: str,
    token: str | None = None,
    links: Sequence[LinkKind] = DEFAULT_LINKS,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
    bind_host: str | None = None,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    report: Callable[[str], None] = _log.warning,
) -> Serving:
    """Listen at this server's address and answer what clients ask, until closed.

    Clients may come at any time, leave, be lost and come back. A process has its rank for itself:
    another one that claims it is told to wait until the first is gone.

    Args:
        me: This server; its address is "host:port".
        handler: Answers them, and is told who comes and goes.
        job_id: The job's name. A client of another job is turned away.
        token: The job's secret. It never travels: each side proves that it has it. Data is not
            encrypted.
        links: What to use for messages, best first.
        timeout_secs: How long a client that gives signs of life may stop in a message.
        silence_secs: A client that gives none for longer is lost.
        bind_host: Where to listen if that is not the host in this server's address.
        max_frame_bytes: Whoever sends a longer request is cut off.
        report: Told about callers who do not belong here.

    Raises:
        ValueError: The arguments make no sense, or there is no token and should be one.
        RendezvousError: The port is in use.
    """
    ip = local_ip(me, bind_host, DEFAULT_START_TIMEOUT_SECS)
    check_is_private(me, ip, token)
    identity = Identity(
        me=me,
        job_id=job_id,
        token=token or "",
        links=tuple(links),
        is_bound_to_loopback=is_loopback(ip),
    )
    return Serving(identity, ip, handler, silence_secs, timeout_secs, max_frame_bytes, report)


@dataclass
class _Process:
    """A client's process, with as many connections as it likes to have."""

    client: Client
    incarnation: str
    num_connections: int = 0
    has_joined: bool = False


@final
class Clients:
    """Which clients are there: says who comes and goes, one thing at a time.

    Args:
        handler: Is told of the first connection of a client's process, and of the end of its last.
    """

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._lock = threading.RLock()
        self._processes: dict[int, _Process] = {}
        self._is_closed = False

    @property
    def present(self) -> tuple[Client, ...]:
        """Who is there now, by rank."""
        with self._lock:
            processes = [self._processes[rank] for rank in sorted(self._processes)]
            return tuple(process.client for process in processes if process.has_joined)

    def admit(self, client: Client, incarnation: str) -> None:
        """Note that a connection is being made.

        Raises:
            RefusedError: Another process has this rank, or it has too many connections, or it is
                too late.
        """
        with self._lock:
            if self._is_closed:
                raise RefusedError("has come too late", is_final=False)
            process = self._processes.get(client.rank)
            if process is None:
                process = self._processes[client.rank] = _Process(client, incarnation)
            if (process.incarnation, process.client) != (incarnation, client):
                raise RefusedError("is already there as another process", is_final=False)
            if process.num_connections >= MAX_CONNECTIONS:
                raise RefusedError(f"has {MAX_CONNECTIONS} connections already", is_final=False)
            process.num_connections += 1

    def join(self, client: Client) -> None:
        """Note that a connection is there."""
        with self._lock:
            process = self._processes[client.rank]
            if not process.has_joined and not self._is_closed:
                process.has_joined = True
                _call(self._handler.joined, client)

    def end(self, client: Client, ending: Ending) -> None:
        """Note that a connection has ended, or was not made after all; once for each `admit`."""
        with self._lock:
            process = self._processes[client.rank]
            process.num_connections -= 1
            if process.num_connections:
                return
            del self._processes[client.rank]
            if not process.has_joined or self._is_closed:
                return
            if ending.has_left:
                _call(self._handler.left, client)
            else:
                _call(self._handler.lost, client, ending.reason)

    def close(self) -> None:
        """Take nobody in and tell nothing from now on."""
        with self._lock:
            self._is_closed = True


def _call(tell: Callable[..., None], *about: object) -> None:
    try:
        tell(*about)
    except Exception:
        _log.exception("what a parameter server's owner does about %s failed", about[0])


@final
class Serving(SessionHandler):
    """A server that listens; made by `serve`."""

    def __init__(
        self,
        identity: Identity,
        ip: str,
        handler: RequestHandler,
        silence_secs: float,
        timeout_secs: float,
        max_frame_bytes: int,
        report: Callable[[str], None],
    ) -> None:
        self._me = identity.me
        self._id = ConnectionId.of(identity.job_id, identity.incarnation)
        self._handler = handler
        self._clients = Clients(handler)
        self._timeout_secs = timeout_secs
        self._max_frame_bytes = max_frame_bytes
        self._shares_memory = "shm" in identity.links
        self._turned_away = TurnedAway(report)
        self._lock = threading.Lock()
        self._connections: dict[Session, _ClientConnection] = {}
        self._endpoint = Endpoint(identity, self, silence_secs=silence_secs, ip=ip)

    @property
    def clients(self) -> tuple[Client, ...]:
        """Who is there now, by rank."""
        return self._clients.present

    def admit(self, session: Session) -> None:
        self._clients.admit(session.peer, session.hello.incarnation)
        connection = _ClientConnection(session, self._clients, self._open)
        with self._lock:
            self._connections[session] = connection
        connection.thread.start()

    def receive(self, session: Session, frame: Frame) -> None:
        raise FrameError(f"a {type(frame).__name__} frame out of place")

    def ended(self, session: Session) -> None:
        with self._lock:
            connection = self._connections.pop(session)
        connection.end(_ending_of(session))

    def turned_away(self, caller: str, error: RefusedError) -> None:
        self._turned_away.add(f"{self._me} turned away {caller}, which {error}")

    def close(self, reason: str = "") -> None:
        """Answer what is under way, say goodbye to all, and release the port.

        Args:
            reason: Why, if something is wrong; all clients are told.
        """
        self._clients.close()
        with self._lock:
            connections = list(self._connections.values())
        # First what is under way, then the goodbye: a client that is told of the end gives its
        # request up.
        deadline = time.monotonic() + _FAREWELL_SECS
        while any(one.is_busy for one in connections) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._endpoint.close(reason)
        for connection in connections:
            connection.end(Ending(has_left=False, reason="this server has ended"))
            connection.thread.join(_JOIN_SECS)

    def _open(self, session: Session) -> Service:
        """What answers the requests of a client, once a link to it is agreed on.

        Raises:
            LinkError: They do not agree on one.
        """
        wire = Wire(
            session.link(),
            self._me,
            session.peer,
            self._id,
            health=session,
            timeout_secs=self._timeout_secs,
            max_frame_bytes=self._max_frame_bytes,
            shares_memory=self._shares_memory,
        )
        return Service(wire, session.peer, self._handler)


def _ending_of(session: Session) -> Ending:
    """What the end of a session says of its client."""
    return LEFT if session.has_left else Ending(has_left=False, reason=session.ended)


@final
class _ClientConnection:
    """A client's session, and the service over its link, in a thread of its own.

    Args:
        session: The session.
        clients: Told when the connection is there, and how it has ended.
        open_service: Agrees on the link.
    """

    def __init__(
        self, session: Session, clients: Clients, open_service: Callable[[Session], Service]
    ) -> None:
        self.thread = threading.Thread(target=self._run, name="paceline-ps-serve", daemon=True)
        self._session = session
        self._clients = clients
        self._open_service = open_service
        self._lock = threading.Lock()
        self._is_over = False
        self._service: Service | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._service is not None and self._service.is_busy

    def end(self, ending: Ending) -> None:
        """Close the link. The first ending counts, and what was seen on the link before it.

        While the link is still to be agreed on this is left to the thread that does so: only then
        is it known whether the client had come, who may have gone again at once.
        """
        with self._lock:
            is_opening = self._service is None and threading.current_thread() is not self.thread
            if self._is_over or is_opening:
                return
            self._is_over = True
            if self._service is not None:
                ending = self._service.ending or ending
                self._service.close()
            self._clients.end(self._session.peer, ending)

    def _run(self) -> None:
        try:
            service = self._open_service(self._session)
        except LinkError as error:
            ending = Ending(has_left=False, reason=str(error))
        else:
            with self._lock:  # so that nobody is told that a client has gone before it has come
                self._service = service
                self._clients.join(self._session.peer)
            ending = service.run()
            if self._session.ended and not ending.has_left:  # it may have said why
                ending = _ending_of(self._session)
        self.end(ending)
        self._session.close(ending.reason)
