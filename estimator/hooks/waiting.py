"""A hook that lets a worker begin later than others."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ...strategies import get_or_create_global_step
from ...training import Session, SessionRunContext, SessionRunHook

_logger = logging.getLogger("paceline")

_POLL_SECS = 0.5
_SECS_BETWEEN_LINES = 60.0
_SECS_WITHOUT_PROGRESS = 60.0


class GlobalStepWaiterHook(SessionRunHook):
    """Lets a trainer of parameter servers begin when the others have made some steps.

    The chief waits for nobody. Where the global step stands still for a minute, the wait is over,
    with a warning: the others may have ended, or wait for this trainer.

    Args:
        wait_until_step: The global step from which on it takes part.
        clock, sleep: Of the `time` module.

    Raises:
        ValueError: When training begins: all workers make every step together.
    """

    def __init__(
        self,
        wait_until_step: int,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._until = wait_until_step
        self._clock = clock
        self._sleep = sleep
        self._has_waited = False

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        if self._until > 0 and session.strategy.extended.is_synchronous:
            raise ValueError(
                f"GlobalStepWaiterHook({self._until}): with {session.strategy!r} all workers make "
                f"every step together, and nobody makes one while this worker waits; leave it out"
            )

    def before_run(self, run_context: SessionRunContext) -> None:
        session = run_context.session
        if not self._has_waited and not session.strategy.extended.job.is_chief:
            self._wait(session)
        self._has_waited = True

    def _wait(self, session: Session) -> None:
        step, moved_at, told_at = session.global_step, self._clock(), -_SECS_BETWEEN_LINES
        while step < self._until and not session.stop_requested:
            now = self._clock()
            if now >= told_at + _SECS_BETWEEN_LINES:
                told_at = now
                _logger.info("Waiting for global step %d; it is %d.", self._until, step)
            if now >= moved_at + _SECS_WITHOUT_PROGRESS:
                _logger.warning(
                    "The global step stands at %d for %.0f s: this trainer does not wait for step "
                    "%d any longer.",
                    step,
                    now - moved_at,
                    self._until,
                )
                return
            self._sleep(_POLL_SECS)
            before, step = step, _newest_step(session)
            moved_at = self._clock() if step > before else moved_at


def _newest_step(session: Session) -> int:
    """The global step, with the steps that others have made meanwhile."""
    session.strategy.extended.job.refresh()
    with session.store.building():
        return int(get_or_create_global_step().value_in(0))
