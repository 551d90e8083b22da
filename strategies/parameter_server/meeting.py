"""`Meeting`: a trainer's servers, met when they are needed first."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from typing import final

from ..communication import CommunicationOptions
from .channel import Channel
from .servers import Servers


@final
class Meeting:
    """Gives the servers when called, and meets them before.

    Args:
        channel: How they are reached.
        is_chief, is_synchronous, absence_secs: See `Servers`.
        options: Say how long servers may take to start.

    Attributes:
        newest_checkpoint: Gives the path of the newest checkpoint, None without any.
    """

    def __init__(
        self,
        channel: Channel,
        is_chief: bool,
        is_synchronous: bool,
        absence_secs: float,
        options: CommunicationOptions,
    ) -> None:
        self._channel = channel
        self._is_chief = is_chief
        self._is_synchronous = is_synchronous
        self._absence_secs = absence_secs
        self._start_timeout_secs = options.start_timeout_secs
        self._lock = threading.Lock()
        self._servers: Servers | None = None
        self.newest_checkpoint: Callable[[], str | None] = lambda: None

    def __call__(self) -> Servers:
        """The servers.

        Raises:
            CollectiveError: One has not come in time.
        """
        with self._lock:
            if self._servers is None:
                self._servers = Servers(
                    self._channel.connect,
                    [str(server) for server in self._channel.servers],
                    self._is_chief,
                    self._is_synchronous,
                    self._start_timeout_secs,
                    self._absence_secs,
                    lambda: self.newest_checkpoint(),
                )
                atexit.register(self.leave)
            return self._servers

    def leave(self) -> None:
        """Say goodbye; the next call meets them anew."""
        with self._lock:
            servers, self._servers = self._servers, None
        if servers is not None:
            atexit.unregister(self.leave)
            servers.close()
