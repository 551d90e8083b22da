"""Hooks that report on a run: log lines, and a bar on a terminal."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ... import observe
from ...summary import FileWriter
from ...training import (
    Counts,
    Rest,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .recording import flush, one_writer
from .timer import SecondOrStepTimer

_logger = logging.getLogger("paceline")

_RATE_WINDOW_SECS = 10.0

_ADVICE = " A learning rate that was tuned for one replica's batch may be scaled with that."


class StepCounterHook(SessionRunHook):
    """Logs the number of steps per second, and warns when the global step does not move.

    For TensorBoard it writes `global_step/sec` and `examples/sec`, on the chief: the latter counts
    the examples of the steps that this worker takes part in.

    Args:
        every_n_steps, every_n_secs: How often; exactly one of them.
        output_dir, summary_writer: Where to write, or with what; at most one of them.
    """

    def __init__(
        self,
        every_n_steps: int | None = 100,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: FileWriter | None = None,
    ) -> None:
        self._timer = SecondOrStepTimer(every_n_secs, every_n_steps)
        is_written = output_dir is not None or summary_writer is not None
        self._writer = one_writer(output_dir, summary_writer) if is_written else None
        self._num_examples = 0
        self._step_before = -1
        self._unmoved = 0
        self._has_moved = False

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._timer.update_last_triggered_step(session.global_step)
        self._num_examples = session.counts.examples
        self._has_moved = False

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        step = session.global_step
        self._warn_if_unmoved(step)
        if self._timer.should_trigger_for_step(step):
            num_before, self._num_examples = self._num_examples, session.counts.examples
            secs, steps = self._timer.update_last_triggered_step(step)
            if secs:
                rate = (steps or 0) / secs
                told = {"global_step": step, "global_step/sec": rate}
                _logger.info("global_step/sec: %.5g", rate, extra={"values": told})
                self._write(session, rate, (self._num_examples - num_before) / secs)

    def may_rest(self, session: Session) -> Rest | None:
        return self._timer.rest() if self._has_moved else None

    def _write(self, session: Session, steps_per_sec: float, examples_per_sec: float) -> None:
        if self._writer is not None and session.strategy.extended.job.is_chief:
            self._writer.scalar("global_step/sec", steps_per_sec, session.global_step)
            self._writer.scalar("examples/sec", examples_per_sec, session.global_step)
            flush(self._writer)

    def _warn_if_unmoved(self, step: int) -> None:
        self._unmoved = self._unmoved + 1 if step == self._step_before else 0
        self._has_moved = 0 <= self._step_before < step
        self._step_before = step
        if self._unmoved == 20:
            _logger.warning(
                "The global step has not increased for 20 steps (it is %d); pass a train op that "
                "comes from optimizer.minimize(loss).",
                step,
            )


class LoggingTensorHook(SessionRunHook):
    """Logs values every so many steps of this run, or seconds.

    Args:
        tensors: Names of values, or a dict of label → what `SessionRunArgs` takes: a name, a
            variable, and where `model_fn` makes the hook also one of its tensors or metrics.
        every_n_iter, every_n_secs: How often; exactly one of them, unless only `at_end`.
        at_end: Whether to log at the end as well.
        formatter: Makes the line from the dict of label → value.
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Sequence[str],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        names = tensors if isinstance(tensors, Mapping) else _labelled(tensors)
        only_at_end = at_end and every_n_iter is None and every_n_secs is None
        self._args = SessionRunArgs(dict(names))
        self._timer = None if only_at_end else SecondOrStepTimer(every_n_secs, every_n_iter)
        self._at_end = at_end
        self._format = formatter or _join
        self._due = False
        self._counts = Counts()
        self._num_before = 0

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        if self._at_end:
            session.ask_at_end(self._args.fetches)

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        self._iteration = self._num_steps(run_context.session)
        self._due = self._timer is not None and self._timer.should_trigger_for_step(self._iteration)
        return self._args if self._due else None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._due and self._timer is not None:
            secs, _ = self._timer.update_last_triggered_step(self._iteration)
            self._log(run_values.results, secs)

    def may_rest(self, session: Session) -> Rest | None:
        self._due = False
        rest = Rest() if self._timer is None else self._timer.rest()
        return rest and Rest(num_steps=rest.step - self._num_steps(session), secs=rest.secs)

    def _num_steps(self, session: Session) -> int:
        """Those that it has taken part in, of all runs."""
        if session.counts is not self._counts:
            self._num_before += self._counts.steps
            self._counts = session.counts
        return self._num_before + self._counts.steps

    def end(self, session: Session) -> None:
        if self._at_end:
            self._log(session.run(self._args.fetches), None)

    def _log(self, values: dict[str, Any], secs: float | None) -> None:
        duration = f" ({secs:.3f} sec)" if secs is not None else ""
        _logger.info("%s%s", self._format(values), duration, extra={"values": values})


