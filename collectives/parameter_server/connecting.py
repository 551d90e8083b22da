"""How a trainer comes to a connection over a network."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from ..errors import LinkBroken
from ..link import ALL_LINKS, LinkKind
from ..members import Member
from ..ring._grpc import Channel, StreamError
from ..ring.errors import RendezvousError
from ..ring.frames import (
    FrameError,
    VersionError,
)
from ..ring.handshake import RefusedError, check_terms
from ..ring.host import parse_address
from ..ring.negotiation import KIND_NAMES
from .client import Connection
from .frames import DEFAULT_MAX_FRAME_BYTES, Session
from .joining import Joining, SlowError
from .pair import client_identity
from .timing import (
    DEFAULT_SILENCE_SECS,
    DEFAULT_SPIN_SECS,
    DEFAULT_START_TIMEOUT_SECS,
    DEFAULT_TIMEOUT_SECS,
)
from .wire import Wire

_RETRY_SECS = 0.2

_log = logging.getLogger("paceline")


def connect(
    server: Member,
    me: Member,
    *,
    job_id: str,
    token: str | None = None,
    links: Sequence[LinkKind] = ALL_LINKS,
    timeout_secs: float = DEFAULT_TIMEOUT_SECS,
    silence_secs: float = DEFAULT_SILENCE_SECS,
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
        timeout_secs: How long to wait for a reply, or for a message to go on, while the server
            gives signs of life.
        silence_secs: A server that gives none for longer is lost.
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
        joining = _keep_trying(
            lambda deadline: Joining(channel, identity, silence_secs, deadline),
            server,
            me,
            start_timeout_secs,
            report_secs,
            report,
        )
    except BaseException:
        channel.close()
        raise
    if joining.picked.why:
        kind = KIND_NAMES[joining.picked.kind]
        _log.info("%s to %s (%s)", kind, server, joining.picked.why)
    wire = Wire(
        joining.picked.link,
        me,
        server,
        Session.of(job_id, joining.incarnation),
        health=joining.line,
        timeout_secs=timeout_secs,
        spin_secs=spin_secs,
        max_frame_bytes=max_frame_bytes,
    )
    return Connection(
        wire,
        server,
        joining.incarnation,
        timeout_secs=timeout_secs,
        health=joining.line,
        on_close=joining.close,
    )


def _keep_trying(
    join: Callable[[float], Joining],
    server: Member,
    me: Member,
    timeout_secs: float,
    report_secs: float,
    report: Callable[[str], None],
) -> Joining:
    started = time.monotonic()
    report_at = report_secs
    problem = ""
    while True:
        try:
            return join(started + timeout_secs)
        except RefusedError as error:
            if error.is_final:
                raise RendezvousError(f"{me} cannot join {server}: that {error}") from None
            problem = str(error)
        except VersionError as error:
            raise RendezvousError(
                f"{me} cannot join {server}: that {error}; install one version everywhere"
            ) from None
        except SlowError:
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
