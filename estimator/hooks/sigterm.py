"""The hook by which all workers end at one step when one of them is told to."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .session_run_hook import Session, SessionRunContext, SessionRunHook, SessionRunValues

_logger = logging.getLogger("paceline")


class SigtermHook(SessionRunHook):
    """Ends the run after the step for which a worker has asked all workers to.

    Nobody takes a batch that is not trained on, so that the run can be continued exactly.

    Args:
        has_come: Whether SIGTERM has come to this worker.
    """

    def __init__(self, has_come: Callable[[], bool]) -> None:
        self._has_come = has_come

    def before_run(self, run_context: SessionRunContext) -> None:
        run_context.session.wants_end = self._has_come()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session: Session = run_context.session
        if session.end_is_agreed:
            where = "" if session.wants_end else " to another worker"
            _logger.info("SIGTERM%s: the run ends after step %d.", where, session.global_step)
            run_context.request_stop()
