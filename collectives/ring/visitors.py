"""Who calls at this member's port: streams that are open, and how their first message is taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import final

from ._grpc import Stream, StreamError
from .frames import Frame, FrameError, VersionError, decode
from .handshake import RefusedError, refuse

_HANDSHAKE_SECS = 10.0


@final
class OpenStreams:
    """The streams that are open, and who is at their other end, as far as that is known."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._ranks: dict[Stream, int | None] = {}
        self._handshakes: dict[Stream, float] = {}

    @contextmanager
    def tracking(self, stream: Stream) -> Iterator[None]:
        """Know of ``stream`` while it is open."""
        with self._changed:
            self._ranks[stream] = None
            self._handshakes[stream] = time.monotonic() + _HANDSHAKE_SECS
        try:
            yield
        finally:
            with self._changed:
                self._ranks.pop(stream, None)
                self._handshakes.pop(stream, None)
                self._changed.notify_all()

    def identify(self, stream: Stream, rank: int) -> None:
        """Note that ``rank`` is at the other end of ``stream``: its handshake has ended."""
        with self._changed:
            self._handshakes.pop(stream, None)
            if stream in self._ranks:
                self._ranks[stream] = rank

    def cancel_overdue(self) -> None:
        """Break those whose handshake takes too long."""
        now = time.monotonic()
        with self._changed:
            overdue = [stream for stream, end in self._handshakes.items() if now > end]
        for stream in overdue:
            stream.cancel()

    def cancel_late(self, silent: Collection[int], timeout_secs: float) -> list[Stream]:
        """Wait until only those to ``silent`` ranks are open; break and return what still is."""
        with self._changed:
            self._changed.wait_for(lambda: {*self._ranks.values()} <= {*silent}, timeout_secs)
            late = list(self._ranks)
        for stream in late:
            stream.cancel()
        return late


def attend_to(
    stream: Stream,
    begin: Callable[[Iterator[bytes], Frame], None],
    turn_away: Callable[[str, str], None],
) -> None:
    """Attend to a stream that was opened by somebody until it ends.

    Args:
        stream: The stream.
        begin: Called with what is still to come over it, and the first frame.
        turn_away: Told from which IP address somebody has called who does not belong here, and why.
    """
    messages = iter(stream)
    try:
        begin(messages, decode(next(messages, b"")))
    except RefusedError as error:
        turn_away(stream.peer_ip, str(error))
    except VersionError as error:
        turn_away(stream.peer_ip, str(error))
        refuse(stream, RefusedError(str(error), is_final=True))
    except FrameError as error:
        turn_away(stream.peer_ip, f"sent {error}")
        stream.cancel()
    except StreamError:
        pass  # it went away again
