"""`train_and_evaluate`: what each task of a job does, by its role."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..cluster import ClusterError
from ..nn.optimizers import server_rules
from ..observe import phase, short_tracebacks
from ..strategies import get_strategy
from ..training import Session, SessionRunContext, SessionRunHook, SessionRunValues, SignalWatch
from .estimator import Estimator
from .evaluator import (
    ContinuousEvaluation,
    EndMarker,
    Unended,
    evaluate_checkpoint,
    write_end_marker,
)
from .export import Exports
from .run_config import RunConfig
from .saving import CheckpointShards
from .specs import EvalSpec, TrainSpec

_logger = logging.getLogger("paceline")

_SECS_BETWEEN_WORKERS = 5


@dataclass(frozen=True)
class TrainAndEvaluateResult:
    """What came of `train_and_evaluate`. It unpacks as TensorFlow's pair (metrics, exports).

    Args:
        metrics: Of the last evaluation, as `Estimator.evaluate` returns them.
        global_step: The steps made in all.
        ended: Why training ended, in words.
        exports: The path of the latest export of each exporter that has made one.
        best_checkpoint: What `Estimator.best_checkpoint()` found at the end.
    """

    metrics: dict[str, Any]
    global_step: int
    ended: str
    exports: Sequence[str] = field(default=())
    best_checkpoint: str | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.metrics, self.exports))

    def as_text(self) -> str:
        """The same as JSON, for other tasks; metrics that are arrays become lists."""
        metrics = {name: np.asarray(value).tolist() for name, value in self.metrics.items()}
        return json.dumps({**vars(self), "metrics": metrics})

    @classmethod
    def from_text(cls, text: str) -> TrainAndEvaluateResult:
        """What `as_text` gave; without text the account of a chief that has never said."""
        if not text:
            return cls({}, 0, "the chief has not said how training ended")
        told = json.loads(text)
        metrics = {name: _as_measured(value) for name, value in told["metrics"].items()}
        return cls(**{**told, "metrics": metrics, "exports": tuple(told["exports"])})


def _as_measured(value: Any) -> Any:
    """A metric as `Estimator.evaluate` gives it: a number, or an array where it has several."""
    return np.array(value, np.float32) if isinstance(value, list) else value


class _Evaluator(SessionRunHook):
    """Evaluates checkpoints as they are saved, but not more often than it should.

    The first one is that of the initial values, or of the last run: it only starts the clock. On
    several workers every one has this hook; the first one's clock decides.
    """

    def __init__(
        self,
        estimator: Estimator,
        spec: EvalSpec,
        exports: Exports,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._estimator = estimator
        self._spec = spec
        self._exports = exports
        self._clock = clock
        self._last_time = clock()
        strategy = estimator.config.train_distribute or get_strategy()
        self._workers = strategy.extended.workers
        self.metrics: dict[str, Any] = {}

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._last_time = self._clock()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        if not run_context.session.save_is_agreed:
            return
        due = self._clock() >= self._last_time + self._spec.throttle_secs
        if self._workers.number_from_chief(due, "evaluation is due"):
            self.evaluate()

    def end(self, session: Session) -> None:
        if session.end_is_agreed:
            return
        if self.metrics.get("global_step") != session.global_step:
            self.evaluate(is_last=True)
        self._exports.ended()

    def evaluate(self, is_last: bool = False) -> None:
        """Evaluate what the chief saved last; a worker that cannot read it fails.

        Args:
            is_last: Whether training has ended, for exporters.
        """
        newest = self._estimator.latest_checkpoint() if self._workers.rank == 0 else None
        path = self._workers.text_from_chief(newest or "", "checkpoint to evaluate")
        with phase("evaluate"):
            self.metrics = evaluate_checkpoint(self._estimator, self._spec, path or None)
            if path:
                self._exports.evaluated(path, self.metrics, is_last)
        self._last_time = self._clock()


def train_and_evaluate(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> TrainAndEvaluateResult:
    """Train, evaluate checkpoints as they are saved, and evaluate the last one.

    The same call in every process of a job; what it does depends on the task:

    - A worker (a process that is alone is one) trains. Unless the cluster lists an evaluator, all
      workers stop between two steps and evaluate together when a checkpoint was saved and
      `eval_spec.throttle_secs` have passed since the last evaluation. At the end they evaluate
      in any case, so that each of them returns the final metrics.
    - A parameter server (ps) keeps variables until everybody who trains is done or gone.
    - An evaluator evaluates the newest checkpoint again and again, until the run has ended. It may
      start before, during or after training, and needs nothing but `model_dir`.

    Args:
        estimator: What to train; its `RunConfig` says how often it saves.
        train_spec: The training data and where to end.
        eval_spec: The evaluation data and how often.

    Returns:
        The last metrics, the global step, and why training ended.

    Raises:
        TypeError: An argument is of another type.
        ClusterError: This is a second evaluator.
    """
    for value, kind in ((estimator, Estimator), (train_spec, TrainSpec), (eval_spec, EvalSpec)):
        if not isinstance(value, kind):
            raise TypeError(f"train_and_evaluate needs a {kind.__name__}, got {value!r}")
    estimator.config.task_info.refuse_second_evaluator()
    with short_tracebacks:
        if estimator.config.task_type == "evaluator":
            return _evaluate_beside(estimator, train_spec, eval_spec)
        if estimator.config.task_type == "ps":
            return _serve(estimator)
        return _train(estimator, train_spec, eval_spec)


def _evaluate_beside(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> TrainAndEvaluateResult:
    evaluation = ContinuousEvaluation(estimator, eval_spec, train_spec.max_steps)
    watch = SignalWatch(waits=False)
    with watch.installed(estimator.config.save_checkpoints_on_sigterm):
        end = evaluation.run()
    best = estimator.best_checkpoint()
    return TrainAndEvaluateResult(
        evaluation.metrics, end.global_step, end.reason, evaluation.exports, best
    )


def _train(
    estimator: Estimator, train_spec: TrainSpec, eval_spec: EvalSpec
) -> TrainAndEvaluateResult:
    config = estimator.config
    strategy = config.train_distribute or get_strategy()
    job = strategy.extended.job
    if not job.has_chief_in_step and not strategy.extended.is_synchronous:
        _let_earlier_begin(config)
    evaluates = job.has_chief_in_step and not config.task_info.has_evaluator
    exports = Exports(estimator, eval_spec.exporters if evaluates and job.is_chief else ())
    evaluator = _Evaluator(estimator, eval_spec, exports)
    unended = Unended(estimator.model_dir)
    end = estimator.train_and_report(
        train_spec.input_fn,
        hooks=[unended, *(train_spec.hooks or ()), *((evaluator,) if evaluates else ())],
        max_steps=train_spec.max_steps,
        saving_listeners=train_spec.saving_listeners,
        while_writing=unended,
    )
    if job.is_chief:
        write_end_marker(estimator.model_dir, EndMarker(end.global_step, end.reason))
    # Another task may evaluate, or training had reached its end before.
    if job.has_chief_in_step and not evaluator.metrics:
        evaluator.evaluate(is_last=True)
    best = estimator.best_checkpoint() if job.is_chief else None
    told = json.dumps([best, exports.paths])
    best, paths = json.loads(strategy.extended.workers.text_from_chief(told, "best and exports"))
    own = TrainAndEvaluateResult(evaluator.metrics, end.global_step, end.reason, tuple(paths), best)
    # Where a task cannot leave alone, it must not end before the chief has saved.
    watch = SignalWatch(waits=not job.can_leave_alone)
    with watch.installed(config.save_checkpoints_on_sigterm):
        shared = job.share_result(own.as_text())
        if watch.has_come:
            raise watch.end(end.global_step)
    return own if job.has_chief_in_step else TrainAndEvaluateResult.from_text(shared)


def start_delay_secs(max_delay_secs: int | None, task_id: int) -> int:
    """How long a worker that makes steps of its own waits before it begins.

    TensorFlow's rule, but for its cap of a minute where None is given: here that is no delay.
    """
    return min(max_delay_secs or 0, _SECS_BETWEEN_WORKERS * (task_id + 1))


def _let_earlier_begin(config: RunConfig) -> None:
    """Wait, as a worker beside the chief, so that not all change fresh variables at once."""
    secs = start_delay_secs(config.experimental_max_worker_delay_secs, config.task_id)
    if secs:
        _logger.info(
            "Worker %d begins in %d s, as experimental_max_worker_delay_secs=%d asks.",
            *(config.task_id, secs, config.experimental_max_worker_delay_secs),
        )
        time.sleep(secs)


def _serve(estimator: Estimator) -> TrainAndEvaluateResult:
    """Keep variables for those who train."""
    server = (estimator.config.train_distribute or get_strategy()).extended.server
    if server is None:
        raise ClusterError(
            "this process is to be a parameter server (ps), and the strategy uses none: pass "
            "RunConfig(train_distribute=ParameterServerStrategy()), or leave ps out of the cluster"
        )
    shards = CheckpointShards(1 + estimator.config.num_ps_replicas, estimator.model_dir)
    watch = SignalWatch()  # who trains is about to save, and needs the variables for that
    with watch.installed(estimator.config.save_checkpoints_on_sigterm):
        text = server.serve(server_rules(), shards, lambda: watch.has_come)
        if watch.has_come:
            raise watch.end()
    return TrainAndEvaluateResult.from_text(text)
