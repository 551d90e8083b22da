"""When somebody who gives no sign of life is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import final

HEARTBEAT_SECS = 1.0
# Two heartbeats may be late on a busy machine; a longer gap means that this process stood still.
_MAX_TICK_SECS = 2.5 * HEARTBEAT_SECS


@final
class AwakeClock:
    """Seconds for which this process has been running; those for which it was stopped do not count.

    A process that was stopped (SIGSTOP, a debugger, a laptop that sleeps) has heard of nobody
    meanwhile. That is no silence of the others: they are lost only if they say nothing while
    somebody listens. One thread calls `tick` every `HEARTBEAT_SECS`; any thread asks.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # Both in one object, which other threads see whole: the seconds up to a tick, and the tick.
        self._latest = 0.0, clock()

    def tick(self) -> None:
        self._latest = self.now(), self._clock()

    def now(self) -> float:
        secs, ticked_at = self._latest
        return secs + min(self._clock() - ticked_at, _MAX_TICK_SECS)
