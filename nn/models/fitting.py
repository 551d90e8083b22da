"""`fit`, `evaluate` and `predict` of a model: callers of the sessions of `training/`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, final

import numpy as np

from ...autodiff import by_host
from ...inputs import (
    Dataset,
    DatasetIterator,
    DistributedDataset,
    current_default_seed,
    default_seed,
    entropy_seed,
    nest,
    require_one_order,
)
from ...strategies import (
    DEFAULT_STRATEGY,
    Job,
    Strategy,
    TrainOp,
    VariableStore,
    current_store,
    get_or_create_global_step,
    get_strategy,
    group,
    interrupts_pass_gate,
    local_values,
    on_first_device,
    own_step,
)
from ...training import (
    EndOnSignalHook,
    EvaluationSession,
    ModeKeys,
    PredictionSession,
    ReplayedModel,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    SignalWatch,
    Spec,
    TrainingSession,
    count_examples,
    evaluated,
)
from ...training import (
    predict as predictions_of,
)
from ..callbacks import CallbackList
from .data import Source
from .epochs import BatchCount, Epochs, require_same_epochs, uneven_counts, warn_of_end
from .on_servers import bring_here, require_servers, serve
from .trainable import Trainable

_logger = logging.getLogger("paceline")


@final
class _CallbackHook(SessionRunHook):
    """Tells callbacks of the batches of a session.

    Args:
        model: Whose `stop_training`, or `stop_evaluating`, ends it.
        callbacks: Whom.
        kind: "train" or "test".
        strategy: Whose workers all have such a hook.
    """

    def __init__(
        self, model: Trainable, callbacks: CallbackList, kind: str, strategy: Strategy
    ) -> None:
        self._callbacks = callbacks
        self._model = model
        self._stop = {"train": "stop_training", "test": "stop_evaluating"}[kind]
        self._begin, self._end = f"on_{kind}_batch_begin", f"on_{kind}_batch_end"
        self._workers = strategy.extended.workers
        # To read logs is a common call: where callbacks of any may want to, all ask in each step.
        asks = any(callback.may_want_batch_logs() for callback in callbacks)
        self._asks = self._workers.any_of_each([asks], "who reads logs of batches")[0]
        self.begin_pass()

    def begin_pass(self, batch: int = 0) -> None:
        """The batches are counted from the beginning again, or from `batch`."""
        self._batch, self._is_told = batch, False

    def tell_of_next(self) -> None:
        """A batch is about to be taken."""
        if not self._is_told:
            self._callbacks.tell(self._begin, self._batch, {})
        self._is_told = True

    def before_run(self, run_context: SessionRunContext) -> None:
        self.tell_of_next()

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        logs: dict[str, Any] = {}
        if self._asks:
            wants = self._callbacks.wants_batch_logs()
            if self._workers.any_of_each([wants], "who reads logs of this batch")[0]:
                logs = run_context.session.logs()
        self._callbacks.tell(self._end, self._batch, logs)
        self._batch, self._is_told = self._batch + 1, False
        if getattr(self._model, self._stop):
            run_context.request_stop()


def strategy_of(model: Trainable) -> Strategy:
    """The strategy that trains and evaluates a model.

    Raises:
        ValueError: It was made in the scope of another one than that which is current.
    """
    strategy, here = model.distribute_strategy, get_strategy()
    if here is not strategy and here is not DEFAULT_STRATEGY:
        raise ValueError(
            f"model {model.name!r} was made in the scope of {strategy!r} and is used in that of "
            f"{here!r}: make and compile it inside `with strategy.scope():` of the latter"
        )
    return strategy


def fit(model: Trainable, source: Source, epochs: Epochs, callbacks: CallbackList) -> None:
    """Train a model for some epochs.

    A task that keeps variables for others serves them, and ends its process when they are done.
    """
    strategy = strategy_of(model)
    if strategy.extended.server is not None:
        serve(strategy)
    require_servers(model, strategy)
    require_same_epochs(epochs, strategy)
    model.expect_restored()
    model.make_metrics()
    model.stop_training = False
    watch, job = SignalWatch(), strategy.extended.job
    distributed = _distributed(source, strategy)
    keeps_iterator = epochs.steps is not None and distributed.cardinality() != epochs.steps
    seed = _seed_of_all(strategy)
    with default_seed(seed):
        texts = job.texts(distributed.order(), "what the input of fit is made of")
        require_one_order(texts, job.num_trainers)
        batches = distributed.own_steps()
    try:
        with watch.installed(True), default_seed(seed), interrupts_pass_gate():
            hook = _CallbackHook(model, callbacks, "train", strategy)
            own = [EndOnSignalHook(watch, job)]
            call, forget = _training_call(model)
            session = TrainingSession(call, strategy, _store(model), [hook], own, batches)
            logs: dict[str, Any] = {}
            model.training_session = session
            callbacks.tell("on_train_begin", {})
            count = BatchCount()
            first, done, states = model.take_beginning() or (epochs.first, 0, ())
            if first > epochs.first or done:
                passes = 0 if keeps_iterator else first - epochs.first
                skipped = done + (first - epochs.first) * (epochs.steps or 0) * keeps_iterator
                if skipped:
                    session.begin_within(next(batches, None))
                batches = _gone_to(distributed, batches, passes, skipped, states, job)
                session.next_pass(batches)
            for epoch in range(first, epochs.last):
                if epoch > first and not keeps_iterator:
                    batches.close()
                    batches = distributed.own_steps()
                    session.next_pass(batches)
                callbacks.tell("on_epoch_begin", epoch, {})
                forget()
                found, goes_on = _train_epoch(model, session, hook, epochs, epoch, done, count)
                if found is None:  # the data had ended with the epoch before
                    break
                logs, done = found, 0
                if session.end_is_agreed:
                    callbacks.tell("on_train_interrupted")
                    job.leave()
                    raise watch.end()
                if distributed.is_shared:
                    _warn_of_short_input(session)
                callbacks.tell("on_epoch_end", epoch, logs)
                if not goes_on or _agreed(model.stop_training, strategy):
                    break
            account = str(count) if _shares_batches(source, distributed, strategy) else ""
            uneven = uneven_counts(session.finish(account), strategy.extended.shard[0] == 1)
            session.end()
            bring_here(model, strategy, uneven)
            with strategy.scope():  # variables become their averages, if the optimizer keeps them
                model.optimizer.finalize_variable_values(model.trainable_variables)
            callbacks.tell("on_train_end", logs)
    finally:
        model.training_session = None
        model.look_always()
        batches.close()


def _train_epoch(
    model: Trainable,
    session: TrainingSession,
    hook: _CallbackHook,
    epochs: Epochs,
    epoch: int,
    done: int,
    count: BatchCount,
) -> tuple[dict[str, Any] | None, bool]:
    """The logs of an epoch, and whether there is data for the next one.

    Without a step, in an epoch behind others, there are no logs.

    Args:
        done: How many of its batches were made before.
        count: Is told how many there were.
    """
    model.look_again()
    model.reset_metrics()
    hook.begin_pass(done)
    hook.tell_of_next()  # the first batch builds the model, and tells hooks only then
    begun = done
    while done != epochs.steps and session.make_next_step():
        session.after_run()
        done += 1
    count.note(epoch, done)
    if session.end_is_agreed:
        return {}, False
    has_ended = epochs.steps is not None and done < epochs.steps
    stops = _agreed(session.stop_requested, session.strategy)
    if has_ended and not stops:
        warn_of_end(epochs)
        if done == begun and epoch > epochs.first:
            return None, False
    logs = session.logs()
    if epochs.evaluate is not None and epochs.validated(epoch + 1):
        logs |= {f"val_{name}": value for name, value in epochs.evaluate().items()}
    return logs, not (has_ended or stops)


def _gone_to(
    distributed: DistributedDataset,
    batches: DatasetIterator,
    passes: int,
    skipped: int,
    states: Sequence[Any],
    job: Job,
) -> DatasetIterator:
    """The iterator of a run that was interrupted, where it stood.

    Args:
        distributed, batches: The data, and the iterator of their first pass, of which one batch was
            taken if any are to be skipped.
        passes: How many were ended.
        skipped: How many batches of the pass under way were made.
        states: Where the input of each worker stood; may be empty.
        job: That of the strategy.
    """
    # Each pass is counted: a shuffle gives it an order of its own.
    for _ in range(passes):
        batches.close()
        batches = distributed.own_steps()
    if not skipped:
        return batches
    try:
        batches.set_states(list(states), job.trainer_index)
    except ValueError as error:
        _logger.info("Skipping %d batches that were trained on: %s", skipped, error)
        for _ in range(skipped - (passes == 0)):
            next(batches, None)
    return batches


def _seed_of_all(strategy: Strategy) -> int | None:
    """A seed for shuffles that have none, the same for all that divide the data among them."""
    job = strategy.extended.job
    if job.num_trainers == 1 or current_default_seed() is not None:
        return None
    return int(job.text_from_chief(str(entropy_seed()), "seed of the input of fit"))


def _agreed(wish: bool, strategy: Strategy) -> bool:
    """Whether any worker wants to stop."""
    return strategy.extended.workers.any_of_each([wish], "who stops")[0]


def _warn_of_short_input(session: TrainingSession) -> None:
    """Say whose data have ended before those of the others; all workers call this."""
    workers = session.strategy.extended.workers
    had = workers.gather_numbers(session.had_batch, "who had data to the end")
    if not all(had):
        _logger.warning(
            "The input of worker(s) %s ended before that of the others. Workers read the same "
            "batches, and each trains on its part of them: the parts of these were left out. Let "
            "the input be the same on all workers.",
            ", ".join(str(index) for index, has in enumerate(had) if not has),
        )


def train_on_batch(model: Trainable, source: Source) -> dict[str, Any]:
    """One step on the only batch of `source`; the logs."""
    strategy = strategy_of(model)
    model.expect_restored()
    model.make_metrics()
    with closing(_distributed(source, strategy).own_steps()) as batches:
        session = TrainingSession(_call(model), strategy, _store(model), [], [], batches)
        session.make_next_step()
        session.after_run()
        model.look_always()
        return session.logs()


def evaluate(
    model: Trainable,
    source: Source,
    steps: int | None,
    callbacks: CallbackList,
    begins_anew: bool = True,
) -> dict[str, Any]:
    """The metrics of a model over all batches, or `steps` of them.

    With `begins_anew=False` they count what they have counted before, too. Where variables live on
    parameter servers each task evaluates by itself, on all data.
    """
    strategy = _evaluation_strategy(model)
    model.make_metrics()
    if begins_anew:
        model.reset_metrics()
    model.stop_evaluating = False
    hook = _CallbackHook(model, callbacks, "test", strategy)
    callbacks.tell("on_test_begin", {})
    with closing(iter(for_evaluation(model, source, steps))) as batches:
        session = EvaluationSession(
            _call(model), strategy, _store(model), [hook], brings_hooks=False
        )
        for _ in evaluated(session, batches, steps):
            pass
    model.look_always()
    logs = session.logs()
    callbacks.tell("on_test_end", logs)
    return logs


def for_evaluation(model: Trainable, source: Source, steps: int | None) -> DistributedDataset:
    """The batches that `evaluate` reads, divided among replicas, for several calls of it.

    Workers look for a batch behind the last step. It is cut off, so that a generator keeps it for
    the next validation, on any number of workers.
    """
    if steps is not None and isinstance(source, Dataset):
        source = source.take(steps)
    return _distributed(source, _evaluation_strategy(model))


def _evaluation_strategy(model: Trainable) -> Strategy:
    strategy = strategy_of(model)
    return strategy if strategy.extended.remote_storage is None else DEFAULT_STRATEGY


def predict(model: Trainable, source: Source, steps: int | None, callbacks: CallbackList) -> Any:
    """The predictions for all batches, or `steps` of them, in one structure of arrays."""
    callbacks.tell("on_predict_begin", {})
    strategy = on_first_device(_evaluation_strategy(model))
    session = PredictionSession(_call(model), _store(model), [], False, strategy)
    found = []
    with closing(iter(source)) as batches:
        given = _told(_counted(batches, steps), callbacks)
        for index, outputs in enumerate(predictions_of(session, given, None, False)):
            callbacks.tell("on_predict_batch_end", index, {"outputs": outputs})
            found.append(outputs)
    callbacks.tell("on_predict_end", {})
    if not found:
        raise ValueError("there is nothing to predict: the data gave no batch")
    return nest.map_structure(lambda *parts: np.concatenate(parts), *found)


def _counted(batches: DatasetIterator, steps: int | None) -> Iterator[Any]:
    """The batches of all local replicas, one after another, of so many steps."""
    done = 0
    while done != steps and (step := next(batches, None)) is not None:
        yield from (batch for batch in local_values(step) if count_examples(batch))
        done += 1


def _told(batches: Iterable[Any], callbacks: CallbackList) -> Iterator[Any]:
    for index, batch in enumerate(batches):
        callbacks.tell("on_predict_batch_begin", index, {})
        yield batch


def _store(model: Trainable) -> VariableStore:
    """Where the model's variables are, for steps that average over replicas."""
    return current_store().of_averages(model.step_counter())


