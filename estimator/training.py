"""One training run: the loop, the step, and what hooks see of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..autodiff import Tensor
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
from .fetches import name_of_fetch, variable_value
from .hooks import (
    NanTensorHook,
    RunningHooks,
    SessionRunHook,
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
        self.loss_asked_for: Tensor | None = None
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

    def _value(self, fetch: Any) -> Any:
        name = name_of_fetch(fetch, self.loss_asked_for)
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


@dataclass(frozen=True)
class TrainingEnd:
    """How a training run ended.

    Args:
        global_step: The steps made in all, earlier runs included.
        loss: That of the last step; None where no step was made.
        reason: In words, for the log and for `train_and_evaluate`.
        is_preempted: Whether a worker was told to end by SIGTERM or Ctrl-C.
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
    session: TrainingSession,
    batches: DatasetIterator,
    hooks: Sequence[SessionRunHook],
    last_step: int | None = None,
) -> TrainingEnd:
    """Make steps until the data end or a hook asks to stop.

    Args:
        session: What is trained.
        batches: An iterator of one batch per replica and step.
        hooks: Told about each step, in this order; the watch over the loss comes before all.
        last_step: The global step at which one of them asks to stop, to say so at the end.

    Raises:
        ValueError: The data are empty.
    """
    running = RunningHooks(session, [NanTensorHook(), *hooks])

    def built(spec: EstimatorSpec) -> None:
        is_chief = session.strategy.extended.job.is_chief
        chief_hooks = spec.training_chief_hooks if is_chief else ()
        of_the_model = [*chief_hooks, *spec.training_hooks]
        # Who asks for the loss itself holds it; nobody else should keep a batch's graph.
        session.loss_asked_for = spec.loss if of_the_model else None
        with session.store.as_created():
            running.created(of_the_model)
        # From here on a checkpoint has this step's update: also one that servers make of its push.
        session.tell_input_state(batches.get_state)
        running.before_run()

    beginning = batches.get_state()
    session.tell_input_state(lambda: beginning)  # of the checkpoint before the first update
    batch = next(batches, None)
    require_data(batch, session.strategy)
    session.step(batch, False, built)
    log_batch_sizes(session.num_examples, session.strategy)
    while True:
        running.after_run()
        if running.stop_requested:
            batch = None
        else:
            batch = next(batches, None)
            running.before_run()
        # Also a worker that wants to stop, or has no more data, takes part: so all stop together.
        if not session.step(batch, running.stop_requested, None):
            break
    if not session.end_is_agreed:
        session.finish()
    is_last = last_step is not None and session.global_step >= last_step
    reason = _reason(running.stop_requested, is_last, session.strategy)
    running.end()
    return TrainingEnd(session.global_step, session.loss, reason, session.end_is_agreed)


_REASONS = ("the input ended", "a hook asked to stop", "max_steps was reached")


def _reason(stop_requested: bool, is_last_step: bool, strategy: Strategy) -> str:
    """Why the run has ended, the same on all workers, who all call this.

    They may have different limits: that of one ends the run of all.
    """
    own = 2 if is_last_step else int(stop_requested)
    found = strategy.extended.workers.gather_numbers(own, "why the run ends")
    strongest = max(found)
    where = "" if all(found) or not strongest else f" on worker {found.index(strongest)}"
    return f"{_REASONS[strongest]}{where}"
