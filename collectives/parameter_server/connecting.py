"""How a trainer comes to a connection over a network."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

from ..errors import LinkBroken
from ..link import ALL_LINKS, LinkKind
from ..members import Member
from ..ring._grpc import Channel, Stream, StreamError
from ..ring.errors import RendezvousError
from ..ring.frames import (
    Attach,
    Frame,
    FrameError,
    Goodbye,
    Linked,
    NoLink,
    Offer,
    VersionError,
    Visit,
    encode,
)
from ..ring.handshake import Identity, RefusedError, call, check_terms
from ..ring.host import parse_address
from ..ring.negotiation import KIND_NAMES, Picked, Taker
from ..ring.streams import StreamLink
from .connection import Connection
from .frames import DEFAULT_MAX_FRAME_BYTES, Session
from .line import Line
from .pair import CLIENT, SERVER, client_identity
from .timing import (
    DEFAULT_SPIN_SECS,
    DEFAULT_START_TIMEOUT_SECS,
    DEFAULT_TIMEOUT_SECS,
    HEARTBEAT_SECS,
)
from .wire import Wire

_HANDSHAKE_SECS = 10.0
_LINK_SECS = 35.0
_RETRY_SECS = 0.2
_FAREWELL_SECS = 2.0
_JOIN_SECS = 5.0

_log = logging.getLogger("paceline")


def connect(
    server: Member,
    me: Member,
    *,
    job_id: str,
    token: str | None = None,
    links: Sequence[LinkKind] = ALL_LINKS,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    start_timeout_secs: float = DEFAULT_START_TIMEOUT_SECS,
    report_secs: float = 10.0,
    report: Callable[[str], None] = _log.warning,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    spin_secs: float = DEFAULT_SPIN_SECS,
) -> Connection:
    """Return a connection to ``server``, for which it waits; several to one server are fine.

    Args:
        server: Its address is "host:port", where `serve` listens.
        me: This trainer: its rank among the trainers, its task, its address if it has one.
        job_id: The job's name; the server's is the same.
        token: The job's secret; the server's is the same. It never travels.
        links: What to use for messages, best first: the first kind that both ends have and that
            works is taken.
        timeout_secs: How long to wait for a reply, or for a message to go on, and how long a server
            may be silent.
        start_timeout_secs: How long to wait for the server to come.
        report_secs: How often to report whom this waits for.
        report: Is told.
        max_frame_bytes: A longer reply is not received.
        spin_secs: How long a wait polls before it sleeps.

    Raises:
        ValueError: The server's address is none.
        RendezvousError: It did not come in time, or one of the two does not take the other.
    """
    check_terms(job_id, links)
    address = str(parse_address(server))
    identity = client_identity(server, me, job_id=job_id, token=token, links=links)
    channel = Channel(address)
    try:
        visit = _keep_trying(
            lambda deadline: _Visit(channel, identity, timeout_secs, deadline),
            server,
            me,
            start_timeout_secs,
            report_secs,
            report,
        )
    except BaseException:
        channel.close()
        raise
    if visit.picked.why:
        kind = KIND_NAMES[visit.picked.kind]
        _log.info("%s to %s (%s)", kind, server, visit.picked.why)
    wire = Wire(
        visit.picked.link,
        me,
        server,
        Session.of(job_id, visit.incarnation),
        health=visit.line,
        timeout_secs=timeout_secs,
        spin_secs=spin_secs,
        max_frame_bytes=max_frame_bytes,
    )
    return Connection(
        wire,
        server,
        visit.incarnation,
        timeout_secs=timeout_secs,
        health=visit.line,
        on_close=visit.close,
    )


def _keep_trying(
    visit: Callable[[float], _Visit],
    server: Member,
    me: Member,
    timeout_secs: float,
    report_secs: float,
    report: Callable[[str], None],
) -> _Visit:
    started = time.monotonic()
    report_at = report_secs
    problem = ""
    while True:
        try:
            return visit(started + timeout_secs)
        except RefusedError as error:
            if error.is_final:
                raise RendezvousError(f"{me} cannot join {server}: that {error}") from None
            problem = str(error)
        except VersionError as error:
            raise RendezvousError(
                f"{me} cannot join {server}: that {error}; install one version everywhere"
            ) from None
        except _SlowError:
            problem = problem or "it does not answer"
        except (StreamError, FrameError, LinkBroken) as error:
            problem = str(error).lower()
        waited_secs = time.monotonic() - started
        text = f"{me} is waiting for {server}: {waited_secs:.3g} s ({problem})"
        if waited_secs >= timeout_secs:
            raise RendezvousError(f"{me} gave up: {text}")
        if waited_secs >= report_at:
            report(text)
            report_at += report_secs
        time.sleep(min(_RETRY_SECS, max(0.0, timeout_secs - waited_secs)))


class _SlowError(Exception):
    """The server has accepted a call, but says nothing in time."""


@final
class _Visit:
    """A client's end of the control stream, and the link that was agreed on over it.

    Args:
        channel: To the server; closed with this if all goes well, else left to be tried again.
        identity: Who we are.
        timeout_secs: How long the server may be silent.
        deadline: When it has to be there (`time.monotonic()`).

    Attributes:
        incarnation: Of the server.
        line: News of the server.
        picked: The link.

    Raises:
        RefusedError: One side does not take the other.
        StreamError, FrameError, LinkBroken: It did not come about.
        _SlowError: The server says nothing.
    """

    def __init__(
        self, channel: Channel, identity: Identity, timeout_secs: float, deadline: float
    ) -> None:
        self._channel = channel
        self._data_channel: Channel | None = None
        self._address = parse_address(identity.members[SERVER])
        self._threads: list[threading.Thread] = []
        self._changed = threading.Condition()
        self._found: Picked | None = None
        self._no_link = ""
        self._stopping = threading.Event()
        self._taker = Taker(self._address.host, CLIENT, self._open_data_stream)
        me = identity.members[CLIENT]
        self._stream = stream = channel.open()
        try:
            with _limited(stream, min(deadline, time.monotonic() + _HANDSHAKE_SECS)):
                stream.send(encode(Visit(rank=me.rank, task=me.task, address=me.address)))
                hello, messages = call(stream, identity, SERVER, "join")
        except BaseException:
            stream.cancel()
            raise
        self.incarnation = hello.incarnation
        self.line = Line(stream, timeout_secs)
        self._start("attend", self._attend, messages)
        self._start("heartbeat", self._keep_alive)
        self.picked = self._await_link()

    def close(self) -> None:
        """Say goodbye and wait until the server has heard it, if it is there."""
        self.line.say(Goodbye())
        self._stop(0.0 if self.line.lost() else _FAREWELL_SECS)
        self._channel.close()

    def _stop(self, farewell_secs: float) -> None:
        """End the stream and the threads."""
        self._stopping.set()
        self._stream.finish()
        attending = self._threads[0]
        attending.join(farewell_secs)
        if attending.is_alive():
            self._stream.cancel()
        self._taker.drop()
        if self._data_channel is not None:
            self._data_channel.close()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECS)

    def _start(self, name: str, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(
            target=target, args=arguments, name=f"paceline-ps-{name}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _attend(self, messages: Iterator[bytes]) -> None:
        self.line.attend(messages, self._take)
        with self._changed:
            self._changed.notify_all()

    def _keep_alive(self) -> None:
        while not self._stopping.wait(HEARTBEAT_SECS):
            self.line.beat()

    def _await_link(self) -> Picked:
        with self._changed:
            self._changed.wait_for(
                lambda: self._found or self._no_link or self.line.lost(), _LINK_SECS
            )
            found, lost = self._found, self.line.lost()
        if found is None:
            self._stop(0.0)
            raise LinkBroken(self._no_link or (lost[1] if lost else "no link was agreed on"))
        return found

    def _take(self, frame: Frame) -> None:
        match frame:
            case Offer():
                self.line.say(self._taker.connect(frame))
            case Linked():
                with self._changed:
                    self._found = self._taker.keep(frame)
                    self._changed.notify_all()
            case NoLink():
                with self._changed:
                    self._no_link = f"no link: {frame.reason}"
                    self._changed.notify_all()
            case _:
                raise FrameError(f"a {type(frame).__name__} frame out of place")

    def _open_data_stream(self, ticket: str) -> StreamLink:
        """Open a stream for messages, over a connection that heartbeats need not share."""
        if self._data_channel is None:
            self._data_channel = Channel(str(self._address))
        stream = self._data_channel.open()
        link = StreamLink(stream, iter(stream))
        stream.send(encode(Attach(rank=CLIENT, ticket=ticket)))
        self._start("data", link.pump)
        return link


@contextmanager
def _limited(stream: Stream, deadline: float) -> Iterator[None]:
    """Within it, ``stream`` is broken when time is up.

    Raises:
        _SlowError: It was.
    """
    timer = threading.Timer(max(0.01, deadline - time.monotonic()), stream.cancel)
    timer.daemon = True
    timer.start()
    try:
        yield
    except StreamError:
        if time.monotonic() < deadline:
            raise
        raise _SlowError from None
    finally:
        timer.cancel()
        timer.join()
