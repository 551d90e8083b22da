"""One evaluation: metrics and loss over a dataset, exact over batches and replicas."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from ..autodiff import lift_array, no_grad
from ..strategies import (
    PerReplica,
    Strategy,
    Variable,
    VariableStore,
    get_or_create_global_step,
)
from .hooks import RunningHooks, SessionRunHook
from .model_function import ModelFunction, count_examples, split_features_and_labels
from .reading_session import ReadingSession
from .specs import EstimatorSpec, ModeKeys
from .training import require_data

_logger = logging.getLogger("paceline")


@final
class EvaluationSession(ReadingSession):
    """The state of an evaluation.

    Args:
        model: What to evaluate.
        strategy: How to distribute it.
        store: Its variables. Metrics find theirs in it again at each batch, and so add up.
    """

    def __init__(self, model: ModelFunction, strategy: Strategy, store: VariableStore) -> None:
        super().__init__(strategy, store)
        self.spec: EstimatorSpec | None = None
        self._model = model
        self._loss_times_examples = 0.0
        self._num_examples = 0
        self._step_counter: Variable | None = None

    @property
    def global_step(self) -> int:
        """The step of the checkpoint that is evaluated."""
        assert self._step_counter is not None, "the global step exists from the first batch on"
        return int(self._step_counter.value_in(0))

    def step(self, batches: Any, on_built: Callable[[EstimatorSpec], None]) -> None:
        """Evaluate one batch on each replica of this worker.

        Args:
            on_built: Called in the first step, when all variables exist.
        """
        results = self.strategy.run(self._replica_step, (batches,))
        parts = results.values if isinstance(results, PerReplica) else (results,)
        if self.spec is None:
            self.spec = next(part.spec for part in parts if part.spec is not None)
            on_built(self.spec)
        total = sum([part.loss * part.num_examples for part in parts])
        num_examples = sum([part.num_examples for part in parts])
        self.loss = total / num_examples
        self._loss_times_examples += total
        self._num_examples += num_examples

    def _replica_step(self, batch: Any) -> _Evaluated:
        num_examples = count_examples(batch)
        with self.store.building(), no_grad():
            self._step_counter = get_or_create_global_step()
            if not num_examples:
                return _Evaluated(0.0, 0, None)
            spec = self._model(*split_features_and_labels(batch), ModeKeys.EVAL)
        assert spec.loss is not None
        return _Evaluated(lift_array(spec.loss).item(), num_examples, spec)

    def results(self) -> dict[str, Any]:
        """Metrics, the loss (the mean over all examples) and the global step, over all workers."""
        assert self.spec is not None
        with self.strategy.scope():
            metrics = {name: m.result() for name, m in self.spec.eval_metric_ops.items()}
        loss_times_examples, num_examples = self.strategy.extended.workers.add_up_numbers(
            [self._loss_times_examples, self._num_examples], "loss"
        )
        found = {name: _plain(value) for name, value in metrics.items()}
        found["loss"] = _plain(loss_times_examples / num_examples)
        found["global_step"] = self.global_step
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """What one replica found for its batch; no spec where it had none."""

    loss: float
    num_examples: int
    spec: EstimatorSpec | None


def _plain(value: Any) -> Any:
    """A metric in single precision: a Python number, which JSON takes, or an array of them."""
    array = np.asarray(value, np.float32)
    return array if array.ndim else array.item()


def evaluate(
    session: EvaluationSession,
    batches: Any,
    steps: int | None,
    hooks: Sequence[SessionRunHook],
) -> dict[str, Any]:
    """Evaluate until the data end, or for a number of steps.

    Raises:
        ValueError: The data are empty, be it on one worker of several.
    """
    running = RunningHooks(session, hooks)

    def built(spec: EstimatorSpec) -> None:
        session.loss_asked_for = spec.loss if spec.evaluation_hooks else None
        running.created(spec.evaluation_hooks)
        running.before_run()

    started = time.monotonic()
    batches = iter(batches)
    batch = next(batches, None)
    require_data(batch, session.strategy, " to evaluate")
    done = 0
    while batch is not None:
        if done > 0:  # before that there are neither variables nor the model's hooks: see `built`
            running.before_run()
        session.step(batch, built)
        running.after_run()
        done += 1
        if steps is not None and _is_logged(done, steps):
            _logger.info("Evaluation [%d/%d]", done, steps)
        is_over = running.stop_requested or done == steps
        batch = None if is_over else next(batches, None)
    running.end()
    _logger.info("Evaluated %d batch(es) in %.3f s.", done, time.monotonic() - started)
    return session.results()


def _is_logged(done: int, steps: int) -> bool:
    """Every step of a short evaluation, ten lines of a long one."""
    return steps < 20 or done % max(1, steps // 10) == 0 or done == steps
