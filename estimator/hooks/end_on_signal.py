"""The hook by which all workers end at one step when one of them is told to."""

from __future__ import annotations

import logging
from collections.abc import Callable

from .session_run_hook import Session, SessionRunContext, SessionRunHook, SessionRunValues

_logger = logging.getLogger("paceline")


class EndOnSignalHook(SessionRunHook):
    """Ends the run after the step for which a worker has asked all workers to.

    Nobody takes a batch that is not trained on, so that the run can be continued exactly.

    Args:
        signal_name: The name of the signal that has come to this worker, or None.
    """

    def __init__(self, signal_name: Callable[[], str | None]) -> None:
        self._signal_name = signal_name

    def before_run(self, run_context: SessionRunContext) -> None:
        run_context.session.wants_end = self._signal_name() is not None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session: Session = run_context.session
        if session.end_is_agreed:
            who = self._signal_name() or "A signal to another worker"
            _logger.info("%s: the run ends after step %d.", who, session.global_step)
            run_context.request_stop()
