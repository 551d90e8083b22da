"""When is it time again: every so many steps, or seconds."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from ...training import Rest

_FEW_STEPS = 10


class SecondOrStepTimer:
    """Says when something that happens every n steps, or every t seconds, is due.

    The first time it is always due, and never twice at one step.

    Args:
        every_secs, every_steps: Exactly one of them, > 0.
        clock: Gives the present time in seconds.

    Attributes:
        every_secs, every_steps: As given.
    """

    def __init__(
        self,
        every_secs: float | None = None,
        every_steps: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if (every_secs is None) == (every_steps is None):
            raise ValueError(
                f"exactly one of every_secs and every_steps must be given, "
                f"they are {every_secs} and {every_steps}"
            )
        if not (every_secs or every_steps or 0) > 0:
            raise ValueError(
                f"every_secs and every_steps must be > 0, they are {every_secs} and {every_steps}"
            )
        self.every_secs = every_secs
        self.every_steps = every_steps
        self._clock = clock
        self._last_step: int | None = None
        self._last_time = 0.0

    def reset(self) -> None:
        """Be due at once, as at the first time."""
        self._last_step = None

    def last_triggered_step(self) -> int | None:
        return self._last_step

    def should_trigger_for_step(self, step: int) -> bool:
        """Whether it is due at `step`."""
        if self._last_step is None:
            return True
        if step == self._last_step:
            return False
        if self.every_steps is not None:
            return step >= self._last_step + self.every_steps
        return self._clock() >= self._last_time + (self.every_secs or 0)

    def rest(self) -> Rest | None:
        """How long it is not due, where steps are global ones; None: it is due in nearly each."""
        if self._last_step is None or (self.every_steps or math.inf) < _FEW_STEPS:
            return None
        if self.every_steps is not None:
            return Rest(step=self._last_step + self.every_steps)
        return Rest(secs=self._last_time + (self.every_secs or 0) - self._clock())

    def update_last_triggered_step(self, step: int) -> tuple[float | None, int | None]:
        """Note that it happened at `step`.

        Returns:
            The seconds and steps since the last time; (None, None) at the first.
        """
        now = self._clock()
        if self._last_step is None:
            elapsed: tuple[float | None, int | None] = (None, None)
        else:
            elapsed = (now - self._last_time, step - self._last_step)
        self._last_time, self._last_step = now, step
        return elapsed
