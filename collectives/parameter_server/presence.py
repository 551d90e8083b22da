"""Which clients are there: each by its process, with as many connections as it likes to have."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import final

from ..ring.handshake import RefusedError
from .frames import Client
from .service import Ending

MAX_CONNECTIONS = 8

_log = logging.getLogger("paceline")


@dataclass
class _Guest:
    """A client's process."""

    client: Client
    incarnation: str
    num_connections: int = 0
    has_joined: bool = field(default=False)


@final
class Presence:
    """Counts the connections of each client and says who comes and goes, one thing at a time.

    Args:
        on_joined: Told when the first connection of a client's process is there.
        on_lost: Told when its last one has ended without a goodbye, and why.
        on_left: Told when its last one has ended with a goodbye.
    """

    def __init__(
        self,
        on_joined: Callable[[Client], None],
        on_lost: Callable[[Client, str], None],
        on_left: Callable[[Client], None],
    ) -> None:
        self._on_joined = on_joined
        self._on_lost = on_lost
        self._on_left = on_left
        self._lock = threading.RLock()
        self._guests: dict[int, _Guest] = {}
        self._is_closed = False

    @property
    def clients(self) -> tuple[Client, ...]:
        """Who is there now, by rank."""
        with self._lock:
            guests = [guest for guest in self._guests.values() if guest.has_joined]
            return tuple(sorted((g.client for g in guests), key=lambda client: client.rank))

    def admit(self, client: Client, incarnation: str) -> None:
        """Note that a connection is being made.

        Raises:
            RefusedError: Another process has this rank, or it has too many connections, or it is
                too late.
        """
        with self._lock:
            if self._is_closed:
                raise RefusedError("has come too late", is_final=False)
            guest = self._guests.get(client.rank)
            if guest is not None and (guest.incarnation, guest.client) != (incarnation, client):
                raise RefusedError("is already there as another process", is_final=False)
            if guest is not None and guest.num_connections >= MAX_CONNECTIONS:
                raise RefusedError(f"has {MAX_CONNECTIONS} connections already", is_final=False)
            if guest is None:
                guest = self._guests[client.rank] = _Guest(client, incarnation)
            guest.num_connections += 1

    def join(self, client: Client) -> None:
        """Note that a connection is there."""
        with self._lock:
            guest = self._guests[client.rank]
            if not guest.has_joined and not self._is_closed:
                guest.has_joined = True
                _call(self._on_joined, client)

    def end(self, client: Client, ending: Ending) -> None:
        """Note that a connection has ended, or was not made after all; once for each `admit`."""
        with self._lock:
            guest = self._guests[client.rank]
            guest.num_connections -= 1
            if guest.num_connections:
                return
            del self._guests[client.rank]
            if not guest.has_joined or self._is_closed:
                return
            if ending.has_left:
                _call(self._on_left, client)
            else:
                _call(self._on_lost, client, ending.reason)

    def close(self) -> None:
        """Take nobody in and tell nothing from now on."""
        with self._lock:
            self._is_closed = True


def _call(tell: Callable[..., None], *about: object) -> None:
    try:
        tell(*about)
    except Exception:
        _log.exception("what a parameter server's owner does about %s failed", about[0])
