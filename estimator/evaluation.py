"""One evaluation: metrics and loss over a dataset, exact over batches and replicas."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from ..autodiff import lift_array, no_grad
from ..inputs import nest
from ..strategies import (
    PerReplica,
    Strategy,
    Variable,
    VariableStore,
    get_or_create_global_step,
)
from .hooks import SessionRunContext, SessionRunHook
from .model_function import ModelFunction, count_examples, split_features_and_labels
from .specs import EstimatorSpec, ModeKeys
from .training import asked_for, require_data, variable_value

_logger = logging.getLogger("paceline")


class EvaluationSession:
    """The state of an evaluation.

    Args:
        model: What to evaluate.
        strategy: How to distribute it.
        store: Its variables. Metrics find theirs in it again at each batch, and so add up.
    """

    def __init__(self, model: ModelFunction, strategy: Strategy, store: VariableStore) -> None:
        self.strategy = strategy
        self.store = store
        self.loss: float | None = None
        self.spec: EstimatorSpec | None = None
        # An evaluation is not saved, nor continued later.
        self.wants_save = self.save_is_agreed = False
        self.wants_end = self.end_is_agreed = False
        self._model = model
        self._loss_times_examples = 0.0
        self._num_examples = 0
        self._step_counter: Variable | None = None

    @property
    def global_step(self) -> int:
        """The step of the checkpoint that is evaluated."""
        assert self._step_counter is not None, "the global step exists from the first batch on"
        return int(self._step_counter.value_in(0))

    def run(self, fetches: Any) -> Any:
        """The present values of names, in the structure of `fetches` (see `SessionRunArgs`)."""
        return nest.map_structure(self._value, fetches)

    def _value(self, name: str) -> Any:
        if name == "loss":
            return self.loss
        if name == "global_step":
            return self.global_step
        with self.strategy.scope():
            return variable_value(self.store, name, ("loss", "global_step"))

    def input_states(self) -> list[dict[str, Any]]:
        """None: an evaluation is not gone on with."""
        return []

    def values(self) -> dict[str, Any]:
        """The values of all variables, by name."""
        with self.strategy.scope():
            return self.store.saved_values()

    def step(self, batches: Any) -> None:
        """Evaluate one batch on each replica of this worker."""
        results = self.strategy.run(self._replica_step, (batches,))
        parts = results.values if isinstance(results, PerReplica) else (results,)
        total = sum([part.loss * part.num_examples for part in parts])
        num_examples = sum([part.num_examples for part in parts])
        self.loss = total / num_examples
        self._loss_times_examples += total
        self._num_examples += num_examples
        self.spec = self.spec or next(part.spec for part in parts if part.spec is not None)

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
        found = {name: _as_float32(value) for name, value in metrics.items()}
        found["loss"] = np.float32(loss_times_examples / num_examples)
        found["global_step"] = self.global_step
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """What one replica found for its batch; no spec where it had none."""

    loss: float
    num_examples: int
    spec: EstimatorSpec | None


def _as_float32(value: Any) -> Any:
    return np.asarray(value, np.float32)[()]


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
    hooks = list(hooks)
    for hook in hooks:
        hook.begin()
    context = SessionRunContext(session)
    started = time.monotonic()
    done = 0
    batches = iter(batches)
    first = next(batches, None)
    require_data(first, session.strategy, " to evaluate")
    for batch in chain([first], batches):
        session.step(batch)
        if done == 0:
            assert session.spec is not None
            hooks += session.spec.evaluation_hooks
            for hook in hooks:
                hook.after_create_session(session)
        for hook in hooks:
            hook.after_run(context, asked_for(session, hook.before_run(context)))
        done += 1
        if steps is not None and _is_logged(done, steps):
            _logger.info("Evaluation [%d/%d]", done, steps)
        if context.stop_requested or done == steps:
            break
    for hook in hooks:
        hook.end(session)
    _logger.info("Evaluated %d batch(es) in %.3f s.", done, time.monotonic() - started)
    return session.results()


def _is_logged(done: int, steps: int) -> bool:
    """Every step of a short evaluation, ten lines of a long one."""
    return steps < 20 or done % max(1, steps // 10) == 0 or done == steps
