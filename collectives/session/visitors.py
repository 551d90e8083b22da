"""The streams that are open at an endpoint, above all those of callers that nobody knows yet.

Anybody can open a stream and say nothing. Until it has proved that it belongs here a caller has
little time, there are few of its kind, and those that have said nothing go first, so that strangers
cannot keep others from coming in.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection
from typing import final

from .grpc_stream import Stream

SILENCE_SECS = 2.0
"""How long a caller may take to say anything."""
CALL_SECS = 10.0
"""How long calling somebody, and proving who one is, may take: on a busy machine seconds."""

# Each process of a large job may call twice at the same time, and all from one address.
_STRANGERS, _STRANGERS_A_CALLER, _MAX_STRANGERS = 64, 2, 256
_ADDRESSES = 4
_REPORT_SECS = 60.0


def max_streams(max_callers: int) -> int:
    """Return how many streams a server lets in at once at which so many processes may call."""
    return 8 * max_callers + 16 + _ADDRESSES * _max_strangers(max_callers)


def _max_strangers(max_callers: int) -> int:
    return min(_MAX_STRANGERS, _STRANGERS + _STRANGERS_A_CALLER * max_callers)


@final
class OpenStreams:
    """The streams that are open, and by when each has to have shown whose it is.

    Args:
        max_callers: How many processes may call.
    """

    def __init__(self, max_callers: int) -> None:
        self._max_strangers = _max_strangers(max_callers)
        self._changed = threading.Condition()
        self._open: set[Stream] = set()
        # When the handshake must have ended.
        self._handshakes: dict[Stream, float] = {}

    def add(self, stream: Stream, limit_secs: float = SILENCE_SECS) -> None:
        """Know of ``stream``, whose handshake may take ``limit_secs``."""
        with self._changed:
            self._open.add(stream)
            self._handshakes[stream] = time.monotonic() + limit_secs
            # Those with least time left go first: who has said nothing before who has.
            strangers = sorted(
                (other for other in self._handshakes if other.peer_ip == stream.peer_ip),
                key=self._handshakes.__getitem__,
            )
        for other in strangers[: max(0, len(strangers) - self._max_strangers)]:
            other.cancel()

    def remove(self, stream: Stream) -> None:
        """Note that ``stream`` has ended."""
        with self._changed:
            self._open.discard(stream)
            self._handshakes.pop(stream, None)
            self._changed.notify_all()

    def hear(self, stream: Stream) -> None:
        """Note that a stranger has said something: others have to go before it.

        It is given as long as callers wait for an answer. Most likely it is a member whose proof
        takes long on a busy machine, and if not, it goes first among its like when there are many.
        """
        with self._changed:
            if self._handshakes.pop(stream, None) is not None:
                self._handshakes[stream] = time.monotonic() + CALL_SECS

    def identify(self, stream: Stream) -> None:
        """Note that ``stream`` is no stranger's: its handshake has ended."""
        with self._changed:
            self._handshakes.pop(stream, None)

    def cancel_overdue(self, secs: float = 0.0) -> None:
        """Break those whose handshake takes too long, or would within ``secs``."""
        now = time.monotonic() + secs
        with self._changed:
            overdue = [stream for stream, end in self._handshakes.items() if now > end]
        for stream in overdue:
            stream.cancel()

    def cancel_late(self, silent: Collection[Stream], timeout_secs: float) -> bool:
        """Wait until only ``silent`` ones are open; break what still is, and return if any was."""
        with self._changed:
            self._changed.wait_for(lambda: self._open <= {*silent}, timeout_secs)
            late = list(self._open)
        for stream in late:
            stream.cancel()
        return bool(late)


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
