"""The progress of training on a terminal."""

from __future__ import annotations

from typing import Any

from .. import observe
from .hooks import Session, SessionRunContext, SessionRunHook, SessionRunValues


class ProgressHook(SessionRunHook):
    """Draws a bar with steps, rate and loss where the output is a terminal.

    Args:
        last_step: The global step at which training will end; None: unknown.
        start: The global step at which it begins.
    """

    def __init__(self, last_step: int | None, start: int) -> None:
        self._total = None if last_step is None else last_step - start
        self._start = start
        self._bar: observe.Progress | None = None

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._bar = observe.progress(self._total, "train")

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        assert self._bar is not None
        self._bar.update(session.global_step - self._start, loss=session.loss or 0.0)

    def close(self) -> None:
        """Take the bar away, also after an error."""
        if self._bar is not None:
            self._bar.close()
