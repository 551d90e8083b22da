"""Steps per second."""

from __future__ import annotations

from collections import deque
from typing import final


@final
class Rate:
    """Turns (step, time) marks into steps per second.

    Args:
        window_secs: how far back the rate looks; 0 means back to the previous mark.
    """

    def __init__(self, window_secs: float = 0.0) -> None:
        if window_secs < 0:
            raise ValueError(f"window_secs must be at least 0; got {window_secs}")
        self._window_secs = window_secs
        self._marks: deque[tuple[int, float]] = deque()

    def update(self, step: int, now: float) -> float | None:
        """Adds a mark.

        Args:
            step: steps done so far; going back (training restarted) forgets earlier marks.
            now: time in seconds on any clock that does not go back, such as `time.monotonic`.

        Returns:
            Steps per second over the window; None at the first mark, or when no time has passed.
        """
        if self._marks and step < self._marks[-1][0]:
            self._marks.clear()
        self._marks.append((step, now))
        # The oldest mark that is kept is the last one at or before the window's start.
        while len(self._marks) > 2 and self._marks[1][1] <= now - self._window_secs:
            self._marks.popleft()
        first_step, first_time = self._marks[0]
        return (step - first_step) / (now - first_time) if now > first_time else None