def _distributed(source: Source, strategy: Strategy) -> DistributedDataset:
    """Global batches, divided among the replicas of all workers.

    Workers of parameter servers that make steps of their own take whole batches in turns.
    """
    if isinstance(source, DistributedDataset):
        return source
    extended = strategy.extended
    num_trainers = extended.job.num_trainers
    dataset: Dataset = source
    if extended.shard[0] == 1 and num_trainers > 1:
        dataset = dataset.shard(num_trainers, extended.job.trainer_index)
    return strategy.experimental_distribute_dataset(dataset)


def _shares_batches(source: Source, distributed: DistributedDataset, strategy: Strategy) -> bool:
    """Whether what one worker does not have of its data is read by no other."""
    if strategy.extended.shard[0] == 1:  # the dataset was cut for them, unless it came as it is
        return not isinstance(source, DistributedDataset)
    return distributed.is_shared


def _call(model: Trainable) -> Callable[[Any, ModeKeys], Spec]:
    """What a session asks of a model."""

    def call(batch: Any, mode: ModeKeys) -> Spec:
        if mode is ModeKeys.TRAIN:
            return _train_spec(model, batch)
        model.make_weights_where_trained(batch)
        if mode is ModeKeys.EVAL:
            return Spec(logs=model.test_step(batch))
        return Spec(predictions=model.predict_step(batch))

    return call


def _training_call(model: Trainable) -> tuple[Callable[[Any, ModeKeys], Spec], Callable[[], None]]:
    """The same for `fit`, and what is to be called when an epoch begins: see `look_again`."""
    if not model.replays_steps:
        return _call(model), lambda: None
    replayed = ReplayedModel(_call(model), name="train_step", setting="compile(jit_compile=True)")
    return replayed, replayed.forget


def _train_spec(model: Trainable, batch: Any) -> Spec:
    with own_step(count_examples(batch)) as step:
        logs = model.train_step(batch)
    asked = group(*step.deferred)
    return Spec(train_op=_counted_step(asked), is_made=step.is_made, logs=logs or {})


@by_host
def _counted_step(train_op: TrainOp) -> TrainOp:
    return TrainOp(train_op.updates, {*train_op.counters, get_or_create_global_step()})
