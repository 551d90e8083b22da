"""A parameter server's end of all connections over a network."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import final

from ..errors import LinkBroken
from ..link import ALL_LINKS, LinkKind
from ..members import Member
from ..ring._grpc import Server, Stream
from ..ring.errors import RendezvousError
from ..ring.frames import (
    Accepted,
    Answer,
    Attach,
    Frame,
    FrameError,
    Goodbye,
    Hello,
    Visit,
    decode,
    encode,
)
from ..ring.handshake import RefusedError, answer, check_terms, refuse
from ..ring.host import Address, check_is_private, is_loopback, local_ip, parse_address
from ..ring.negotiation import Guest, Tickets, offer_links
from ..ring.visitors import OpenStreams, attend_to
from .frames import DEFAULT_MAX_FRAME_BYTES, Session
from .line import Line
from .messages import Client, Handler
from .pair import CLIENT, server_identity
from .presence import Presence
from .service import LEFT, Ending, Service
from .timing import DEFAULT_SPIN_SECS, DEFAULT_TIMEOUT_SECS, HEARTBEAT_SECS
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
            goodbye: at once when its process dies, after ``timeout_secs`` of silence. A request of
            it may still be under way.
        on_left: Told of a client when its last connection has ended with a goodbye. These three
            are called one at a time and should soon return.
        token: The job's secret. It never travels: each side proves that it has it. Data is not
            encrypted.
        links: What to use for messages, best first.
        timeout_secs: How long a client may be silent, or stop in the middle of a message.
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
    ip = local_ip(me, bind_host)
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
    token: str | None
    links: tuple[LinkKind, ...]
    timeout_secs: float
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
        self._report = report
        self._reported = ""
        self._tickets = Tickets()
        self._streams = OpenStreams()
        self._lock = threading.Lock()
        self._guests: set[_Guest] = set()
        self._stopping = threading.Event()
        address = str(Address(ip, parse_address(me).port))
        try:
            self._server = Server(address, 8 * max_clients + 16, self._attend)
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
        while any(guest.is_busy for guest in self._all_guests()) and time.monotonic() < deadline:
            time.sleep(0.005)
        self._stopping.set()
        guests = self._all_guests()
        for guest in guests:
            guest.dismiss(reason)
        self._streams.cancel_late((), _FAREWELL_SECS)
        self._server.stop(_FAREWELL_SECS)
        for thread in (self._heart, *(guest.thread for guest in guests)):
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)

    def _all_guests(self) -> list[_Guest]:
        with self._lock:
            return list(self._guests)

    def _keep_alive(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECS):
            self._streams.cancel_overdue()
            for guest in self._all_guests():
                guest.keep_alive()

    def _attend(self, stream: Stream) -> None:
        with self._streams.tracking(stream):
            attend_to(stream, partial(self._begin, stream), self._turn_away)

    def _turn_away(self, ip: str, reason: str) -> None:
        text = f"{self._me} turned away a caller from {ip}, which {reason}"
        if text != self._reported:  # it may try again five times a second
            self._reported = text
            self._report(text)

    def _begin(self, stream: Stream, messages: Iterator[bytes], first: Frame) -> None:
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
        hello = self._make_sure(stream, messages, client)
        try:
            self._presence.admit(client, hello.incarnation)
        except RefusedError as error:
            refuse(stream, error)
            raise
        stream.send(encode(Accepted()))
        self._streams.identify(stream, client.rank)
        kinds = [kind for kind in self._terms.links if kind in hello.links]
        guest = _Guest(client, stream, self._terms.timeout_secs, self._presence)
        guest.begin(partial(self._open, guest, kinds))
        with self._lock:
            self._guests.add(guest)
        if self._stopping.is_set():
            guest.dismiss("")
        guest.attend(messages)
        with self._lock:
            self._guests.discard(guest)

    def _make_sure(self, stream: Stream, messages: Iterator[bytes], client: Client) -> Hello:
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
            answer(stream, messages, identity, hello)
        except ValueError as error:  # its address
            raise FrameError(str(error)) from None
        return hello

    def _open(self, guest: _Guest, kinds: Sequence[LinkKind]) -> Service:
        """Agree with a client on a link; return what answers the requests that come over it.

        Raises:
            LinkBroken: They do not agree.
        """
        host = Guest(CLIENT, guest.ip, guest.line.say, guest.answers)
        picked = offer_links(host, kinds, self._ip, self._tickets)
        wire = Wire(
            picked.link,
            self._me,
            guest.client,
            Session.of(self._terms.job_id, self.incarnation),
            health=guest.line,
            timeout_secs=self._terms.timeout_secs,
            spin_secs=self._terms.spin_secs,
            max_frame_bytes=self._terms.max_frame_bytes,
        )
        return Service(wire, guest.client, self._handler)


@final
class _Guest:
    """A client's connection: its control stream, and the service over its link.

    Attributes:
        client: Who it is.
        ip: From where it has called.
        line: News of it.
        answers: What it says to offers of links; None when it is gone.
        thread: Answers its requests.
    """

    def __init__(
        self, client: Client, stream: Stream, silence_secs: float, presence: Presence
    ) -> None:
        self.client = client
        self.ip = stream.peer_ip
        self.line = Line(stream, silence_secs)
        self.answers: SimpleQueue[Answer | None] = SimpleQueue()
        self.thread = threading.Thread()
        self._stream = stream
        self._presence = presence
        self._lock = threading.Lock()
        self._is_over = False
        self._service: Service | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is under way."""
        return self._service is not None and self._service.is_busy

    def begin(self, open_service: Callable[[], Service]) -> None:
        """Start to agree on a link, and to answer what comes over it."""
        self.thread = threading.Thread(
            target=self._serve, args=(open_service,), name="paceline-ps-serve", daemon=True
        )
        self.thread.start()

    def attend(self, messages: Iterator[bytes]) -> None:
        """Listen to the control stream until it ends."""
        try:
            self.line.attend(messages, self._take)
        finally:
            self.answers.put(None)
            lost = self.line.lost()
            self._end(LEFT if self.line.has_left else Ending(False, lost[1] if lost else ""))

    def keep_alive(self) -> None:
        """Give a sign of life, and look for one."""
        self.line.beat()
        lost = self.line.lost()
        if lost is not None:
            self._end(Ending(has_left=False, reason=lost[1]))
            self._stream.cancel()

    def dismiss(self, reason: str) -> None:
        """Say goodbye, or why not, and close."""
        if reason:
            self.line.announce(reason)
        else:
            self.line.say(Goodbye())
        self._end(Ending(has_left=False, reason="this server has ended"))
        self._stream.finish()

    def _take(self, frame: Frame) -> None:
        if not isinstance(frame, Answer):
            raise FrameError(f"a {type(frame).__name__} frame out of place")
        self.answers.put(frame)

    def _serve(self, open_service: Callable[[], Service]) -> None:
        try:
            service = open_service()
        except LinkBroken as error:
            self._end(Ending(has_left=False, reason=str(error)))
        else:
            if self._join(service):
                self._end(service.run())
            service.close()
        self._stream.finish()

    def _join(self, service: Service) -> bool:
        with self._lock:
            if not self._is_over:
                self._service = service
                self._presence.join(self.client)
            return not self._is_over

    def _end(self, ending: Ending) -> None:
        """Close the link; the first ending counts."""
        with self._lock:
            if self._is_over:
                return
            self._is_over = True
            self._presence.end(self.client, self._close(ending))

    def _close(self, ending: Ending) -> Ending:
        """Close the service; return what says best how all this ended."""
        lost = self.line.lost()
        if self._service is None:
            return ending
        self._service.close()
        if self._service.ending is not None:
            return self._service.ending
        return ending if ending.has_left or lost is None else Ending(False, lost[1])
