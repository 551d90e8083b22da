"""One training run: the loop, the step, and what hooks see of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..inputs import DatasetIterator, nest
from ..nn.optimizers import StepResult, TrainOp, make_step
from ..strategies import (
    PerReplica,
    Strategy,
    Variable,
    VariableStore,
    get_or_create_global_step,
    get_replica_context,
)
from .hooks import (
    NO_VALUES,
    NanTensorHook,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .input_function import log_batch_sizes
from .model_function import ModelFunction, count_examples, split_features_and_labels
from .specs import EstimatorSpec, ModeKeys

_logger = logging.getLogger("paceline")


class TrainingSession:
    """The state of a training run.

    Args:
        model: What to train.
        strategy: How to distribute it.
        store: Its variables; those of a checkpoint, or still to be made.
    """

    def __init__(self, model: ModelFunction, strategy: Strategy, store: VariableStore) -> None:
        self.strategy = strategy
        self.store = store
        self.loss: float | None = None
        self.num_examples = 0
        self.global_step = 0
        self.step_index = 0
        self.wants_save = self.wants_end = False
        self.save_is_agreed = self.end_is_agreed = False
        self._model = model
        self._step_counter: Variable | None = None
        self._usual_train_op: TrainOp | None = None

    def run(self, fetches: Any) -> Any:
        """The present values of names, in the structure of `fetches` (see `SessionRunArgs`)."""
        return nest.map_structure(self._value, fetches)

    def values(self) -> dict[str, Any]:
        """The values of all variables that belong into a checkpoint, by name.

        They are not copies: the next step changes them.
        """
        with self.strategy.scope():
            return self.store.saved_values()

    def input_states(self) -> list[dict[str, Any]]:
        """Where the input of each worker stands after the latest step; all workers call this."""
        job = self.strategy.extended.job
        texts = job.input_states()
        if not all(texts):
            if not job.is_chief:  # nor does it save
                return []
            _logger.info("It is not known yet where the input of all workers stands.")
            return []
        return [json.loads(text) for text in texts]

    def tell_input_state(self, state: Callable[[], dict[str, Any]]) -> None:
        """Let checkpoints hold where this worker's input stands."""
        self.strategy.extended.job.tell_input_state(lambda: json.dumps(state()))

    def finish(self) -> None:
        """Wait, as the chief, until nobody makes steps any more; the global step is final then."""
        self.strategy.extended.job.finish()
        assert self._step_counter is not None
        self.global_step = int(self._step_counter.value_in(0))

    def step(
        self, batches: Any, veto: bool, on_built: Callable[[EstimatorSpec], None] | None
    ) -> bool:
        """Make one step on all replicas of all workers.

        Args:
            batches: A batch per replica, or None for none. A replica whose batch is empty
                contributes nothing.
            veto: Whether this worker wants to stop instead.
            on_built: Called in the first step when all variables exist, before any is changed.

        Returns:
            Whether the step was made: not where nobody has a batch any more, or one has a veto.
        """
        results = self.strategy.run(partial(self._replica_step, veto, on_built), (batches,))
        result = results.values[0] if isinstance(results, PerReplica) else results
        self._usual_train_op = result.train_op
        if not result.is_made:
            return False
        loss_times_examples, num_examples, votes_to_save, votes_to_end = result.sums
        self.loss = loss_times_examples / num_examples
        self.num_examples = int(num_examples)
        self.save_is_agreed = votes_to_save > 0
        self.end_is_agreed = votes_to_end > 0
        assert self._step_counter is not None
        self.step_index, self.global_step = self.global_step, int(self._step_counter.value_in(0))
        self.strategy.extended.workers.at_step(self.global_step)
        return True

    def _replica_step(
        self, veto: bool, on_built: Callable[[EstimatorSpec], None] | None, batch: Any
    ) -> StepResult:
        replica = get_replica_context()
        assert replica is not None
        num_examples = 0 if batch is None else count_examples(batch)
        spec, loss = None, 0.0
        with self.store.building():
            if num_examples:
                spec = self._model(*split_features_and_labels(batch), ModeKeys.TRAIN)
                assert spec.loss is not None
                loss = spec.loss.item()
            if on_built is not None:
                self._build(spec)
                replica.merge_call(_call_on_built, (on_built, spec))
            return make_step(
                spec.train_op if spec is not None else None,
                num_examples,
                (loss * num_examples, num_examples, self.wants_save, self.wants_end),
                veto,
                self._usual_train_op,
            )

    def _build(self, spec: EstimatorSpec | None) -> None:
        self._step_counter = get_or_create_global_step()
        self.global_step = int(self._step_counter.value_in(0))
        self.strategy.extended.workers.at_step(self.global_step)
        if spec is not None and spec.train_op is not None:
            spec.train_op.create_variables()

    def _value(self, name: str) -> Any:
        if name == "loss":
            return self.loss
        if name == "step":
            return self.step_index
        if name == "global_step":
            return self.global_step
        figures = self.strategy.extended.storage.figures
        if name in figures:
            return figures[name]
        with self.strategy.scope():
            return variable_value(self.store, name, ("loss", "step", "global_step"))


