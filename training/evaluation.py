"""One evaluation: metrics and loss over a dataset, exact over batches and replicas."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, SupportsFloat, final

import numpy as np

from ..autodiff import lift_array, no_grad
from ..strategies import (
    Strategy,
    Variable,
    VariableStore,
    get_or_create_global_step,
    get_replica_context,
    local_values,
)
from .batches import ReplicaBatch, ReplicaBatches, first_with_examples, require_data
from .fetches import arrays_of
from .session import Session, SessionRunHook
from .spec import ModeKeys, ModelCall, Spec

_logger = logging.getLogger("paceline")


@final
class EvaluationSession(Session):
    """The state of an evaluation.

    Args:
        model: What to evaluate.
        strategy: How to distribute it.
        store: Its variables. Metrics find theirs in it again at each batch, and so add up.
        hooks: Take part in it.
        brings_hooks: Whether the model may bring hooks, which are known after its first call only.
    """

    def __init__(
        self,
        model: ModelCall,
        strategy: Strategy,
        store: VariableStore,
        hooks: Sequence[SessionRunHook],
        brings_hooks: bool = True,
    ) -> None:
        super().__init__(strategy, store, hooks)
        self._model = model
        self._brings_hooks = brings_hooks
        self._spec: Spec | None = None
        self._loss_times_examples = 0.0
        self._num_examples = 0
        self._step_counter: Variable | None = None
        self._batches = ReplicaBatches(strategy)

    @property
    def global_step(self) -> int:
        """The step of the checkpoint that is evaluated."""
        assert self._step_counter is not None, "the global step exists from the first batch on"
        return int(self._step_counter.value_in(0))

    @property
    def figures(self) -> Mapping[str, Any]:
        return {}  # the loss is one of the values that all workers read together

    def step(self, batches: Any) -> bool:
        """Evaluate one batch on each replica of all workers; hooks are told that it is about to be.

        Before the first one there are neither variables nor the model's hooks. So where hooks of
        any worker take part, the model is called once more, and what that counts is taken back: but
        for a model that brings none, whose hooks are told without that.

        Args:
            batches: A batch per replica; None where this worker has no more, and takes part for the
                others.

        Returns:
            Whether the step was made: not where nobody has a batch any more.
        """
        if self._spec is None and not self._brings_hooks:
            self.created(())
        if (self._spec is not None or not self._brings_hooks) and batches is not None:
            self.before_run()
        has_batch, is_asked, is_shown = self._agreed(batches is not None)
        if not has_batch:
            return False
        given = self._batches.of_step(batches)
        parts = local_values(self.strategy.run(partial(self._replica_step, given)))
        if self._spec is None:
            self._spec = parts[0].spec
            if self._brings_hooks and self._is_watched(self._spec):
                self.store.begin_again()
                self.created(self._spec.evaluation_hooks)
                self.before_run()
                _, is_asked, is_shown = self._agreed(True)
                parts = local_values(self.strategy.run(partial(self._replica_step, given)))
        self._held.take_over()
        self._add_up(parts)
        if is_asked:
            self._read_shared()
        if is_shown:
            self._share_summaries()
        return True

    def _is_watched(self, spec: Spec) -> bool:
        """Whether hooks of any worker take part."""
        has_hooks = bool(self._hooks or spec.evaluation_hooks)
        return self.strategy.extended.workers.any_of_each([has_hooks], "who has hooks")[0]

    def _agreed(self, has_batch: bool) -> list[bool]:
        """Whether any worker has a batch, and whether hooks of any ask for what all must read, or
        for summaries."""
        flags = [has_batch, self._wants_shared, self.wants_summaries]
        return self.strategy.extended.workers.any_of_each(flags, "what a step of evaluation needs")

    def _add_up(self, parts: Sequence[_Evaluated]) -> None:
        self._logs = [(part.num_examples, part.logs) for part in parts]
        loss_times_examples = sum([float(part.loss) * part.num_examples for part in parts])
        num_examples = sum([part.num_examples for part in parts])
        if num_examples:
            self.loss = loss_times_examples / num_examples
        self._loss_times_examples += loss_times_examples
        self._num_examples += num_examples

    def _replica_step(self, batches: Sequence[ReplicaBatch]) -> _Evaluated:
        replica = get_replica_context()
        assert replica is not None
        given = batches[replica.local_index]
        num_examples = given.num_examples
        self.store.build_for_good()  # a replica's context ends with this call
        self._show_for_good(replica.local_index, num_examples)
        with no_grad(), given.taken_by(replica):
            self._step_counter = get_or_create_global_step()
            spec = self._model(given.batch, ModeKeys.EVAL)
        hooks = {"evaluation_hooks": spec.evaluation_hooks}
        # A name of the model's own hides none of those that every run has.
        named = {**(spec.named or {}), **spec.eval_metric_ops, "loss": spec.loss}
        self._held.note(replica.local_index, num_examples, hooks, named)
        has_loss = spec.loss is not None and num_examples > 0
        loss = replica.device.fetch(lift_array(spec.loss).data) if has_loss else 0.0
        return _Evaluated(loss, num_examples, spec, arrays_of(spec.logs))

    def results(self) -> dict[str, Any]:
        """Metrics, the loss (the mean over all examples) and the global step, over all workers."""
        assert self._spec is not None
        with self.strategy.scope():
            metrics = {name: m.result() for name, m in self._spec.eval_metric_ops.items()}
        loss_times_examples, num_examples = self.strategy.extended.workers.add_up_numbers(
            [self._loss_times_examples, self._num_examples], "loss"
        )
        found = {name: _plain(value) for name, value in metrics.items()}
        found["loss"] = _plain(loss_times_examples / num_examples)
        found["global_step"] = self.global_step
        return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class _Evaluated:
    """What one replica found for its batch."""

    loss: SupportsFloat
    num_examples: int
    spec: Spec
    logs: Mapping[str, Any]


def _plain(value: Any) -> Any:
    """A metric in single precision: a Python number, which JSON takes, or an array of them."""
    array = np.asarray(value, np.float32)
    return array if array.ndim else array.item()


def evaluate(
    session: EvaluationSession, batches: Iterable[Any], steps: int | None
) -> dict[str, Any]:
    """Evaluate until the data end, or for a number of steps.

    Several workers go in step, since their models may exchange something. One that has evaluated
    all that it is to evaluate takes part, without its hooks, until the last one has.

    Raises:
        ValueError: The data are empty, be it on one worker of several.
    """
    started, done = time.monotonic(), 0
    for done in evaluated(session, batches, steps):
        if steps is not None and _is_logged(done, steps):
            _logger.info("Evaluation [%d/%d]", done, steps)
    _logger.info("Inference Time : %.5fs, %d batch(es).", time.monotonic() - started, done)
    return session.results()


def evaluated(
    session: EvaluationSession, batches: Iterable[Any], steps: int | None
) -> Iterator[int]:
    """Evaluate as `evaluate` does; give, after each batch, how many there were so far."""
    batches = iter(batches)
    batch = first_with_examples(batches, session.strategy.extended.num_local_replicas)
    require_data(batch, session.strategy, " to evaluate")
    done = 0
    while session.step(batch):
        if batch is None:
            continue
        session.after_run()
        done += 1
        yield done
        is_over = session.stop_requested or done == steps
        batch = None if is_over else next(batches, None)
    session.end()


def _is_logged(done: int, steps: int) -> bool:
    """Every step of a short evaluation, ten lines of a long one."""
    return steps < 20 or done % max(1, steps // 10) == 0 or done == steps
