"""Evaluation of the weights as they are, between two steps of training."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import checkpoint
from ...training import Session, SessionRunContext, SessionRunHook, SessionRunValues
from ..eval_metrics import record_eval_metrics
from .timer import SecondOrStepTimer


class InMemoryEvaluatorHook(SessionRunHook):
    """Evaluates the present weights before the first step, every so many steps, and at the end.

    It needs no checkpoint in `model_dir` (the values go by way of a temporary directory), and runs
    in one process only. The metrics are noted in the history of evaluations, which early stopping
    reads, and written where `Estimator.evaluate` writes them.

    Args:
        estimator: What is trained.
        input_fn: Gives the data.
        steps: The number of batches of an evaluation; None takes all data.
        hooks: Take part in each evaluation.
        name: Names the evaluation, where there are several.
        every_n_iter: How many steps from one to the next.

    Raises:
        ValueError: `every_n_iter` is not positive; or, when training begins, there are other
            workers.
    """

    def __init__(
        self,
        estimator: Any,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        name: str | None = None,
        every_n_iter: int = 100,
    ) -> None:
        self._estimator = estimator
        self._arguments = {"input_fn": input_fn, "steps": steps, "hooks": hooks, "name": name}
        self._timer = SecondOrStepTimer(every_steps=every_n_iter)

    def begin(self) -> None:
        self._timer.reset()

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        if session.strategy.extended.job.num_trainers > 1:
            raise ValueError(
                f"InMemoryEvaluatorHook evaluates in one process, and {session.strategy!r} has "
                f"several workers; use train_and_evaluate, which evaluates on all of them"
            )

    def before_run(self, run_context: SessionRunContext) -> None:
        if self._timer.last_triggered_step() is None:
            self._evaluate(run_context.session)

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if self._timer.should_trigger_for_step(run_context.session.global_step):
            self._evaluate(run_context.session)

    def end(self, session: Session) -> None:
        if self._timer.last_triggered_step() != session.global_step:
            self._evaluate(session)

    def _evaluate(self, session: Session) -> None:
        step = session.global_step
        self._timer.update_last_triggered_step(step)
        with tempfile.TemporaryDirectory(prefix="paceline-") as directory:
            path = checkpoint.save(directory, step, session.values())
            found = self._estimator.evaluate(**self._arguments, checkpoint_path=path)
        numbers = {k: float(v) for k, v in found.items() if np.ndim(v) == 0 and k != "global_step"}
        record_eval_metrics(self._estimator.eval_dir(self._arguments["name"]), step, numbers)
