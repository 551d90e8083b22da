"""One call of `train`: who may train, what it begins with, which hooks take part, how it ends."""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from functools import partial
from typing import Any, final

from ..checkpoint import latest_checkpoint
from ..inputs import DatasetIterator
from ..nn.optimizers import restore_optimizers
from ..strategies import Strategy, get_strategy
from ..training import (
    EndOnSignalHook,
    ModeKeys,
    ModelCall,
    ReplayedModel,
    SignalWatch,
    TrainingEnd,
    TrainingSession,
    train,
)
from . import default_hooks
from .hooks import BuildReport, CheckpointWriter, NanTensorHook, ProgressHook
from .input_function import UnreadInput, batches_for_replicas, continue_input
from .model_dir import ModelDir
from .model_function import ModelFunction, copy_of_params
from .run_config import RunConfig
from .specs import TrainSpec

_logger = logging.getLogger("paceline")


@final
class Trainer:
    """Trains one model, again and again, each time from its newest checkpoint on.

    Args:
        model: What to train.
        model_dir: Its checkpoints.
        params: Handed to `input_fn`.
        config: How to run.
    """

    def __init__(
        self,
        model: ModelFunction,
        model_dir: ModelDir,
        params: dict[str, Any] | None,
        config: RunConfig,
    ) -> None:
        self._model = model
        self._dir = model_dir
        self._params = params
        self._config = config
        self._unread = UnreadInput()

    def train(
        self,
        spec: TrainSpec,
        steps: int | None,
        while_writing: AbstractContextManager[object] | None,
    ) -> TrainingEnd:
        """What `Estimator.train` does.

        Args:
            spec: The data, hooks and listeners, and the global step to end at.
            steps: How many steps to make; at most one of the two.
            while_writing: Entered by the chief when it has been given the right to write to
                `model_dir`, and left before it gives that back.
        """
        strategy = self._config.train_distribute or get_strategy()
        refuse_to_train_apart(self._config, strategy)
        job, watch = strategy.extended.job, SignalWatch()
        listeners = spec.saving_listeners if job.is_chief else ()
        hooks = [EndOnSignalHook(watch, job), *(spec.hooks or ())]
        spec = TrainSpec(spec.input_fn, spec.max_steps, hooks, listeners)
        held = while_writing if job.is_chief and while_writing is not None else nullcontext()
        with watch.installed(self._config.save_checkpoints_on_sigterm):
            with self._dir.writing(strategy.extended) as writer, held:
                end = self._train(strategy, spec, steps, writer)
            if end.is_preempted or watch.has_come:
                job.leave()
                raise watch.end(end.global_step)
        return end

    def _train(
        self, strategy: Strategy, spec: TrainSpec, steps: int | None, writer: CheckpointWriter
    ) -> TrainingEnd:
        config, extended, job = self._config, strategy.extended, strategy.extended.job
        # Parameter servers read for themselves.
        in_memory = extended.remote_storage is None
        newest = self._dir.newest_whole(in_memory) if job.is_chief else None
        start, states, optimizers = self._dir.beginning(newest, job)
        if spec.max_steps is not None and start >= spec.max_steps:
            _logger.info("Nothing to train: step %d ≥ max_steps %d.", start, spec.max_steps)
            job.finish()
            return TrainingEnd(start, None, f"max_steps={spec.max_steps} was reached before")
        last_step = spec.max_steps if steps is None else start + steps
        listeners = spec.saving_listeners or ()
        saver = default_hooks.saving(config, job, writer, listeners, start, last_step)
        job.tell_newest_checkpoint(partial(latest_checkpoint, self._dir.path, verify=True))
        with (
            ExitStack() as source,
            closing(self._batches(spec, strategy)) as batches,
            closing(ProgressHook(last_step, start)) as progress,
        ):
            store, restoring = self._dir.begin(newest, source, job.is_chief)
            restore_optimizers(store, optimizers)
            continue_input(batches, states, extended, start)
            if not states:
                self._unread.warn_of(batches)
            # What may refuse the run comes before what saves its beginning.
            own = [BuildReport(), NanTensorHook(), *restoring, progress, saver]
            own += default_hooks.reporting(config, extended)
            own += default_hooks.recording(
                config, strategy, self._params or {}, saver, last_step, source
            )
            own += default_hooks.ending(last_step)
            hooks = spec.hooks or ()
            session = TrainingSession(
                self._replayed(config.replay_steps),
                strategy,
                store,
                hooks,
                own,
                batches,
                config.gradient_accumulation_steps,
            )
            _logger.info("Calling model_fn.")
            end = train(session, last_step)
            self._unread.note(batches)
        if job.is_chief and not end.is_preempted and saver.last_has_input:
            self._dir.end_input()
        # The chief comes here when it has written: who returns before could read an older one.
        extended.workers.number_from_chief(0, "the last checkpoint is written")
        _logger.info("Loss for final step: %.8g.", end.loss)
        # At parameter servers other workers may have made further steps meanwhile.
        is_within = last_step is not None and end.global_step <= last_step
        of_all = f" of {last_step}" if is_within else ""
        _logger.info("Training ended at step %d%s: %s.", end.global_step, of_all, end.reason)
        return end

    def _replayed(self, how: bool | str) -> ModelCall:
        return ReplayedModel(self._model, how == "captured") if how else self._model

    def _batches(self, spec: TrainSpec, strategy: Strategy) -> DatasetIterator:
        params = copy_of_params(self._params or {})
        return batches_for_replicas(spec.input_fn, strategy, ModeKeys.TRAIN, params, self._config)


def require_one_end(steps: int | None, max_steps: int | None) -> None:
    """Refuse to train until two moments, or until none that can come.

    Raises:
        ValueError: Both are given, or one is not positive.
    """
    if steps is not None and max_steps is not None:
        raise ValueError(
            f"steps={steps} and max_steps={max_steps} exclude each other: steps counts from "
            f"now, max_steps from the very beginning; give one of them"
        )
    for name, value in (("steps", steps), ("max_steps", max_steps)):
        if value is not None and value <= 0:
            raise ValueError(f"{name} must be > 0 or None, it is {value}")


def refuse_to_train_apart(config: RunConfig, strategy: Strategy) -> None:
    """Refuse what would train a model beside that of the others.

    Raises:
        ValueError: This task does not train, the cluster has parameter servers, or it has
            several workers and the strategy knows of one.
    """
    if config.task_type in ("evaluator", "ps"):
        raise ValueError(
            f"this process is {config.task_type} {config.task_id}, which does not train; call "
            f"train_and_evaluate, the same in every process of the job"
        )
    if config.num_ps_replicas and strategy.extended.remote_storage is None:
        raise ValueError(
            f"the cluster has {config.num_ps_replicas} parameter servers (ps), which "
            f"{strategy!r} does not use; leave them out, or pass "
            f"RunConfig(train_distribute=ParameterServerStrategy())"
        )
    num_workers = config.num_worker_replicas
    if num_workers > 1 and strategy.extended.job.num_trainers == 1:
        raise ValueError(
            f"the cluster has {num_workers} workers, but {strategy!r} trains each of them "
            f"alone; pass RunConfig(train_distribute=MultiWorkerMirroredStrategy())"
        )
