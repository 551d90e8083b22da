"""A server and its clients in one process: the same code over queues, for tests."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from typing import final

from ..in_process import in_process_link_pair
from ..link import Link
from ..members import Member
from .client import Connection
from .frames import DEFAULT_MAX_FRAME_BYTES, Client, Handler, Session
from .presence import Presence
from .service import Service
from .timing import DEFAULT_TIMEOUT_SECS
from .wire import Wire

_JOB_ID = "in process"
_JOIN_SECS = 5.0


@final
class InProcessServer:
    """Serves clients that are threads of this process.

    Args:
        handler: Answers requests; see `serve` for this and the next three.
        on_joined: Told who has joined.
        on_lost: Told who was lost.
        on_left: Told who has left.
        server: The server's name.
        timeout_secs: How long a message may stand still, and the default wait for a reply.
        max_frame_bytes: What is larger is not received.

    Attributes:
        server: Its name.
        incarnation: A random id.
    """

    def __init__(
        self,
        handler: Handler,
        *,
        on_joined: Callable[[Client], None] = lambda client: None,
        on_lost: Callable[[Client, str], None] = lambda client, reason: None,
        on_left: Callable[[Client], None] = lambda client: None,
        server: Member | None = None,
        timeout_secs: float = DEFAULT_TIMEOUT_SECS,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self.server = server or Member(0, "ps 0")
        self.incarnation = secrets.token_hex(16)
        self._handler = handler
        self._presence = Presence(on_joined, on_lost, on_left)
        self._timeout_secs = timeout_secs
        self._max_frame_bytes = max_frame_bytes
        self._session = Session.of(_JOB_ID, self.incarnation)
        self._services: list[Service] = []
        self._threads: list[threading.Thread] = []

    def connect(self, client: Client) -> Connection:
        """Return a connection for ``client``."""
        near, far = in_process_link_pair()
        self._presence.admit(client, "")
        service = Service(self._wire(far, self.server, client), client, self._handler)
        thread = threading.Thread(
            target=self._serve, args=(service,), name="paceline-ps-serve", daemon=True
        )
        self._services.append(service)
        thread.start()
        self._threads.append(thread)  # who closes meanwhile may join it
        wire = self._wire(near, client, self.server)
        return Connection(wire, self.server, self.incarnation, timeout_secs=self._timeout_secs)

    def close(self, reason: str = "") -> None:
        """Say goodbye to all, or why not."""
        self._presence.close()
        for service in self._services:
            service.dismiss(reason)
        for thread in self._threads:
            thread.join(_JOIN_SECS)

    def _serve(self, service: Service) -> None:
        self._presence.join(service.client)
        self._presence.end(service.client, service.run())

    def _wire(self, link: Link, me: Member, other: Member) -> Wire:
        return Wire(
            link,
            me,
            other,
            self._session,
            health=None,
            timeout_secs=self._timeout_secs,
            spin_secs=0.0,
            max_frame_bytes=self._max_frame_bytes,
        )
