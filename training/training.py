"""One training run: the loop, the step, and what hooks see of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, SupportsFloat, final

from ..autodiff import Array, Tensor, lift_array
from ..cluster import tune_malloc
from ..inputs import DatasetIterator
from ..observe import phase
from ..strategies import (
    StepResult,
    Strategy,
    TrainOp,
    Variable,
    VariableStore,
    accumulate,
    get_or_create_global_step,
    get_replica_context,
    interrupts_pass_gate,
    local_values,
    make_step,
)
from ..summary import Mean
from .batches import (
    ReadAhead,
    ReplicaBatch,
    ReplicaBatches,
    first_with_examples,
    require_data,
)
from .fetches import arrays_of
from .session import Session, SessionRunHook
from .spec import ModeKeys, ModelCall, Spec

_HOOKS = ("training_chief_hooks", "training_hooks")


@final
class TrainingSession(Session):
    """The state of a training run.

    Args:
        model: What to train.
        strategy: How to distribute it.
        store: Its variables; those of a checkpoint, or still to be made.
        hooks: Those of the call, told about each step.
        own_hooks: Those of the package, told before.
        batches: An iterator of one batch per replica.
        batches_per_step: How many of them each replica takes for one step, which is that of one
            batch of all their examples; the last step takes what is left. What hooks ask of a model
            and what it shows are those of the last batch; the loss is that of all.

    Attributes:
        had_batch: Whether this worker had data in the step that was made last.
    """

    def __init__(
        self,
        model: ModelCall,
        strategy: Strategy,
        store: VariableStore,
        hooks: Sequence[SessionRunHook],
        own_hooks: Sequence[SessionRunHook],
        batches: DatasetIterator,
        batches_per_step: int = 1,
    ) -> None:
        super().__init__(strategy, store, hooks, own_hooks)
        tune_malloc()  # each step allocates the same arrays again
        self.wants_summaries = True  # of the first step, before the hooks can be asked
        self._model = model
        self._input = ReadAhead(batches)
        self._batches = ReplicaBatches(strategy)
        self._batches_per_step = batches_per_step
        # What cannot change from step to step is asked once.
        self._workers, self._job = strategy.extended.workers, strategy.extended.job
        # Where it has no workers: with trainers whose pushes parameter servers wait for in a step.
        self._shares_steps = strategy.extended.is_synchronous and self._job.num_trainers > 1
        self._step_counter: Variable | None = None
        self._global_step = 0
        self._step_index = 0
        self._is_built = False
        self._all_stop = False
        # What each replica says with the step that is being made.
        self._has_batch = False
        self.had_batch = True
        self._veto = False
        self._losses: list[list[tuple[SupportsFloat, int]]] = []
        """Of each local replica, for each batch of the step: its loss, and its examples."""
        # To others it travels with the step. Who is alone reads it when a card has been given all
        # that there is to do.
        self._tells_loss = not self._is_alone or strategy.extended.remote_storage is not None
        self._is_made_within = False
        num_replicas = strategy.extended.num_local_replicas
        self._noted_logs: list[tuple[int, Mapping[str, Any]]] = [(0, {})] * num_replicas

    @property
    def global_step(self) -> int:
        return self._global_step

    @property
    def figures(self) -> Mapping[str, Any]:
        figures = self.strategy.extended.figures
        return {"loss": self.loss, "step": self._step_index, **figures}

    def next_pass(self, batches: DatasetIterator) -> None:
        """Go on with another iterator, as all workers do, for whom the last one has ended."""
        self._input = ReadAhead(batches)
        self.tell_input_state(self._input.get_state)

    def begin_within(self, first_batch: Any) -> None:
        """Begin in the midst of a pass, where a worker may have no example any more.

        Args:
            first_batch: What the pass began with on this worker: it builds the model, if need be.

        Raises:
            ValueError: On all workers, if one has no example in it.
        """
        first = first_with_examples([first_batch], self.strategy.extended.num_local_replicas)
        require_data(first, self.strategy)
        self._batches.of_step(first)

    def _make_first_step(self) -> None:
        """Build the model, tell the hooks, and make the first step in which somebody has examples.

        A worker that has none in it builds the model from those that come later.

        Raises:
            ValueError: The data are empty.
        """
        # The checkpoint before the first update is saved when a batch was taken already, which is
        # not in it: who restores it has to get that batch again.
        beginning = self._input.get_state()
        self.tell_input_state(lambda: beginning)
        num_replicas = self.strategy.extended.num_local_replicas
        first = self._input.first_with_examples(num_replicas)
        require_data(first, self.strategy)
        self._batches.of_step(first)
        if not (self._is_alone and self._shares_steps):
            num_empty = self._input.num_empty // self._batches_per_step
            found = self._workers.gather_numbers(num_empty, "steps before the first examples")
            for _ in islice(self._input, min(found) * self._batches_per_step):
                pass  # nobody has any there: the model is to assign nothing
        while not any(self._make_step(tuple(islice(self._input, self._batches_per_step)))):
            pass  # trainers at parameter servers do not know that nobody has any

    def make_next_step(self) -> bool:
        """Make the next step in which somebody has examples; return whether there was one.

        The first one builds the model. Hooks are told that it is about to be made. Also a worker
        that wants to stop, or has no more data, takes part: so all stop together.

        Raises:
            ValueError: The data are empty.
        """
        if not self._is_built and not self._batches.has_had_examples:
            self._make_first_step()
            return True
        if self._is_built and not self.stop_requested:
            self.before_run()
        stopwatch = self.stopwatches[0]
        while True:
            outer = stopwatch.switch("input")
            batches = self._next_batches(self._batches_per_step)
            stopwatch.switch(outer)
            is_made, is_over = self._make_step(batches)
            if is_made or is_over:
                return is_made

    def finish(self, account: str = "") -> Mapping[int, str]:
        """Wait, as the chief, until nobody makes steps any more; the global step is final then.

        Args:
            account: What this worker has done.

        Returns:
            See `Job.finish`.
        """
        accounts = self._job.finish(account, self._while_others_train)
        self._global_step = self._count()
        return accounts

    def _while_others_train(self) -> None:
        self._global_step = self._count()
        if self.saver is not None:
            self.saver.save_if_due(self)

    def _next_batches(self, num: int) -> Sequence[Any]:
        """At most so many: fewer at the end of the input, none where this worker wants to stop."""
        return () if self.stop_requested else tuple(islice(self._input, num))

    def _make_step(self, batches: Sequence[Any]) -> tuple[bool, bool]:
        """Make one step on all replicas of all workers.

        Args:
            batches: A batch per replica, for each of the batches of a step. A replica whose batch
                is empty takes part in everything and contributes nothing.

        Returns:
            Whether it was made, and whether it is the last: it is not made where all batches are
            empty, nor at the end, where nobody has a batch any more or a worker wants to stop.
        """
        is_alone = self._is_alone
        if not batches and (is_alone or self._all_stop):
            return False, True  # nor is there another worker that makes a step
        if self._is_made_within and not is_alone and self._ends_before(bool(batches)):
            return False, True
        # A worker whose data have ended computes on a batch that stands in: the others' models wait
        # for its part in what they exchange. Only the sums of the step tell whether any had data.
        parts = [self._batches.of_step(part) for part in batches]
        if is_alone:
            has_examples = [replica.num_examples > 0 for part in parts for replica in part]
            if True not in has_examples and not self._shares_steps:
                return False, False
        else:
            missing = range(self._batches_per_step - len(parts))
            # In front: what hooks read is of the last one.
            parts = [*(self._batches.of_step(None) for _ in missing), *parts]
        before = self._assigned_values()
        self._has_batch, self._veto = bool(batches), self.stop_requested
        self._losses = [[] for _ in parts[-1]]
        for part in parts[:-1]:
            self.strategy.run(partial(self._replica_step, part, False))
            self._is_built = True
        made = self.strategy.run(partial(self._replica_step, parts[-1]))
        result: StepResult = local_values(made)[0]
        self._is_built = True
        if not result.is_made:
            for leaf, value in before:
                leaf.data = value
            if is_alone and self._count() > self._global_step:  # other workers have made it
                self._note(result.sums)
                return True, False
            return False, result.is_vetoed or not result.sums[-1]
        self._note(result.sums)
        return True, False

    def _ends_before(self, has_batch: bool) -> bool:
        """Whether a worker wants to stop, or none has a batch: asked before the model is called.

        For one that changes variables itself: then it is too late for a veto.
        """
        wants, has = self._workers.any_of_each(
            [self.stop_requested, has_batch], "whether to make a step"
        )
        return wants or not has

    def _replica_step(
        self, batches: Sequence[ReplicaBatch], is_last: bool = True
    ) -> StepResult | None:
        replica = get_replica_context()
        assert replica is not None
        index = replica.local_index
        given = batches[index]
        # A replica's context ends with this call: nothing has to be put back.
        self.stopwatches[index].run_for_good()
        self.store.build_for_good()
        self._show_for_good(index, given.num_examples)
        with given.taken_by(replica):
            if self._step_counter is None:  # before the model: what it draws depends on the step
                self._step_counter = get_or_create_global_step()
            with phase("forward"):
                spec = self._model(given.batch, ModeKeys.TRAIN)
            assert spec.train_op is not None
            self._noted_logs[index] = given.num_examples, spec.logs and arrays_of(spec.logs)
            self._is_made_within = spec.is_made
            if self._held.follows:
                hooks = {name: getattr(spec, name) for name in _HOOKS}
                named = {**(spec.named or {}), "loss": spec.loss}
                self._held.note(index, given.num_examples, hooks, named)
            if not self._is_built:
                self._build(spec.train_op)
                replica.merge_call(self._begin_run, (spec,))
            losses = self._losses[index]
            num_before = sum([n for _, n in losses]) if losses else 0
            # Of a batch that stands in the loss may be no number.
            if given.num_examples:
                loss = (
                    0.0 if spec.loss is None else replica.device.fetch(lift_array(spec.loss).data)
                )
                losses.append((loss, given.num_examples))
            if not is_last:
                accumulate(spec.train_op, given.num_examples, num_before)
                return None
            # The votes travel in the same exchange as the loss, so that all workers save, stop or
            # read together without a call of its own for that.
            stops = (self.wants_save, self.wants_end, self.wants_stop, self.will_stop)
            votes = (*stops, self._wants_shared, self.wants_summaries)
            num_examples = num_before + given.num_examples
            loss_times_examples = _times_examples(losses) if self._tells_loss else 0.0
            sums = (loss_times_examples, num_examples, *votes, self._has_batch)
            if self.wants_summaries:
                self._show_rates(spec.train_op, index)
            result = make_step(
                spec.train_op, given.num_examples, sums, self._veto, num_accumulated=num_before
            )
            if self.wants_summaries and self.wants_gradient_norm and result.is_made:
                self._show_norms(spec.train_op, index)
            return result

    def _show_rates(self, train_op: TrainOp, index: int) -> None:
        """Show the learning rate of each update; two of one name are numbered."""
        for update in train_op.updates:
            num_updates = int(update.updater.iterations.value_in(index))
            rate = float(update.updater.rate_after(num_updates))
            self._shown[index][0].note("learning_rate", Mean(rate, 1))

    def _show_norms(self, train_op: TrainOp, index: int) -> None:
        for update in train_op.updates:
            self._shown[index][0].note("gradient_norm", Mean(update.reduced_norm(index), 1))

    def _build(self, train_op: TrainOp) -> None:
        """Create what the step needs besides the model's variables, before any is changed."""
        self._global_step = self._count()
        self._workers.at_step(self._global_step)
        train_op.create_variables()

    def _begin_run(self, strategy: Strategy, specs: Any) -> None:
        """In cross-replica context, when all variables exist: tell the hooks."""
        spec: Spec = local_values(specs)[0]
        chief_hooks = spec.training_chief_hooks if strategy.extended.job.is_chief else ()
        with self.store.as_created():
            self.created(spec.training_hooks, chief_hooks)
        # From here on a checkpoint has this step's update: also one that servers make of its push.
        self.tell_input_state(self._input.get_state)
        self.before_run()

    def _note(self, sums: Sequence[float]) -> None:
        """Take over what a step that was made came to, over all replicas of all workers."""
        self.had_batch = self._has_batch
        loss_times_examples, num_examples, *votes, _ = sums
        votes_to_save, votes_to_end, votes_to_stop, *others = votes
        num_stopping, num_asking, num_watching = others
        if not self._tells_loss:
            loss_times_examples = sum(map(_times_examples, self._losses))
        if num_examples:  # else the others had them all, of whom one at servers knows nothing
            if self._held.follows:
                self._held.take_over()
            self._logs = tuple(self._noted_logs)
            self.loss = loss_times_examples / num_examples
            self.workers_with_bad_loss = [] if math.isfinite(self.loss) else self._whose_loss()
        self.num_examples = int(num_examples)
        self.save_is_agreed = votes_to_save > 0
        self.end_is_agreed = votes_to_end > 0
        self._all_stop = votes_to_stop > 0 or num_stopping == self.strategy.extended.num_replicas
        # Read, not counted: with asynchronous servers others have made steps meanwhile.
        self._step_index, self._global_step = self._global_step, self._count()
        self._workers.at_step(self._global_step)
        stop_step = self._job.stop_step
        if votes_to_stop > 0 or (stop_step is not None and self._global_step >= stop_step):
            self.stop_requested = True
        if num_asking > 0:
            self._read_shared()
        if num_watching > 0:
            self._share_summaries()

    def _count(self) -> int:
        assert self._step_counter is not None
        return int(self._step_counter.value_in(0))

    def _whose_loss(self) -> list[str]:
        """The workers with a loss that is no finite number; all have seen that there is one.

        A worker that is alone needs no name.
        """
        workers, own = self.strategy.extended.workers, sum(map(_times_examples, self._losses))
        has = int(not math.isfinite(own))
        found = workers.gather_numbers(has, "who has a loss that is no number")
        names = [f"worker {index}" for index, has in enumerate(found) if has]
        return names if len(found) > 1 else []

    def _assigned_values(self) -> list[tuple[Tensor, Array]]:
        """What `model_fn` may assign, for a step that turns out not to be made: it changes nothing.

        With one worker that is known before. An assignment lets a copy have another array. A number
        that is still on its way to a counter was counted by an earlier step, and is added anyhow.
        """
        if self._is_alone:
            return []
        variables = [v for v in list(self.store.variables.values()) if not v.cell.is_late]
        leaves = [v.leaf(index) for v in variables for index in range(v.num_copies)]
        return [(leaf, leaf.data) for leaf in leaves]


