"""The evaluator beside a training job: it evaluates what is saved, until the run has ended."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from ..checkpoint import CheckpointError
from .end_marker import EndMarker, read_end_marker
from .estimator import Estimator
from .specs import EvalSpec

_logger = logging.getLogger("paceline")

_POLL_SECS = 0.5
_SECS_BETWEEN_REMINDERS = 600.0


class ContinuousEvaluation:
    """Evaluates the newest checkpoint again and again.

    It may start before, during or after training. It ends when it has evaluated the last checkpoint
    of a run that has left its end mark, or one whose step is `max_steps`.

    Args:
        estimator: Whose checkpoints.
        spec: The data, and how often.
        max_steps: Where training will end; None: where the run says so.
        clock, sleep: Of the `time` module.
    """

    def __init__(
        self,
        estimator: Estimator,
        spec: EvalSpec,
        max_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._clock = clock
        self._sleep = sleep
        self._evaluated: str | None = None
        self._reminded = clock()
        self.metrics: dict[str, Any] = {}

    @property
    def evaluated_step(self) -> int:
        """The global step of the last evaluation; -1 before the first."""
        return int(self.metrics.get("global_step", -1))

    def run(self) -> EndMarker:
        """Evaluate until the run has ended; return how it did."""
        self._wait_until(self._clock() + self._spec.start_delay_secs)
        while True:
            began = self._clock()
            end = read_end_marker(self._estimator.model_dir)  # before looking: misses no checkpoint
            self._evaluate_newest()
            if end is not None and self.evaluated_step >= end.global_step:
                return end
            if end is not None and self._estimator.latest_checkpoint() is None:
                raise ValueError(
                    f"training in {self._estimator.model_dir} ended at step {end.global_step}, but "
                    f"there is no checkpoint to evaluate; was it deleted?"
                )
            if self._max_steps is not None and self.evaluated_step >= self._max_steps:
                return EndMarker(self.evaluated_step, "max_steps was reached")
            self._wait_until(max(began + self._spec.throttle_secs, self._clock() + _POLL_SECS))

    def _evaluate_newest(self) -> None:
        """Evaluate the newest checkpoint, unless that is done."""
        try:
            newest = self._estimator.latest_checkpoint()
            if newest is None or newest == self._evaluated:
                self._remind(newest)
                return
            self.metrics = self._estimator.evaluate(
                self._spec.input_fn,
                steps=self._spec.steps,
                hooks=self._spec.hooks,
                checkpoint_path=newest,
                name=self._spec.name,
            )
        except CheckpointError as error:  # deleted or replaced between looking and reading
            _logger.info("The checkpoint went away while it was read, looking again: %s", error)
            return
        self._evaluated = newest
        self._reminded = self._clock()

    def _wait_until(self, moment: float) -> None:
        """Wait, but little longer than until training has ended."""
        while self._clock() < moment:
            self._sleep(min(_POLL_SECS, moment - self._clock()))
            if read_end_marker(self._estimator.model_dir) is not None:
                return

    def _remind(self, newest: str | None) -> None:
        """Say now and then that there is nothing to do."""
        if self._clock() - self._reminded >= _SECS_BETWEEN_REMINDERS:
            self._reminded = self._clock()
            what = f"no checkpoint after {newest}" if newest else "no checkpoint yet"
            _logger.warning("There is %s in %s.", what, self._estimator.model_dir)
