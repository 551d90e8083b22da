"""An endpoint: all sessions of a process, with one server that listens and one heartbeat."""

from __future__ import annotations

import logging
import math
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import final

from ...cluster import is_loopback
from ..errors import RendezvousError
from ..heartbeats import HEARTBEAT_SECS, AwakeClock
from ..members import Member
from .addresses import Address, parse_address
from .doorkeeper import Doorkeeper
from .frames import Attach, Frame, FrameError, Hello, VersionError, decode, encode
from .grpc_link import DataStreams
from .grpc_stream import Channel, Server, Stream, StreamError
from .handshake import (
    STRANGER,
    AuthenticatedStream,
    Identity,
    RefusedError,
    TermsError,
    UserError,
    answer,
    call,
    check_job_id,
    refusal,
)
from .links import LinkEnds, check_links
from .session import Session, SessionHandler
from .tcp_table import Peer, knows_users, plain_ip, users_at, users_calling
from .visitors import (
    CALL_SECS,
    OpenStreams,
    Strangers,
    max_connections,
    max_strangers,
    max_streams,
    num_open_files,
    raise_file_limit,
)

RETRY_SECS = 0.2
_FAREWELL_SECS = 2.0
_SHORT_FAREWELL_SECS = 0.2
_JOIN_SECS = 5.0

_log = logging.getLogger("paceline")


