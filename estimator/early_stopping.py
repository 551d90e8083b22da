"""Early stopping: hooks that end training when evaluations say so, on any strategy.

The chief decides, from the history of evaluations (`read_eval_metrics`), which whoever evaluates
has written: the workers themselves between two steps, or an evaluator beside them. All workers stop
after the same step; an evaluator ends with the run.
"""

from __future__ import annotations

import glob
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

from ..training import SessionRunContext, SessionRunHook, SessionRunValues
from .estimator import Estimator
from .eval_metrics import read_eval_metrics
from .hooks import SecondOrStepTimer

_logger = logging.getLogger("paceline")

History: TypeAlias = Mapping[int, Mapping[str, float]]
"""Metrics by step, oldest first."""

_PathLike: TypeAlias = "str | os.PathLike[str]"


def make_early_stopping_hook(
    estimator: Estimator,
    should_stop_fn: Callable[[], bool],
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """A hook for training that ends it for all workers when `should_stop_fn` says so.

    Args:
        estimator: What is trained.
        should_stop_fn: Called before a step, on the chief only; returns whether to stop after it.
        run_every_secs, run_every_steps: How often it is asked; exactly one of them, so pass
            `run_every_secs=None` with the other. Seconds are the chief's, under any strategy.

    Returns:
        The hook, to be given to `train` or `TrainSpec` by all workers alike.

    Raises:
        TypeError: `estimator` is no Estimator, or `should_stop_fn` no function.
        ValueError: Not exactly one of the last two, or one is not positive.
    """
    if not isinstance(estimator, Estimator):
        raise TypeError(f"estimator must be a paceline.Estimator, it is {estimator!r}")
    if not callable(should_stop_fn):
        raise TypeError(
            f"should_stop_fn must be a function without arguments that returns whether to stop, it "
            f"is {should_stop_fn!r}"
        )
    if run_every_secs is not None and run_every_steps is not None:
        raise ValueError(
            f"run_every_secs={run_every_secs} and run_every_steps={run_every_steps} exclude each "
            f"other; pass run_every_secs=None to ask by steps"
        )
    return _StopOnDecision(should_stop_fn, SecondOrStepTimer(run_every_secs, run_every_steps))


@final
class _StopOnDecision(SessionRunHook):
    """Asks, on the chief, when the timer says so, and lets all workers stop."""

    def __init__(self, should_stop_fn: Callable[[], bool], timer: SecondOrStepTimer) -> None:
        self._should_stop = should_stop_fn
        self._timer = timer

    def before_run(self, run_context: SessionRunContext) -> None:
        session = run_context.session
        step = session.global_step
        if not session.strategy.extended.job.is_chief or session.wants_stop:
            return
        if self._timer.should_trigger_for_step(step):
            self._timer.update_last_triggered_step(step)
            if self._should_stop():
                session.stop_all()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        if session.wants_stop:
            _logger.info("Early stopping: training ends at step %d.", session.global_step)


@dataclass(frozen=True)
class Criterion(ABC):
    """Says from the history of evaluations whether training is to end.

    Args:
        metric: By which.
        min_steps: Evaluations of earlier steps do not count.
    """

    metric: str
    min_steps: int

    @abstractmethod
    def reason(self, history: History) -> str | None:
        """Why training is to end; None if it is not.

        Raises:
            KeyError: An evaluation has no such metric.
        """

    def values(self, history: History) -> dict[int, float]:
        """The metric by step, of the evaluations that count."""
        for step, metrics in history.items():
            if self.metric not in metrics:
                raise KeyError(
                    f"the evaluation of step {step} has no metric {self.metric!r}, for which "
                    f"training is to stop early; it has {', '.join(sorted(metrics))}"
                )
        return {step: m[self.metric] for step, m in history.items() if step >= self.min_steps}


@dataclass(frozen=True)
class Threshold(Criterion):
    """The metric was once higher, or else lower, than `threshold`."""

    threshold: float
    is_higher: bool

    def reason(self, history: History) -> str | None:
        for step, value in self.values(history).items():
            if value > self.threshold if self.is_higher else value < self.threshold:
                than = "higher" if self.is_higher else "lower"
                return f"{self.metric} was {value:.8g} at step {step}, {than} than {self.threshold}"
        return None


@dataclass(frozen=True)
class NoImprovement(Criterion):
    """For `max_steps` the metric was no higher, or else no lower, than the best before.

    What is no number is not the best of anything.
    """

    max_steps: int
    is_higher: bool

    def reason(self, history: History) -> str | None:
        best_step, best = None, 0.0
        for step, value in self.values(history).items():
            is_better = best_step is None or (value > best if self.is_higher else value < best)
            if is_better and value == value:
                best_step, best = step, value
            elif best_step is not None and step - best_step >= self.max_steps:
                verb = "risen above" if self.is_higher else "fallen below"
                return f"from step {best_step} to {step} {self.metric} has not {verb} {best:.8g}"
        return None


def stop_if_higher_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: _PathLike | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """A hook that ends training when a metric was higher than a threshold in an evaluation.

    Args:
        estimator: What is trained.
        metric_name: A metric that `Estimator.evaluate` returns.
        threshold: What it must exceed.
        eval_dir: Whose evaluations count: by default those without a name, else
            `estimator.eval_dir(name)`.
        min_steps: Evaluations of earlier steps do not count.
        run_every_secs, run_every_steps: As of `make_early_stopping_hook`.

    Raises:
        KeyError: While it trains: an evaluation has no such metric.
    """
    criterion = Threshold(metric_name, min_steps, threshold, is_higher=True)
    return _hook(estimator, criterion, eval_dir, run_every_secs, run_every_steps)


def stop_if_lower_hook(
    estimator: Estimator,
    metric_name: str,
    threshold: float,
    eval_dir: _PathLike | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """A hook that ends training when a metric was lower than a threshold in an evaluation.

    Arguments and errors are those of `stop_if_higher_hook`.
    """
    criterion = Threshold(metric_name, min_steps, threshold, is_higher=False)
    return _hook(estimator, criterion, eval_dir, run_every_secs, run_every_steps)


def stop_if_no_increase_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_increase: int,
    eval_dir: _PathLike | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """A hook that ends training when a metric has found no new maximum for so many steps.

    Args:
        estimator: What is trained.
        metric_name: A metric that `Estimator.evaluate` returns.
        max_steps_without_increase: An evaluation that is so many steps after the best one, and not
            better, ends training.
        eval_dir: Whose evaluations count: by default those without a name, else
            `estimator.eval_dir(name)`.
        min_steps: Evaluations of earlier steps do not count.
        run_every_secs, run_every_steps: As of `make_early_stopping_hook`.

    Raises:
        KeyError: While it trains: an evaluation has no such metric.
    """
    criterion = NoImprovement(metric_name, min_steps, max_steps_without_increase, is_higher=True)
    return _hook(estimator, criterion, eval_dir, run_every_secs, run_every_steps)


def stop_if_no_decrease_hook(
    estimator: Estimator,
    metric_name: str,
    max_steps_without_decrease: int,
    eval_dir: _PathLike | None = None,
    min_steps: int = 0,
    run_every_secs: float | None = 60,
    run_every_steps: int | None = None,
) -> SessionRunHook:
    """A hook that ends training when a metric has found no new minimum for so many steps.

    Arguments and errors are those of `stop_if_no_increase_hook`.
    """
    criterion = NoImprovement(metric_name, min_steps, max_steps_without_decrease, is_higher=False)
    return _hook(estimator, criterion, eval_dir, run_every_secs, run_every_steps)


def _hook(
    estimator: Estimator,
    criterion: Criterion,
    eval_dir: _PathLike | None,
    run_every_secs: float | None,
    run_every_steps: int | None,
) -> SessionRunHook:
    def should_stop() -> bool:
        directory = os.fsdecode(eval_dir or estimator.eval_dir())
        history = read_eval_metrics(directory)
        if not history:
            _warn_of_others(estimator, directory)
        reason = criterion.reason(history)
        if reason is not None:
            _logger.info("Early stopping: %s.", reason)
        return reason is not None

    return make_early_stopping_hook(estimator, should_stop, run_every_secs, run_every_steps)


def _warn_of_others(estimator: Estimator, directory: str) -> None:
    """Say that evaluations leave their metrics elsewhere, for else training would never stop."""
    others = glob.glob(os.path.join(glob.escape(estimator.model_dir), "eval_*", "metrics.json"))
    if others:
        name = os.path.basename(os.path.dirname(others[0])).removeprefix("eval_")
        _logger.warning(
            "Early stopping looks at the evaluations in %s, and there are none, but in %s: pass "
            "eval_dir=estimator.eval_dir(%r).",
            directory,
            os.path.dirname(others[0]),
            name,
        )