class BuildReport(SessionRunHook):
    """Says how large the model is, and which meaning a batch has.

    What `input_fn` gives is what one replica takes.
    """

    _is_told = False

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        _logger.info("Done calling model_fn.")
        trained = session.store.trainable_variables()
        num = sum(math.prod(variable.shape) for variable in trained)
        variables = counted(len(trained), "trainable variable")
        _logger.info("The model has %s in %s.", counted(num, "parameter"), variables)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._is_told:
            return
        self._is_told = True
        session = run_context.session
        context = session.strategy.input_context()
        _logger.info(
            "Input: each batch goes to one replica; shard %d of %d, %s in sync, global batch %d in "
            "the first step.%s",
            context.input_pipeline_id,
            context.num_input_pipelines,
            counted(context.num_replicas_in_sync, "replica"),
            session.num_examples,
            _ADVICE if context.num_replicas_in_sync > 1 else "",
        )

    def may_rest(self, session: Session) -> Rest:
        return Rest()


class ProgressHook(SessionRunHook):
    """Draws a bar with steps, rates, time left and loss where the output is a terminal.

    Args:
        last_step: The global step at which training will end; None: unknown.
        start: The global step at which it begins.
    """

    def __init__(self, last_step: int | None, start: int) -> None:
        self._total = None if last_step is None else last_step - start
        self._start = start
        self._num_examples = 0
        self._rate = observe.Rate(_RATE_WINDOW_SECS)
        self._bar: observe.Progress | None = None

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._bar = observe.progress(self._total, "train")

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        assert self._bar is not None
        if not self._bar.is_seen:
            return
        self._num_examples += session.num_examples
        rate = self._rate.update(self._num_examples, time.monotonic())
        values = {"loss": session.loss or 0.0, "examples/s": rate or 0.0}
        self._bar.update(session.global_step - self._start, **values)

    def may_rest(self, session: Session) -> Rest | None:
        return None if self._bar is not None and self._bar.is_seen else Rest()

    def close(self) -> None:
        """Take the bar away, also after an error."""
        if self._bar is not None:
            self._bar.close()


def _labelled(names: Sequence[str]) -> dict[str, str]:
    """Each name by itself.

    Raises:
        TypeError: It is no name; a tensor has none.
    """
    for name in names:
        if not isinstance(name, str):
            raise TypeError(
                f"a list of tensors to log holds names, not {type(name).__name__} {name!r}; "
                f"for a tensor or variable give a dict with a label for it, such as "
                f"{{'loss': loss}}"
            )
    return {name: name for name in names}


def _join(values: dict[str, Any]) -> str:
    return ", ".join(f"{label} = {_shown(value)}" for label, value in values.items())


def _shown(value: Any) -> str:
    if np.ndim(value) == 0 and np.issubdtype(np.asarray(value).dtype, np.number):
        return f"{value:.8g}"
    return np.array2string(np.asarray(value), threshold=20, separator=", ")


def counted(number: int, noun: str) -> str:
    """A number of things in words: "1 replica", "2 replicas"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