def _call_on_built(strategy: Strategy, on_built: Any, spec: Any) -> None:
    """In cross-replica context: `on_built` with the first replica's spec that there is."""
    specs = spec.values if isinstance(spec, PerReplica) else (spec,)
    call = on_built.values[0] if isinstance(on_built, PerReplica) else on_built
    call(next(s for s in specs if s is not None))


def variable_value(store: VariableStore, name: str, others: Sequence[str]) -> np.ndarray:
    """The value of a variable that a hook asks for. Call it in cross-replica context.

    Args:
        others: What hooks can ask for besides variables, for the error.

    Raises:
        ValueError: There is no such variable.
    """
    if name not in store.variables:
        there_are = ", ".join([*others, *sorted(store.variables)])
        raise ValueError(f"a hook asks for {name!r}; there are {there_are}")
    return store.variables[name].numpy()


def asked_for(session: Session, request: SessionRunArgs | None) -> SessionRunValues:
    """The values that a hook wants to know after a step."""
    return NO_VALUES if request is None else SessionRunValues(session.run(request.fetches))


@dataclass(frozen=True)
class TrainingEnd:
    """How a training run ended.

    Args:
        global_step: The steps made in all, earlier runs included.
        loss: That of the last step; None where no step was made.
        reason: In words, for the log and for `train_and_evaluate`.
        is_preempted: Whether a worker was told to end by SIGTERM.
    """

    global_step: int
    loss: float | None
    reason: str
    is_preempted: bool = False


def require_data(first_batch: Any, strategy: Strategy, purpose: str = "") -> None:
    """Refuse to begin where a worker has no batch at all: it could not even build the model.

    Args:
        first_batch: This worker's; None for none.
        strategy: That of the run; all its workers call this.
        purpose: What the batch was for, for the error.

    Raises:
        ValueError: On all workers, if one has no batch.
    """
    has_data = int(first_batch is not None)
    have_data = strategy.extended.workers.gather_numbers(has_data, f"first batch{purpose}")
    without = [f"worker {i}" for i, has in enumerate(have_data) if not has]
    if without:
        who = "" if len(have_data) == 1 else f" on {', '.join(without)} of {len(have_data)}"
        raise ValueError(
            f"input_fn gave no batch{purpose}{who}: the dataset is empty. Check the files or "
            f"arrays that it reads and that no filter, take or shard leaves nothing over"
        )


def train(
    session: TrainingSession, batches: DatasetIterator, hooks: Sequence[SessionRunHook]
) -> TrainingEnd:
    """Make steps until the data end or a hook asks to stop.

    Args:
        session: What is trained.
        batches: An iterator of one batch per replica and step.
        hooks: Told about each step, in this order; the watch over the loss comes before all.

    Raises:
        ValueError: The data are empty.
    """
    hooks = [NanTensorHook(), *hooks]
    for hook in hooks:
        hook.begin()

    context = SessionRunContext(session)
    requests: list[SessionRunArgs | None] = []

    def built(spec: EstimatorSpec) -> None:
        is_chief = session.strategy.extended.job.is_chief
        for hook in [*(spec.training_chief_hooks if is_chief else ()), *spec.training_hooks]:
            hook.begin()
            hooks.append(hook)
        for hook in hooks:
            hook.after_create_session(session)
        requests.extend(hook.before_run(context) for hook in hooks)

    beginning = batches.get_state()
    session.tell_input_state(lambda: beginning)  # of the checkpoint before the first update
    batch = next(batches, None)
    require_data(batch, session.strategy)
    session.step(batch, False, built)
    session.tell_input_state(batches.get_state)
    log_batch_sizes(session.num_examples, session.strategy)
    while True:
        for hook, request in zip(hooks, requests, strict=True):
            hook.after_run(context, asked_for(session, request))
        if context.stop_requested:
            batch, requests = None, []
        else:
            batch = next(batches, None)
            requests = [hook.before_run(context) for hook in hooks]
        # Also a worker that wants to stop, or has no more data, takes part: so all stop together.
        if not session.step(batch, context.stop_requested, None):
            break
    reason = _reason(context.stop_requested, session.strategy)
    if not session.end_is_agreed:
        session.finish()
    for hook in hooks:
        hook.end(session)
    return TrainingEnd(session.global_step, session.loss, reason, session.end_is_agreed)


def _reason(stop_requested: bool, strategy: Strategy) -> str:
    """Why the run has ended, the same on all workers, who all call this."""
    asked = strategy.extended.workers.gather_numbers(int(stop_requested), "who asked to stop")
    if not any(asked):
        return "the input ended"
    where = "" if all(asked) else f" on worker {asked.index(1)}"
    return f"a hook asked to stop{where}"
