"""`train_and_evaluate`: train, and evaluate what was saved on the way."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .estimator import Estimator
from .hooks import CheckpointSaverListener, Session
from .specs import EvalSpec, TrainSpec

_logger = logging.getLogger("paceline")


@dataclass(frozen=True)
class TrainAndEvaluateResult:
    """What came of `train_and_evaluate`. It unpacks as TensorFlow's pair (metrics, exports).

    Args:
        metrics: Of the last evaluation, as `Estimator.evaluate` returns them.
        global_step: The steps made in all.
        ended: Why training ended, in words.
        exports: Paths of exported models.
    """

    metrics: dict[str, Any]
    global_step: int
    ended: str
    exports: Sequence[str] = field(default=())

    def __iter__(self) -> Iterator[Any]:
        return iter((self.metrics, self.exports))


class _Evaluator(CheckpointSaverListener):
    """Evaluates checkpoints as they are saved, but not more often than it should."""

    def __init__(
        self, estimator: Estimator, spec: EvalSpec, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._estimator = estimator
        self._spec = spec
        self._clock = clock
        self._last_time: float | None = None
        self.metrics: dict[str, Any] = {}

    def after_save(self, session: Session, global_step_value: int) -> None:
        """The first checkpoint is that of the initial values (or of the last run): it only starts
        the clock."""
        now = self._clock()
        if self._last_time is None:
            self._last_time = now
        elif now >= self._last_time + self._spec.throttle_secs:
            self.evaluate()

    def end(self, session: Session, global_step_value: int) -> None:
        if self.metrics.get("global_step") != global_step_value:
            self.evaluate()

    def evaluate(self) -> None:
        spec = self._spec
        self.metrics = self._estimator.evaluate(
            spec.input_fn, steps=spec.steps, hooks=spec.hooks, name=spec.name
        )
        self._last_time = self._clock()


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> TrainAndEvaluateResult:
    """Train, evaluate checkpoints as they are saved, and evaluate the last one.

    In one process, evaluation happens between training steps, when a checkpoint was saved and
    `eval_spec.throttle_secs` have passed since the last evaluation, and at the end.

    Args:
        estimator: What to train; its `RunConfig` says how often it saves.
        train_spec: The training data and where to end.
        eval_spec: The evaluation data and how often.

    Returns:
        The last metrics, the global step, and why training ended.

    Raises:
        TypeError: An argument is of another type.
    """
    for value, kind in ((estimator, Estimator), (train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(value, kind):
            raise TypeError(f"train_and_evaluate needs a {kind.__name__}, got {value!r}")
    evaluator = _Evaluator(estimator, eval_spec)
    end = estimator.train_and_report(
        train_spec.input_fn,
        hooks=train_spec.hooks,
        max_steps=train_spec.max_steps,
        saving_listeners=[*train_spec.saving_listeners, evaluator],
    )
    if not evaluator.metrics:  # training had reached its end before
        evaluator.evaluate()
    return TrainAndEvaluateResult(evaluator.metrics, end.global_step, end.reason)