def _times_examples(losses: Sequence[tuple[SupportsFloat, int]]) -> float:
    """The sum of what batches have lost, by their losses and numbers of examples."""
    return sum([float(loss) * num_examples for loss, num_examples in losses], 0.0)


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


def train(session: TrainingSession, last_step: int | None = None) -> TrainingEnd:
    """Make steps until the data end or a hook asks to stop.

    Args:
        session: What is trained.
        last_step: The global step at which a hook asks to stop, to say so at the end.

    Raises:
        ValueError: The data are empty.
    """
    with session.stopwatches[0].running(), interrupts_pass_gate():
        while session.make_next_step():
            session.after_run()
        if not session.end_is_agreed:
            session.finish()
        is_last = last_step is not None and session.global_step >= last_step
        session.end_reason = _reason(session, is_last)
        session.end()
    reason, is_preempted = session.end_reason, session.end_is_agreed
    return TrainingEnd(session.global_step, session.loss, reason, is_preempted)


_REQUESTS = ("a hook asked to stop", "max_steps was reached", "a signal asked to end it")
_REASONS = ("the input ended", *_REQUESTS)  # each stronger than those in front of it


def _reason(session: TrainingSession, is_last_step: bool) -> str:
    """Why the run has ended, the same on all workers, who all call this.

    They may have different limits: that of one ends the run of all.
    """
    asks = (session.stop_requested, is_last_step, session.end_is_agreed)
    own = max(number * has for number, has in enumerate(asks, 1))
    found = session.strategy.extended.workers.gather_numbers(own, "why the run ends")
    strongest = max(found)
    where = "" if all(found) or not strongest else f" on worker {found.index(strongest)}"
    return f"{_REASONS[strongest]}{where}"
