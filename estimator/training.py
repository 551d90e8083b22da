"""One training run: the loop, the step, and what hooks see of it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ..autodiff import Array, Tensor
from ..inputs import DatasetIterator, nest
from ..nn.optimizers import StepResult, TrainOp, make_step
from ..strategies import (
    Strategy,
    Variable,
    VariableStore,
    get_or_create_global_step,
    get_replica_context,
)
from ..strategies.values import local_values
from .fetches import name_of_fetch, variable_value
from .hooks import (
    NanTensorHook,
    RunningHooks,
    SessionRunHook,
)
from .input_function import log_batch_sizes
from .model_function import ModelFunction, split_features_and_labels
from .replica_batches import ReplicaBatch, ReplicaBatches, first_with_examples
from .shared_reads import SharedReads
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
        self.workers_with_bad_loss: list[str] = []
        self._has_bad_loss = False
        self.loss_asked_for: Tensor | None = None
        self._shared = SharedReads(strategy, store)
        self.num_examples = 0
        self.global_step = 0
        self.step_index = 0
        self.wants_save = self.wants_end = False
        self.save_is_agreed = self.end_is_agreed = False
        self.will_stop = self._all_stop = False
        self._model = model
        self._step_counter: Variable | None = None
        self.has_empty_step = False
        self._batches = ReplicaBatches(strategy)

    def will_run(self, fetches: Sequence[Any]) -> None:
        """Say before a step what `run` will be asked for after it."""
        self._shared.want(fetches, self.loss_asked_for)

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
            batches: A batch per replica, or None for none. A replica whose batch is empty takes
                part in everything and contributes nothing.
            veto: Whether this worker wants to stop instead.
            on_built: Called in the first step when all variables exist, before any is changed.

        Returns:
            Whether the step was made: not where nobody has a batch any more, or one has a veto, nor
            where all batches are empty (`has_empty_step`).
        """
        self.has_empty_step, is_alone = False, self.strategy.extended.num_workers == 1
        if batches is None and (is_alone or self._all_stop):
            return False  # nor is there another worker that makes a step
        given, before = self._batches.of_step(batches), self._assigned_values()
        if is_alone and not any(part.num_examples for part in local_values(given)):
            self.has_empty_step = True
            return False
        step = partial(self._replica_step, veto, on_built, batches is not None)
        result: StepResult = local_values(self.strategy.run(step, (given,)))[0]
        if not result.is_made:
            self.has_empty_step = not result.is_vetoed and result.sums[-1] > 0
            for leaf, value in before:
                leaf.data = value
            return False
        loss_times_examples, num_examples, *votes, _ = result.sums
        votes_to_save, votes_to_end, num_stopping, num_asking = votes
        self.loss = loss_times_examples / num_examples
        self.workers_with_bad_loss = [] if math.isfinite(self.loss) else self._whose_loss()
        self.num_examples = int(num_examples)
        self.save_is_agreed = votes_to_save > 0
        self.end_is_agreed = votes_to_end > 0
        self._all_stop = num_stopping == self.strategy.extended.num_replicas
        assert self._step_counter is not None
        self.step_index, self.global_step = self.global_step, int(self._step_counter.value_in(0))
        self.strategy.extended.workers.at_step(self.global_step)
        if num_asking > 0:
            self._shared.read()
        return True

    def _replica_step(
        self,
        veto: bool,
        on_built: Callable[[EstimatorSpec], None] | None,
        has_batch: bool,
        given: ReplicaBatch,
    ) -> StepResult:
        replica = get_replica_context()
        assert replica is not None
        with self.store.building(), given.taken_by(replica):
            if self._step_counter is None:  # before the model: what it draws depends on the step
                self._step_counter = get_or_create_global_step()
            spec = self._model(*split_features_and_labels(given.batch), ModeKeys.TRAIN)
            assert spec.loss is not None
            assert spec.train_op is not None
            if on_built is not None:
                self._build(spec.train_op)
                replica.merge_call(_call_on_built, (on_built, spec))
            loss_times_examples = spec.loss.item() * given.num_examples if given.num_examples else 0
            self._has_bad_loss |= not math.isfinite(loss_times_examples)
            votes = (self.wants_save, self.wants_end, self.will_stop, self._shared.are_wanted)
            sums = (loss_times_examples, given.num_examples, *votes, has_batch)
            return make_step(spec.train_op, given.num_examples, sums, veto)

    def _whose_loss(self) -> list[str]:
        """The workers with a loss that is no finite number; all have seen that there is one.

        A worker that is alone needs no name.
        """
        workers, has = self.strategy.extended.workers, int(self._has_bad_loss)
        found = workers.gather_numbers(has, "who has a loss that is no number")
        names = [f"worker {index}" for index, has in enumerate(found) if has]
        return names if len(found) > 1 else []

    def _assigned_values(self) -> list[tuple[Tensor, Array]]:
        """What `model_fn` may assign, for a step that turns out not to be made: it changes nothing.

        With one worker that is known before. An assignment lets a copy have another array.
        """
        if self.strategy.extended.num_workers == 1:
            return []
        variables = list(self.store.variables.values())
        leaves = [v.leaf(index) for v in variables for index in range(v.num_copies)]
        return [(leaf, leaf.data) for leaf in leaves]

    def _build(self, train_op: TrainOp) -> None:
        assert self._step_counter is not None
        self.global_step = int(self._step_counter.value_in(0))
        self.strategy.extended.workers.at_step(self.global_step)
        train_op.create_variables()

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
        shared = self._shared.value(name)
        if shared is not None:
            return shared
        with self.strategy.scope():
            return variable_value(self.store, name, ("loss", "step", "global_step"))


def _call_on_built(strategy: Strategy, on_built: Any, spec: Any) -> None:
    """In cross-replica context: `on_built` with the first replica's spec."""
    local_values(on_built)[0](local_values(spec)[0])


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
    """Refuse to begin where a worker has no example at all: it could not even build the model.

    Args:
        first_batch: This worker's first with an example; None for none.
        strategy: That of the run; all its workers call this.
        purpose: What the batch was for, for the error.

    Raises:
        ValueError: On all workers, if one has no example.
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
    batch = first_with_examples(batches, session.strategy.extended.num_local_replicas)
    require_data(batch, session.strategy)
    session.step(batch, False, built)
    log_batch_sizes(session.num_examples, session.strategy)
    while True:
        running.after_run()
        if not running.stop_requested:
            running.before_run()
        if not _make_next_step(session, batches, running.stop_requested):
            break
    if not session.end_is_agreed:
        session.finish()
    is_last = last_step is not None and session.global_step >= last_step
    reason = _reason(running.stop_requested, is_last, session.strategy)
    running.end()
    return TrainingEnd(session.global_step, session.loss, reason, session.end_is_agreed)


def _make_next_step(
    session: TrainingSession, batches: DatasetIterator, stop_requested: bool
) -> bool:
    """Make the next step in which somebody has examples; return whether there was one.

    Also a worker that wants to stop, or has no more data, takes part: so all stop together.
    """
    while True:
        batch = None if stop_requested else next(batches, None)
        if session.step(batch, stop_requested, None):
            return True
        if not session.has_empty_step:
            return False


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
