"""The hook that saves checkpoints, and those who listen to it."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

from .session_run_hook import (
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .timer import SecondOrStepTimer

_logger = logging.getLogger("paceline")


def _nothing_to_wait_for() -> None:
    """What `save` returned from is on disk."""


class CheckpointSaverListener:
    """Told by a `CheckpointSaverHook` about each checkpoint. Write the methods that you need."""

    def begin(self) -> None:
        """The run is about to begin."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """A checkpoint is about to be written."""

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """A checkpoint was written; return True to end the run."""
        return None

    def end(self, session: Session, global_step_value: int) -> None:
        """The run has ended; its last checkpoint is written."""


class CheckpointSaverHook(SessionRunHook):
    """Saves at the start, every so many steps or seconds, and at the end.

    On several workers every one has this hook: all collect the values, since some are only known
    to all together, and save at the same step, which the chief's clock decides. A step whose loss
    was not a finite number is never saved.

    Args:
        save: Writes one checkpoint: `save(step, values, input_states)`, called on every worker. The
            last argument is None at the end: the next run begins its input anew.
        save_secs, save_steps: How often; at most one of them. With neither only at start and end.
        listeners: Told about each checkpoint.
        decides: Whether this worker says when it is time.
        wait: Returns when everything that was saved is on disk. Listeners, who may read it, and
            the end of the run wait for that; steps do not.
        check: Called after each step; raises what has gone wrong with the last save meanwhile.
        prepare: Returns when nothing is being written; the values, also those that others hold, are
            of a moment after that.
    """

    def __init__(
        self,
        save: Callable[[int, dict[str, Any], list[dict[str, Any]] | None], object],
        save_secs: float | None = None,
        save_steps: int | None = None,
        listeners: Sequence[CheckpointSaverListener] = (),
        decides: bool = True,
        wait: Callable[[], None] = _nothing_to_wait_for,
        check: Callable[[], object] = _nothing_to_wait_for,
        prepare: Callable[[], None] = _nothing_to_wait_for,
    ) -> None:
        neither = save_secs is None and save_steps is None
        self._timer = SecondOrStepTimer(math.inf if neither else save_secs, save_steps)
        self._write = save
        self._listeners = tuple(listeners)
        self._decides = decides
        self._wait = wait
        self._check = check
        self._prepare = prepare

    def begin(self) -> None:
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._save(session)

    def before_run(self, run_context: SessionRunContext) -> None:
        session = run_context.session
        due = self._timer.should_trigger_for_step(session.global_step + 1)
        session.wants_save = self._decides and due

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        self._check()
        if session.save_is_agreed and self._save(session):
            run_context.request_stop()

    def end(self, session: Session) -> None:
        if self._timer.last_triggered_step != session.global_step:
            self._save(session, ends=not session.end_is_agreed)
        self._wait()
        for listener in self._listeners:
            listener.end(session, session.global_step)

    def _save(self, session: Session, ends: bool = False) -> bool:
        """Save if the model is sound; return whether a listener wants the run to end."""
        step = session.global_step
        if session.loss is not None and not math.isfinite(session.loss):
            _logger.warning("Step %d is not saved: its loss is %s.", step, session.loss)
            return False
        self._timer.update_last_triggered_step(step)
        for listener in self._listeners:
            listener.before_save(session, step)
        self._prepare()
        self._write(step, session.values(), None if ends else session.input_states())
        if self._listeners:
            self._wait()
        # Every listener hears of every checkpoint, also when an earlier one asks to stop.
        answers = [listener.after_save(session, step) for listener in self._listeners]
        return any(answers)
