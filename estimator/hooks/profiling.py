"""The hook that writes timelines of steps."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from typing import Any

from ...observe import trace_events, wall_clock_offset_ns, write_timeline
from ...training import Session, SessionRunContext, SessionRunHook, SessionRunValues
from .timer import SecondOrStepTimer

_logger = logging.getLogger("paceline")


class ProfilerHook(SessionRunHook):
    """Writes what the replicas of this worker do in a step, for https://ui.perfetto.dev.

    The phases of the step on each replica, and the collectives with their names, go into
    `timeline-STEP.json` in Chrome's trace format; of several workers into
    `timeline-STEP-worker-N.json`, which `paceline timeline` puts together. The first step of a run,
    which makes the variables, is never among them. In other steps it costs nothing.

    Args:
        save_steps, save_secs: How often a step is looked at.
        output_dir: Where to write; made when needed.
        show_dataflow, show_memory: Taken for TensorFlow's signature; there is no graph to show.
        steps: Instead: after which global steps, each made by the step that is looked at, such as
            `range(100, 110)`. Those that follow each other go into one file.

    Raises:
        ValueError: Not exactly one of `save_steps`, `save_secs` and `steps` is given.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] = "",
        show_dataflow: bool = True,
        show_memory: bool = False,
        *,
        steps: Collection[int] | None = None,
    ) -> None:
        if sum(given is not None for given in (save_steps, save_secs, steps)) != 1:
            raise ValueError(
                f"exactly one of save_steps, save_secs and steps must be given, they are "
                f"{save_steps}, {save_secs} and {steps}"
            )
        self._timer = SecondOrStepTimer(save_secs, save_steps) if steps is None else None
        self._steps = steps or ()
        self._directory = os.fsdecode(output_dir) or "."
        self._first_step: int | None = None
        self._is_first = True

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        if self._timer is not None:
            self._timer.update_last_triggered_step(session.global_step + 1)
        self._is_first = True

    def before_run(self, run_context: SessionRunContext) -> None:
        session = run_context.session
        step = session.global_step + 1
        if self._is_first or self._first_step is not None or not self._is_due(step):
            return
        self._first_step = step
        for stopwatch in session.stopwatches:
            stopwatch.look()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session, self._is_first = run_context.session, False
        if self._first_step is not None and session.global_step + 1 not in self._steps:
            self._write(session)
            if self._timer is not None:
                self._timer.update_last_triggered_step(session.global_step)

    def end(self, session: Session) -> None:
        if self._first_step is not None:
            self._write(session)

    def _is_due(self, step: int) -> bool:
        return (
            step in self._steps
            if self._timer is None
            else self._timer.should_trigger_for_step(step)
        )

    def _write(self, session: Session) -> None:
        step, self._first_step = self._first_step, None
        job = session.strategy.extended.job
        worker = job.trainer_index
        seen = [stopwatch.look_away() for stopwatch in session.stopwatches]
        phases = [spans for spans, _ in seen]
        collectives = [span for _, spans in seen for span in spans]
        offset = wall_clock_offset_ns()
        events = trace_events(worker, f"worker {worker}", phases, collectives, offset)
        whose = f"-worker-{worker}" if job.num_trainers > 1 else ""
        path = f"{self._directory}/timeline-{step}{whose}.json"
        try:
            write_timeline(path, events)
        except OSError as error:
            _logger.warning("The timeline of step %d is not written: %s", step, error)
            return
        _logger.info("The timeline of step %d is in %s: open it in ui.perfetto.dev.", step, path)
