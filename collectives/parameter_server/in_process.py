"""A server and its clients in one process: the same code over queues, for tests."""

from __future__ import annotations

import secrets
import threading
from typing import final

from ..communicator import DEFAULT_TIMEOUT_SECS
from ..in_process import in_process_link_pair
from ..link import Link
from ..members import Member
from .client import Connection
from .frames import DEFAULT_MAX_FRAME_BYTES, Client, ConnectionId, RequestHandler
from .service import Service
from .serving import Clients
from .wire import Wire

_JOB_ID = "in process"
_JOIN_SECS = 5.0


@final
class InProcessServer:
    """Serves clients that are threads of this process.

    Args:
        handler: Answers requests, and is told who comes and goes.
        server: The server's name.
        timeout_secs: How long a message may stand still, and the default wait for a reply.
        max_frame_bytes: What is larger is not received.

    Attributes:
        server: Its name.
        incarnation: A random id.
    """

    def __init__(
        self,
        handler: RequestHandler,
        *,
        server: Member | None = None,
        timeout_secs: float = DEFAULT_TIMEOUT_SECS,
        max_frame_bytes: int = DEFAULT_MAX_FRAME_BYTES,
    ) -> None:
        self.server = server or Member(0, "ps 0")
        self.incarnation = secrets.token_hex(16)
        self._handler = handler
        self._clients = Clients(handler)
        self._timeout_secs = timeout_secs
        self._max_frame_bytes = max_frame_bytes
        self._id = ConnectionId.of(_JOB_ID, self.incarnation)
        self._services: list[Service] = []
        self._threads: list[threading.Thread] = []

    def connect(self, client: Client) -> Connection:
        """Return a connection for ``client``."""
        near, far = in_process_link_pair()
        self._clients.admit(client, "")
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
        self._clients.close()
        for service in self._services:
            service.dismiss(reason)
        for thread in self._threads:
            thread.join(_JOIN_SECS)

    def _serve(self, service: Service) -> None:
        self._clients.join(service.client)
        self._clients.end(service.client, service.run())

    def _wire(self, link: Link, me: Member, other: Member) -> Wire:
        return Wire(
            link,
            me,
            other,
            self._id,
            health=None,
            timeout_secs=self._timeout_secs,
            max_frame_bytes=self._max_frame_bytes,
        )
