"""A parameter server's end of all connections over a network."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import final

from ..link import ALL_LINKS, LinkKind
from ..members import Member
from ..ring._grpc import Server, Stream
from ..ring.authenticated import AuthenticatedStream
from ..ring.errors import RendezvousError
from ..ring.frames import (
    Accepted,
    Attach,
    Frame,
    FrameError,
    Hello,
    Visit,
    decode,
)
from ..ring.handshake import RefusedError, answer, check_terms, refusal
from ..ring.host import Address, check_is_private, is_loopback, local_ip, parse_address
from ..ring.negotiation import Guest, Tickets, offer_links
from ..ring.visitors import OpenStreams, TurnedAway, attend_to, max_streams
from .caller import Caller
from .frames import DEFAULT_MAX_FRAME_BYTES, Client, Handler, Session
from .pair import CLIENT, server_identity
from .presence import Presence
from .service import Service
from .timing import (
    DEFAULT_SILENCE_SECS,
    DEFAULT_SPIN_SECS,
    DEFAULT_START_TIMEOUT_SECS,
    DEFAULT_TIMEOUT_SECS,
    HEARTBEAT_SECS,
)
from .wire import Wire

_FAREWELL_SECS = 2.0
_JOIN_SECS = 5.0

_log = logging.getLogger("paceline")


def serve(
    me: Member,
    handler: Handler,
    *,
    job_id: str,
    on_joined: Callable[[Client], None],
    on_lost: Callable[[Client, str], None],
    on_left: Callable[[Client], None],
    token: str | None = None,
    links: Sequence[LinkKind] = ALL_LINKS,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
    bind_host: str | None = None,
    allow_unauthenticated: bool = False,
    max_clients: int = 256,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    spin_secs: float = DEFAULT_SPIN_SECS,
    report: Callable[[str], None] = _log.warning,
) -> Serving:
    """Listen at this server's address and answer what clients ask, until closed.

    Clients may come at any time, leave, be lost and come back. A process has its rank for itself:
    another one that claims it is told to wait until the first is gone.

    Args:
        me: This server; its address is "host:port".
        handler: Called with who asks and the request; returns the reply. Each connection has a
            thread of its own, so several calls may be under way at once. What it raises is what the
            client is told.
        job_id: The job's name. A client of another job is turned away.
        on_joined: Told of a client, before its first request, when its process connects.
        on_lost: Told of a client and why it is gone, when its last connection has ended without a
            goodbye: at once when its process dies, after ``silence_secs`` of silence. A request of
            it may still be under way.
        on_left: Told of a client when its last connection has ended with a goodbye. These three
            are called one at a time and should soon return.
        token: The job's secret. It never travels: each side proves that it has it. Data is not
            encrypted.
        links: What to use for messages, best first.
        timeout_secs: How long a client that gives signs of life may stop in a message.
        silence_secs: A client that gives none for longer is lost.
        bind_host: Where to listen if that is not the host in this server's address.
        allow_unauthenticated: Listen where other machines can call even without a token.
        max_clients: More are turned away.
        max_frame_bytes: Whoever sends a longer request is cut off.
        spin_secs: How long a wait polls before it sleeps.
        report: Told about callers who do not belong here and about malformed frames.

    Raises:
        ValueError: The arguments make no sense, or there is no token and should be one.
        RendezvousError: The port is in use.
    """
    check_terms(job_id, links)
    ip = local_ip(me, bind_host, DEFAULT_START_TIMEOUT_SECS)
    if not allow_unauthenticated:
        check_is_private(me, ip, token)
    return Serving(
        me,
        ip,
        handler,
        Presence(on_joined, on_lost, on_left),
        _Terms(
            job_id=job_id,
            token=token,
            links=tuple(links),
            timeout_secs=timeout_secs,
            silence_secs=silence_secs,
            max_frame_bytes=max_frame_bytes,
            spin_secs=spin_secs,
        ),
        max_clients,
        report,
    )


@dataclass(frozen=True)
class _Terms:
    """What holds for all connections; see `serve`."""

    job_id: str
    token: str | None = field(repr=False)
    links: tuple[LinkKind, ...]
    timeout_secs: float
    silence_secs: float
    max_frame_bytes: int
    spin_secs: float


@final
class Serving:
    """A server that listens; made by `serve`.

    Attributes:
        incarnation: A random id; another one after a restart.
    """

    def __init__(
        self,
        me: Member,
        ip: str,
        handler: Handler,
        presence: Presence,
        terms: _Terms,
        max_clients: int,
        report: Callable[[str], None],
    ) -> None:
        self.incarnation = secrets.token_hex(16)
        self._me = me
        self._ip = ip
        self._handler = handler
        self._presence = presence
        self._terms = terms
        self._turned_away = TurnedAway(report)
        self._tickets = Tickets()
        self._streams = OpenStreams(max_clients)
        self._lock = threading.Lock()
        self._callers: set[Caller] = set()
        self._stopping = threading.Event()
        address = str(Address(ip, parse_address(me).port))
        try:
            self._server = Server(address, max_streams(max_clients), self._attend)
        except OSError as error:
            raise RendezvousError(f"{me} cannot listen: {error}") from error
        self._heart = threading.Thread(
            target=self._keep_alive, name="paceline-ps-heartbeat", daemon=True
        )
        self._heart.start()

    @property
    def clients(self) -> tuple[Client, ...]:
        """Who is there now, by rank."""
        return self._presence.clients

    def close(self, reason: str = "") -> None:
        """Answer what is under way, say goodbye to all, and release the port.

        Args:
            reason: Why, if something is wrong; all clients are told.
        """
        if self._stopping.is_set():
            return
        self._presence.close()
        deadline = time.monotonic() + _FAREWELL_SECS
        while any(caller.is_busy for caller in self._all_callers()) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._stopping.set()
        callers = self._all_callers()
        for caller in callers:
            caller.dismiss(reason)
        self._streams.cancel_late((), _FAREWELL_SECS)
        self._server.stop(_FAREWELL_SECS)
        for thread in (self._heart, *(caller.thread for caller in callers)):
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)

    def _all_callers(self) -> list[Caller]:
        with self._lock:
            return list(self._callers)

    def _keep_alive(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECS):
            self._streams.cancel_overdue()
            for caller in self._all_callers():
                caller.keep_alive()

    def _attend(self, stream: Stream) -> None:
        with self._streams.tracking(stream):
            attend_to(stream, partial(self._begin, stream), self._turn_away)

    def _turn_away(self, ip: str, reason: str) -> None:
        self._turned_away.add(f"{self._me} turned away a caller from {ip}, which {reason}")

    def _begin(self, stream: Stream, messages: Iterator[bytes], first: Frame) -> None:
        self._streams.hear(stream)
        match first:
            case Visit():
                self._receive(stream, messages, Member(first.rank, first.task, first.address))
            case Attach():
                link = self._tickets.redeem(first, stream, messages)
                if link is None:
                    raise FrameError("a data stream with a wrong ticket")
                self._streams.identify(stream, first.rank)
                link.pump()
            case _:
                raise FrameError(f"a {type(first).__name__} frame to begin with")

    def _receive(self, stream: Stream, messages: Iterator[bytes], client: Client) -> None:
        """Make sure of a client, and attend to it until its stream ends."""
        hello, authenticated = self._make_sure(stream, messages, client)
        try:
            self._presence.admit(client, hello.incarnation)
        except RefusedError as error:
            authenticated.send(refusal(error))
            raise
        authenticated.send(Accepted())
        self._streams.identify(stream, client.rank)
        kinds = [kind for kind in self._terms.links if kind in hello.links]
        caller = Caller(client, authenticated, self._terms.silence_secs, self._presence)
        caller.begin(partial(self._open, caller, kinds))
        with self._lock:
            self._callers.add(caller)
        if self._stopping.is_set():
            caller.dismiss("")
        caller.attend()
        with self._lock:
            self._callers.discard(caller)

    def _make_sure(
        self, stream: Stream, messages: Iterator[bytes], client: Client
    ) -> tuple[Hello, AuthenticatedStream]:
        hello = decode(next(messages, b""))
        if not isinstance(hello, Hello) or hello.purpose != "join":
            raise FrameError(f"a {type(hello).__name__} frame instead of Hello")
        identity = server_identity(
            self._me,
            client,
            job_id=self._terms.job_id,
            token=self._terms.token,
            links=self._terms.links,
            is_bound_to_loopback=is_loopback(self._ip),
            incarnation=self.incarnation,
        )
        try:
            return hello, answer(stream, messages, identity, hello)
        except ValueError as error:  # its address
            raise FrameError(str(error)) from None

    def _open(self, caller: Caller, kinds: Sequence[LinkKind]) -> Service:
        """Agree with a client on a link; return what answers the requests that come over it.

        Raises:
            LinkBroken: They do not agree.
        """
        host = Guest(
            CLIENT,
            str(caller.client),
            caller.ip,
            caller.line.say,
            caller.answers,
            caller.prove,
        )
        picked = offer_links(host, kinds, self._ip, self._tickets)
        wire = Wire(
            picked.link,
            self._me,
            caller.client,
            Session.of(self._terms.job_id, self.incarnation),
            health=caller.line,
            timeout_secs=self._terms.timeout_secs,
            spin_secs=self._terms.spin_secs,
            max_frame_bytes=self._terms.max_frame_bytes,
        )
        return Service(wire, caller.client, self._handler)