@final
class Endpoint:
    """The sessions of one process.

    Args:
        identity: Who this process is.
        handler: What it does about its sessions.
        silence_secs: Who gives no sign of life for longer is lost.
        ip: Where to listen, at the port of this process's address; None to listen nowhere.
        max_callers: How many processes may call, about.

    Raises:
        ValueError: The identity names links that nobody knows, or a job without a name.
        RendezvousError: The port cannot be used.
    """

    def __init__(
        self,
        identity: Identity,
        handler: SessionHandler,
        *,
        silence_secs: float,
        ip: str | None = None,
        max_callers: int = 256,
    ) -> None:
        check_job_id(identity.job_id)
        check_links(identity.links)
        self._identity = identity
        self._handler = handler
        self._silence_secs = silence_secs
        self._ip = ip or ""
        self._clock = AwakeClock()
        self._streams = OpenStreams()
        self._data_streams = DataStreams()
        self._lock = threading.Lock()
        self._sessions: dict[Session, Stream] = {}
        self._readers: set[threading.Thread] = set()
        self._stopping = threading.Event()
        self._server: Server | None = None
        self._door: Doorkeeper | None = None
        if ip is not None:
            self._listen(ip, max_callers)
        self._heart = threading.Thread(
            target=self._keep_alive, name="paceline-heartbeat", daemon=True
        )
        self._heart.start()

    def call(self, peer: Member, limit_secs: float = CALL_SECS) -> Session:
        """Open a session with ``peer``, at whose address it should listen; try once.

        Args:
            limit_secs: How long that may take, at most `CALL_SECS`.

        Raises:
            RefusedError: One side does not take the other.
            StreamError: Nobody is there, it does not answer, or it went away.
            FrameError: Whoever is there speaks something else.
        """
        address = parse_address(peer)
        channel = Channel(str(address))
        stream = channel.open()
        limit_secs = min(limit_secs, CALL_SECS)
        deadline = time.monotonic() + limit_secs
        self._streams.add(stream, limit_secs)
        try:
            hello, authenticated = call(stream, self._identity, peer)
            self._check_user_at(address)
            session = self._session(stream, authenticated, peer, hello, address)
        except BaseException as error:
            stream.cancel()
            self._streams.remove(stream)
            channel.close()
            if isinstance(error, StreamError) and time.monotonic() >= deadline:
                raise StreamError("it does not answer") from None
            raise
        reader = threading.Thread(
            target=self._read, args=(session, channel), name="paceline-session", daemon=True
        )
        with self._lock:
            self._readers.add(reader)
        reader.start()
        return session

    def open(
        self,
        peer: Member,
        *,
        timeout_secs: float,
        report_secs: float = 10.0,
        report: Callable[[str], None] = _log.warning,
    ) -> Session:
        """Open a session with ``peer``, for which this waits.

        Args:
            peer: Its address may be a name that is not known yet.
            timeout_secs: How long to wait for it.
            report_secs: How often to report whom this waits for.
            report: Is told.

        Raises:
            RendezvousError: It did not come in time, or one of the two does not take the other.
        """
        me, started, report_at = self._identity.me, time.monotonic(), report_secs
        while True:
            try:
                return self.call(peer, timeout_secs - (time.monotonic() - started))
            except RefusedError as error:
                if error.is_final:
                    raise RendezvousError(f"{me} cannot join {peer}: that {error}") from None
                problem = str(error)
            except VersionError as error:
                raise RendezvousError(f"{me} cannot join {peer}: that {error}") from None
            except (StreamError, FrameError) as error:
                problem = str(error).lower()
            waited_secs = time.monotonic() - started
            text = f"{me} is waiting for {peer}: {waited_secs:.3g} s ({problem})"
            if waited_secs >= timeout_secs:
                raise RendezvousError(f"{me} gave up: {text}")
            if waited_secs >= report_at:
                report(text)
                report_at += report_secs
            if self._stopping.wait(min(RETRY_SECS, timeout_secs - waited_secs)):
                raise RendezvousError(f"{me} has closed its sessions")

    def cancel_calls(self) -> None:
        """Break all handshakes that are under way; whoever waits for one is told."""
        self._streams.cancel_overdue(math.inf)

    def close(self, reason: str = "") -> None:
        """Say goodbye on all sessions, wait until the others have heard it, release the port.

        Args:
            reason: Why, if something is wrong; the others are told.
        """
        with self._lock:
            if self._stopping.is_set():
                return
            self._stopping.set()  # under the lock: no session comes in behind the goodbyes
            sessions = dict(self._sessions)
        for session in sessions:
            session.close(reason)
        # The others are given time to take in what was said; waiting for these would be in vain.
        deaf = [stream for session, stream in sessions.items() if session.is_deaf]
        if self._door is not None:
            self._door.close()
        late = self._streams.cancel_late(deaf, _FAREWELL_SECS)
        if self._server is not None:
            self._server.stop(_SHORT_FAREWELL_SECS if late else _FAREWELL_SECS)
        self._data_streams.close()
        with self._lock:
            threads = [self._heart, *self._readers]
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)

    def _listen(self, ip: str, max_callers: int) -> None:
        me = self._identity.me
        address, max_files = Address(ip, parse_address(me).port), raise_file_limit()
        try:
            self._server = Server(
                str(address),
                max_streams(max_callers),
                self._serve,
                max_connections(max_callers, max_files, num_open_files()),
            )
        except OSError as error:
            raise RendezvousError(f"{me} cannot listen: {error}") from error
        strangers = Strangers[Peer](*max_strangers(max_callers, max_files))
        self._door = Doorkeeper(Peer(ip, address.port), strangers)

    def _keep_alive(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECS):
            self._clock.tick()
            self._streams.cancel_overdue()
            for session in self._all():
                session.keep_alive(self._silence_secs)

    def _session(
        self,
        stream: Stream,
        authenticated: AuthenticatedStream,
        peer: Member,
        hello: Hello,
        called: Address | None,
    ) -> Session:
        """Return the session over a stream, if the handler takes it."""
        ends = LinkEnds(
            caller=hello.rank if called is None else self._identity.me.rank,
            caller_ip=stream.peer_ip,
            ip=self._ip,
            called=called,
            streams=self._data_streams,
        )
        links = self._identity.links
        handler, clock = self._handler, self._clock
        session = Session(
            authenticated, peer, hello, handler, clock, links, ends, self._tell_others
        )
        with self._lock:
            if self._stopping.is_set():
                raise RefusedError("has come too late", is_final=False)
            # Known before it is admitted: a handler may send at once, and `close` may come.
            self._sessions[session] = stream
        self._identify(stream)
        try:
            self._handler.admit(session)
        except RefusedError:
            self._forget(session)
            raise
        return session

    def _identify(self, stream: Stream) -> None:
        """Note that ``stream`` is a member's."""
        self._streams.identify(stream)
        if self._door is not None and stream.peer_ip:  # one that the other end has opened
            self._door.identify(_peer_of(stream))

    def show_stacks(self, why: str) -> None:
        """See `Health`."""
        for session in self._all():
            session.show_stacks(why)

    def _tell_others(self, session: Session, frame: Frame) -> None:
        for other in self._all():
            if other is not session:
                other.send(frame)

    def _all(self) -> list[Session]:
        with self._lock:
            return list(self._sessions)

    def _forget(self, session: Session) -> None:
        with self._lock:
            self._sessions.pop(session, None)

    def _read(self, session: Session, channel: Channel) -> None:
        """Listen to an end that this one has called."""
        stream = self._sessions[session]
        session.listen()
        self._forget(session)
        self._streams.remove(stream)
        channel.close()
        with self._lock:
            self._readers.discard(threading.current_thread())

    def _serve(self, stream: Stream) -> None:
        """Find out who has opened ``stream`` and why; attend to it until it ends."""
        self._streams.add(stream)
        who = f"a caller from {stream.peer_ip}"
        try:
            self._check_user_of(stream)
            self._begin(stream, iter(stream))
        except UserError as error:
            self._handler.turned_away(who, error)
            stream.send(encode(refusal(error)))
        except RefusedError as error:
            self._handler.turned_away(who, error)
        except VersionError as error:
            self._handler.turned_away(who, RefusedError(str(error), is_final=True))
            stream.send(encode(refusal(RefusedError(STRANGER, is_final=True))))
        except FrameError as error:
            self._handler.turned_away(who, RefusedError(f"sent {error}", is_final=True))
            stream.cancel()
        except StreamError:
            pass  # it went away again
        finally:
            self._streams.remove(stream)
            if self._door is not None:
                self._door.forget(_peer_of(stream))

    def _check_user_of(self, stream: Stream) -> None:
        """Check that a caller is a process of this user, if there is no token to ask it for.

        Without a token this end listens where only its own host can call.
        """
        if not self._identity.token and knows_users():
            port = parse_address(self._identity.me).port
            _check_users(users_calling(_peer_of(stream), port))

    def _check_user_at(self, called: Address) -> None:
        """The same for the end that was called: the port may be another user's.

        A name may stand for several addresses: whichever was called, all must be of this user.
        """
        if self._identity.token or not knows_users():
            return
        try:
            found = socket.getaddrinfo(called.host, called.port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise StreamError(str(error)) from None
        ips = {plain_ip(str(info[4][0])) for info in found}
        if local := {ip for ip in ips if is_loopback(ip)}:
            _check_users({user for ip in local for user in users_at(Peer(ip, called.port))})

    def _begin(self, stream: Stream, messages: Iterator[bytes]) -> None:
        first = decode(next(messages, b""))
        self._streams.hear(stream)
        match first:
            case Hello():
                self._receive(stream, messages, first)
            case Attach():
                link = self._data_streams.redeem(first, stream, messages)
                if link is None:
                    raise FrameError("a data stream with a wrong ticket")
                self._identify(stream)
                link.pump()
            case _:
                raise FrameError(f"a {type(first).__name__} frame to begin with")

    def _receive(self, stream: Stream, messages: Iterator[bytes], hello: Hello) -> None:
        """Make sure of a caller, and listen to it until its stream ends."""
        peer = Member(hello.rank, hello.task, hello.address)
        try:
            authenticated = answer(stream, messages, self._identity, hello)
        except TermsError as error:  # it knows the token, so it is whom it says
            self._handler.turned_away(str(peer), error)
            return
        try:
            session = self._session(stream, authenticated, peer, hello, None)
        except RefusedError as error:
            authenticated.send(refusal(error))
            raise
        session.accept()
        session.listen()
        self._forget(session)


def _check_users(users: set[int]) -> None:
    """Raise `UserError` unless the other end is known to be a process of this user."""
    me = os.geteuid()
    if users == {me}:
        return
    others = ", ".join(map(str, sorted(users - {me}))) or "that the system does not tell"
    raise UserError(
        f"is a process of user {others}; without a token only processes of one user may join, here "
        f"of user {me}: set PACELINE_TOKEN to the same secret for all tasks",
        is_final=True,
    )


def _peer_of(stream: Stream) -> Peer:
    return Peer(plain_ip(stream.peer_ip), stream.peer_port)
