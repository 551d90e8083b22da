"""Hooks that write down what a run shows: summaries for TensorBoard, and its history."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from ...observe import History, write_report
from ...summary import FileWriter
from ...training import (
    Counts,
    Rest,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .checkpoint_saver import RunSaver
from .timer import SecondOrStepTimer

_logger = logging.getLogger("paceline")

_SECS_BETWEEN_SIGNS_OF_LIFE = 10.0


class SummarySaverHook(SessionRunHook):
    """Writes the loss, and what `model_fn` shows with `paceline.summary`, for TensorBoard.

    The first time after the first step of the run. Every run has one on each worker, as
    `RunConfig.save_summary_steps` says; only the chief writes. A hook that only some workers have
    shows the means over these.

    Args:
        save_steps, save_secs: How often; exactly one of them.
        output_dir: Where to write, as a run of its own in TensorBoard.
        summary_writer: What to write with instead of into `output_dir`.
        gradient_norm: Whether to write the norm of the gradients too, of all replicas, before
            clipping; with parameter servers that of this worker's.
        scaffold, summary_op: Taken for TensorFlow's signature; there is no graph to ask.

    Raises:
        ValueError: Both or neither of `save_steps` and `save_secs`, or of the two places.
    """

    def __init__(
        self,
        save_steps: int | None = None,
        save_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: FileWriter | None = None,
        scaffold: Any = None,
        summary_op: Any = None,
        *,
        gradient_norm: bool = False,
    ) -> None:
        self._timer = SecondOrStepTimer(save_secs, save_steps)
        self._writer = one_writer(output_dir, summary_writer)
        self._gradient_norm = gradient_norm
        self._due = False
        if scaffold is not None or summary_op is not None:
            _logger.warning(
                "SummarySaverHook has no effect by scaffold and summary_op: what model_fn shows "
                "with paceline.summary.scalar(name, value) and its like is written."
            )

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._writer.begin(session.global_step)

    def before_run(self, run_context: SessionRunContext) -> None:
        session = run_context.session
        self._due = self._timer.should_trigger_for_step(session.global_step + 1)
        session.wants_summaries |= self._due
        session.wants_gradient_norm |= self._gradient_norm

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        if not self._due:
            return
        self._timer.update_last_triggered_step(session.global_step)
        if session.strategy.extended.job.is_chief:
            if session.loss is not None and "loss" not in session.summaries.scalars():
                self._writer.scalar("loss", session.loss, session.global_step)
            session.summaries.write(self._writer, session.global_step)
            flush(self._writer)

    def may_rest(self, session: Session) -> Rest | None:
        self._due = False
        return self._timer.rest()

    def end(self, session: Session) -> None:
        if session.strategy.extended.job.is_chief:
            flush(self._writer, is_last=True)


class HistoryHook(SessionRunHook):
    """Notes the run in `model_dir/history`, one file for each task: see `observe.History`.

    As a context it also notes the error that ends the run.

    Args:
        history: Where to.
        every_n_steps: How often the steps are noted; also where one comes 10 s after the last.
        about: What is noted of the run at its beginning.
        saver: Tells which step was saved last; comes before this hook.
        report_dir: The `model_dir` whose report is written at the end, if one is.
    """

    def __init__(
        self,
        history: History,
        every_n_steps: int,
        about: Mapping[str, Any],
        saver: RunSaver,
        report_dir: str | None = None,
    ) -> None:
        self._history = history
        self._timer = SecondOrStepTimer(every_steps=every_n_steps)
        self._about = about
        self._saver = saver
        self._report_dir = report_dir
        self._saved: int | None = None
        self._has_begun = False
        self._end_reason: str | None = None
        self._counts = self._noted_counts = Counts()
        self._noted_at = 0
        self._seconds: Mapping[str, float] = {}
        self._time = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None and self._has_begun:
            text = f"{type(error).__name__}: {error}"
            step = self._noted_at + self._counts.steps - self._noted_counts.steps
            self._history.note("failure", step=step, error=text)
        if error is None and self._end_reason is not None:
            self._history.note("end", step=self._noted_at, reason=self._end_reason)
        self._history.close()
        if self._history.problem is not None:
            _logger.warning("The history of the run is not whole: %s", self._history.problem)
        if self._report_dir is not None and self._has_begun:
            write_report_of(self._report_dir)

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._has_begun = True
        self._history.note("begin", step=session.global_step, **self._about)
        self._timer.update_last_triggered_step(session.global_step)
        self._counts = session.counts
        self._begin_interval(session)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        self._note_saved(session)
        is_silent = time.monotonic() - self._time >= _SECS_BETWEEN_SIGNS_OF_LIFE
        if is_silent or self._timer.should_trigger_for_step(session.global_step):
            self._note_steps(session)

    def may_rest(self, session: Session) -> Rest | None:
        rest, silent = self._timer.rest(), time.monotonic() - self._time
        return rest and rest._replace(secs=_SECS_BETWEEN_SIGNS_OF_LIFE - silent)

    def end(self, session: Session) -> None:
        self._note_saved(session)
        if session.counts.steps > self._noted_counts.steps:
            self._note_steps(session)
        self._end_reason = session.end_reason

    def _note_saved(self, session: Session) -> None:
        step = self._saver.last_saved_step
        if step is not None and step != self._saved:
            self._saved = step
            if session.strategy.extended.job.is_chief:
                self._history.note("checkpoint", step=step)

    def _note_steps(self, session: Session) -> None:
        self._timer.update_last_triggered_step(session.global_step)
        before, at = self._seconds, self._noted_at
        now, noted = session.counts, self._noted_counts
        num_steps, num_examples = now.steps - noted.steps, now.examples - noted.examples
        self._begin_interval(session)
        phases = {name: s - before.get(name, 0.0) for name, s in self._seconds.items()}
        secs = sum(phases.values()) or 1e-9
        self._history.note(
            "steps",
            step=session.global_step,
            loss=session.loss,
            steps_per_sec=(session.global_step - at) / secs,
            examples_per_sec=num_examples / secs,
            own_steps=num_steps,
            phases=phases,
            scalars=session.summaries.scalars(),
        )

    def _begin_interval(self, session: Session) -> None:
        self._seconds, self._time = session.stopwatches[0].read(), time.monotonic()
        self._noted_at = session.global_step
        self._noted_counts = replace(session.counts)


def one_writer(
    output_dir: str | os.PathLike[str] | None, summary_writer: FileWriter | None
) -> FileWriter:
    """What to write with.

    Raises:
        ValueError: Both or neither are given.
    """
    if (output_dir is None) == (summary_writer is None):
        raise ValueError(
            f"exactly one of output_dir and summary_writer must be given, they are {output_dir!r} "
            f"and {summary_writer!r}"
        )
    return FileWriter(output_dir or "") if summary_writer is None else summary_writer


def flush(writer: FileWriter, is_last: bool = False) -> None:
    """Flush; a full disk does not end a run, since checkpoints say so if they fail as well."""
    try:
        writer.close() if is_last else writer.flush()
    except OSError as error:
        _logger.warning("Summaries are lost: %s", error)


def write_report_of(model_dir: str) -> None:
    """Write the report of a run; where that fails, what was trained is there all the same."""
    try:
        write_report(model_dir)
    except (OSError, ValueError) as error:
        _logger.warning("The report is not written: %s", error)
