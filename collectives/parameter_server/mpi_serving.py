"""A rank of an MPI job that serves the others."""

from __future__ import annotations

import logging
import secrets
import struct
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any, final

from ..errors import LinkError
from ..members import Member
from ..ring.frames import FrameError, Visit, decode
from ..ring.handshake import RefusedError
from .messages import Client, Handler
from .mpi_link import MpiLink
from .presence import Presence
from .service import Service
from .wire import Wire

# A client knocks with the tag of its link and a Visit frame, and is answered over that link.
KNOCK_TAG, FIRST_TAG = 1, 2
KNOCK = struct.Struct("<I")
ANSWER_BYTES = 256

_LONGEST_PAUSE_SECS = 5e-3
_FAREWELL_SECS = 2.0
_JOIN_SECS = 5.0

_log = logging.getLogger("paceline")


@final
class MpiServing:
    """A rank that serves; made by `MpiJob.serve`.

    Attributes:
        incarnation: A random id.
    """

    def __init__(
        self,
        mpi: Any,
        comm: Any,
        open_wire: Callable[[MpiLink, Member, Member, str], Wire],
        handler: Handler,
        presence: Presence,
    ) -> None:
        self.incarnation = secrets.token_hex(16)
        self._mpi = mpi
        self._comm = comm
        self._open_wire = open_wire
        self._handler = handler
        self._presence = presence
        self._stopping = threading.Event()
        self._services: list[Service] = []
        self._threads = [
            threading.Thread(target=self._listen, name="paceline-ps-listen", daemon=True)
        ]
        self._threads[0].start()

    @property
    def clients(self) -> tuple[Client, ...]:
        """Who is there now, by rank."""
        return self._presence.clients

    def close(self, reason: str = "") -> None:
        """Answer what is under way and say goodbye to all.

        Args:
            reason: Why, if something is wrong; all clients are told.
        """
        if self._stopping.is_set():
            return
        self._presence.close()
        deadline = time.monotonic() + _FAREWELL_SECS
        while any(service.is_busy for service in self._services) and time.monotonic() < deadline:
            time.sleep(_LONGEST_PAUSE_SECS)
        self._stopping.set()
        self._threads[0].join(_JOIN_SECS)
        for service in self._services:
            service.dismiss(reason)
        for thread in self._threads[1:]:
            thread.join(_JOIN_SECS)

    def _listen(self) -> None:
        """Take in whoever knocks."""
        status = self._mpi.Status()
        while not self._stopping.wait(_LONGEST_PAUSE_SECS):
            while self._comm.Iprobe(self._mpi.ANY_SOURCE, KNOCK_TAG, status):
                knock = bytearray(status.Get_count(self._mpi.BYTE))
                self._comm.Recv((knock, self._mpi.BYTE), status.source, KNOCK_TAG)
                try:
                    self._receive(status.source, knock)
                except (FrameError, LinkError, struct.error) as error:
                    _log.warning("rank %d cannot join: %s", status.source, error)

    def _receive(self, source: int, knock: bytearray) -> None:
        (tag,) = KNOCK.unpack_from(knock)
        visit = decode(bytes(knock[KNOCK.size :]))
        if not isinstance(visit, Visit):
            raise FrameError(f"a {type(visit).__name__} frame instead of Visit")
        client = Client(visit.rank, visit.task, visit.address)
        link = MpiLink(self._mpi, self._comm, source, tag)
        deadline = time.monotonic() + _FAREWELL_SECS
        try:
            self._presence.admit(client, str(source))
        except RefusedError as error:
            with closing(link):
                link.send(memoryview(pack_answer("", str(error))), deadline)
            return
        link.send(memoryview(pack_answer(self.incarnation, "")), deadline)
        me = Member(self._comm.rank, "")
        service = Service(
            self._open_wire(link, me, client, self.incarnation), client, self._handler
        )
        thread = threading.Thread(
            target=self._serve, args=(service,), name="paceline-ps-serve", daemon=True
        )
        self._services.append(service)
        self._threads.append(thread)
        thread.start()

    def _serve(self, service: Service) -> None:
        self._presence.join(service.client)
        self._presence.end(service.client, service.run())


def pack_answer(incarnation: str, reason: str) -> bytes:
    """Return the answer to a client that has knocked."""
    return f"{incarnation}\n{reason}".encode()[:ANSWER_BYTES].ljust(ANSWER_BYTES, b"\0")


def unpack_answer(answer: bytes) -> tuple[str, str]:
    """Return the server's incarnation, or why it does not take this client."""
    incarnation, _, reason = answer.rstrip(b"\0").decode(errors="replace").partition("\n")
    return incarnation, reason
