"""Who calls at this member's port: streams that are open, and how their first message is taken.

Anybody can open a stream and say nothing. Until it has proved that it belongs here a caller has
little time, there are few of its kind, and those that have said nothing go first, so that strangers
cannot keep members from coming in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import final

from ._grpc import Stream, StreamError
from .frames import Frame, FrameError, VersionError, decode, encode
from .handshake import STRANGER, RefusedError, refusal

HANDSHAKE_SECS = 2.0
"""How long a caller may take to prove who it is."""
CALL_SECS = 10.0
"""How long calling somebody may take, with a connection that has to be made first."""

# Each member of a large job may call twice at the same time, and all from one address.
_STRANGERS, _STRANGERS_A_MEMBER, _MAX_STRANGERS = 64, 2, 256
_ADDRESSES = 4
_REPORT_SECS = 60.0


def max_streams(num_members: int) -> int:
    """Return how many streams a server of a job of so many members lets in at the same time."""
    return 8 * num_members + 16 + _ADDRESSES * _max_strangers(num_members)


def _max_strangers(num_members: int) -> int:
    return min(_MAX_STRANGERS, _STRANGERS + _STRANGERS_A_MEMBER * num_members)


@final
class OpenStreams:
    """The streams that are open, and who is at their other end, as far as that is known.

    Args:
        num_members: How many members may call.
    """

    def __init__(self, num_members: int) -> None:
        self._max_strangers = _max_strangers(num_members)
        self._changed = threading.Condition()
        self._ranks: dict[Stream, int | None] = {}
        # When the handshake must have ended; who has said nothing comes before who has.
        self._handshakes: dict[Stream, float] = {}

    @contextmanager
    def tracking(self, stream: Stream, limit_secs: float = HANDSHAKE_SECS) -> Iterator[None]:
        """Know of ``stream`` while it is open; its handshake may take ``limit_secs``."""
        with self._changed:
            self._ranks[stream] = None
            self._handshakes[stream] = time.monotonic() + limit_secs
            crowd_out = self._crowded_out(stream)
        for other in crowd_out:
            other.cancel()
        try:
            yield
        finally:
            with self._changed:
                self._ranks.pop(stream, None)
                self._handshakes.pop(stream, None)
                self._changed.notify_all()

    def hear(self, stream: Stream) -> None:
        """Note that a stranger has said something: others have to go before it."""
        with self._changed:
            if stream in self._handshakes:
                self._handshakes[stream] = self._handshakes.pop(stream)

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

    def _crowded_out(self, stream: Stream) -> list[Stream]:
        """Return those that have to go because ``stream`` has come from the same address."""
        strangers = [other for other in self._handshakes if other.peer_ip == stream.peer_ip]
        return strangers[: max(0, len(strangers) - self._max_strangers)]


@final
class TurnedAway:
    """Reports callers who do not belong here, at most once a minute, with how many more there were.

    Args:
        report: Is told.
        clock: What tells seconds.
    """

    def __init__(
        self, report: Callable[[str], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._clock = clock
        self._lock = threading.Lock()
        self._reported_at = float("-inf")
        self._num_others = 0

    def add(self, text: str) -> None:
        """Note that somebody was turned away."""
        with self._lock:
            now = self._clock()
            if now - self._reported_at < _REPORT_SECS:
                self._num_others += 1
                return
            others, self._num_others, self._reported_at = self._num_others, 0, now
        self._report(text + (f" ({others} others since the last such line)" if others else ""))


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
        stream.send(encode(refusal(RefusedError(STRANGER, is_final=True))))
    except FrameError as error:
        turn_away(stream.peer_ip, f"sent {error}")
        stream.cancel()
    except StreamError:
        pass  # it went away again
