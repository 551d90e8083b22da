"""Hooks that end a run: at a step, or when its loss is no number."""

from __future__ import annotations

import logging
import math
import os
from typing import Any

import numpy as np

from ...training import (
    Rest,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

_logger = logging.getLogger("paceline")


class StopAtStepHook(SessionRunHook):
    """Ends the run after a number of steps, or at a global step.

    Args:
        num_steps: How many more steps to make.
        last_step: The global step to stop at. Exactly one of the two.
    """

    def __init__(self, num_steps: int | None = None, last_step: int | None = None) -> None:
        if (num_steps is None) == (last_step is None):
            raise ValueError(
                f"exactly one of num_steps and last_step must be given, "
                f"they are {num_steps} and {last_step}"
            )
        self._num_steps = num_steps
        self._last_step = last_step

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        if self._last_step is None:
            assert self._num_steps is not None
            self._last_step = session.global_step + self._num_steps

    def before_run(self, run_context: SessionRunContext) -> None:
        assert self._last_step is not None
        session = run_context.session
        session.will_stop = session.global_step + 1 >= self._last_step

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        assert self._last_step is not None
        if run_context.session.global_step >= self._last_step:
            run_context.request_stop()

    def may_rest(self, session: Session) -> Rest:
        assert self._last_step is not None
        return Rest(step=self._last_step)


class StopAtCheckpointStepHook(StopAtStepHook):
    """Ends the run of a worker at a global step.

    TensorFlow's workers wait, after their last step, for the checkpoint of it. Here the chief saves
    the last checkpoint when all have ended, so that nobody has to wait for it to be whole.

    Args:
        model_dir: Where the checkpoints are.
        last_step: The global step to stop at.
        wait_after_file_check_secs: Has no effect.
    """

    def __init__(
        self,
        model_dir: str | os.PathLike[str],
        last_step: int,
        wait_after_file_check_secs: float = 30,
    ) -> None:
        super().__init__(last_step=last_step)


class NanLossDuringTrainingError(RuntimeError):
    """The loss of a step was not a finite number."""


class NanTensorHook(SessionRunHook):
    """Watches the loss and ends the run when it is not a finite number.

    Args:
        loss_tensor: What to watch besides: a name, or a tensor of the `model_fn` that makes the
            hook. The loss of the step is watched in any case.
        fail_on_nan_loss: Whether to raise, or to stop with a warning.
    """

    def __init__(self, loss_tensor: Any = None, fail_on_nan_loss: bool = True) -> None:
        self._request = None if loss_tensor is None else SessionRunArgs(loss_tensor)
        self._fail = fail_on_nan_loss

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        return self._request

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        value = run_values.results
        if session.loss is None or math.isfinite(session.loss):
            if value is not None and not np.isfinite(value).all():
                self._end(f"a watched value of step {session.global_step} is {value}", run_context)
            return
        whose = ", ".join(session.workers_with_bad_loss)
        message = (
            f"the loss of step {session.global_step} is {session.loss}"
            f"{f', by that of {whose}' if whose else ''}; the step "
            f"is not saved. Try a smaller learning rate, clipping (clipnorm=...), or look for bad "
            f"values in the input"
        )
        self._end(message, run_context)

    def may_rest(self, session: Session) -> Rest | None:
        return Rest() if self._request is None else None  # of a bad loss all are told

    def _end(self, message: str, run_context: SessionRunContext) -> None:
        if self._fail:
            raise NanLossDuringTrainingError(message)
        _logger.warning("Training stops: %s.", message)
        run_context.request_stop()
