"""How a trainer comes to a connection over a network."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import final

from ..communicator import DEFAULT_SILENCE_SECS, DEFAULT_TIMEOUT_SECS
from ..errors import LinkError, RendezvousError
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
)
from .client import Connection
from .frames import DEFAULT_MAX_FRAME_BYTES, ConnectionId
from .wire import Wire

_RETRY_SECS = 0.2

_log = logging.getLogger("paceline")


_drawn: dict[str, str] = {}


def _this_process() -> str:
    """What tells this process from one that had its place before.

    Threads that connect first at the same time draw one each, and all take the same one
    (`setdefault` is one step): a client that has connected with another would seem to have been
    replaced when it connects anew.
    """
    return _drawn.setdefault("process", secrets.token_hex(16))


def connect(
    server: Member,
    me: Member,
    *,
    job_id: str,
    token: str | None = None,
    links: Sequence[LinkKind] = DEFAULT_LINKS,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
    start_timeout_secs: float = DEFAULT_START_TIMEOUT_SECS,
    report_secs: float = 10.0,
    report: Callable[[str], None] = _log.warning,
    max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
) -> Connection:
    """Return a connection to ``server``, for which it waits; several to one server are fine.

    Args:
        server: Its address is "host:port", where `serve` listens.
        me: This trainer: its rank among the trainers, its task, its address if it has one.
        job_id: The job's name; the server's is the same.
        token: The job's secret; the server's is the same. It never travels.
        links: What to use for messages, best first: the first kind that both ends have and that
            works is taken.
        timeout_secs: How long to wait for a reply, or for a message to go on, while the server
            gives signs of life.
        silence_secs: A server that gives none for longer is lost.
        start_timeout_secs: How long to wait for the server to come.
        report_secs: How often to report whom this waits for.
        report: Is told.
        max_frame_bytes: A longer reply is not received.

    Raises:
        ValueError: The server's address is none.
        RendezvousError: It did not come in time, or one of the two does not take the other.
    """
    # An endpoint of its own: a connection can be closed and made anew without regard to others.
    # All of a process count as one client, however, which another process must not replace.
    identity = Identity(
        me=me,
        job_id=job_id,
        token=token or "",
        links=tuple(links),
        incarnation=_this_process(),
    )
    endpoint = Endpoint(identity, _Calls(), silence_secs=silence_secs)
    deadline = time.monotonic() + start_timeout_secs
    try:
        while True:
            left_secs = max(0.0, deadline - time.monotonic())
            session = endpoint.open(
                server, timeout_secs=left_secs, report_secs=report_secs, report=report
            )
            try:
                link = session.link()
                break
            except LinkError as error:  # it may have died just then, and come back
                session.close()
                if time.monotonic() >= deadline:
                    raise RendezvousError(f"{me} gave up waiting for {server}: {error}") from None
            time.sleep(_RETRY_SECS)
    except BaseException:
        endpoint.close()
        raise
    if session.picked is not None and session.picked.why:
        _log.info("%s to %s (%s)", session.picked, server, session.picked.why)
    wire = Wire(
        link,
        me,
        server,
        ConnectionId.of(job_id, session.hello.incarnation),
        health=session,
        timeout_secs=timeout_secs,
        max_frame_bytes=max_frame_bytes,
        shares_memory="shm" in links,
    )
    return Connection(
        wire,
        server,
        session.hello.incarnation,
        timeout_secs=timeout_secs,
        health=session,
        on_close=endpoint.close,
    )


@final
class _Calls(SessionHandler):
    """A trainer has nothing to do about its sessions: their connections look how they are."""

    def admit(self, session: Session) -> None:
        """It was called for."""

    def receive(self, session: Session, frame: Frame) -> None:
        raise FrameError(f"a {type(frame).__name__} frame out of place")

    def ended(self, session: Session) -> None:
        """Whoever waits for a reply is told."""

    def turned_away(self, caller: str, error: RefusedError) -> None:
        """Nobody can call."""
