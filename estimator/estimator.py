"""`Estimator`: a `model_fn` with what it learned, and the verbs train, evaluate, predict."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from typing import Any, final

import numpy as np

from .. import checkpoint, observe
from ..cluster import agreed_model_dir, tune_malloc
from ..strategies import DEFAULT_STRATEGY, Strategy, VariableStore, get_strategy
from .evaluation import EvaluationSession, evaluate
from .hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    LoggingTensorHook,
    SessionRunHook,
    StepCounterHook,
    StopAtStepHook,
)
from .input_function import batches_for_replicas, continue_input
from .model_function import ModelFunction, restored_store
from .prediction import predict
from .progress_hook import ProgressHook
from .run_config import RunConfig
from .specs import ModeKeys
from .training import TrainingEnd, TrainingSession, train

_logger = logging.getLogger("paceline")


@final
class Estimator:
    """Trains, evaluates and uses a model that is given as a function.

    What it learned lies in checkpoints in `model_dir` and nowhere else: each call begins with the
    newest one, so that training twice continues, also in another process. Customise it by
    `model_fn`, hooks and strategy.

    Args:
        model_fn: `model_fn(features, labels, mode, params, config) -> EstimatorSpec`; `features` is
            mandatory, of the others it names what it needs. It is called anew for each batch,
            and finds its variables again by their names.
        model_dir: Where checkpoints go; may come from `config`; where both are given they agree.
        config: How to run.
        params: Handed to `model_fn` and `input_fn`.
        warm_start_from: A checkpoint, or a directory with some, whose variables a model begins with
            that has no checkpoint of its own.

    Raises:
        ValueError: Arguments that contradict each other, or a `model_fn` that cannot be called.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: str | os.PathLike[str] | None = None,
    ) -> None:
        observe.ensure_handler()
        config = config or RunConfig()
        if not isinstance(config, RunConfig):
            raise TypeError(f"config must be a paceline.RunConfig, it is {config!r}")
        self._config = config.replace(model_dir=_one_model_dir(model_dir, config))
        self._params = params
        self._model = ModelFunction(model_fn, params, self._config)
        self._model_fn = model_fn
        self._warm_start_from = None if warm_start_from is None else os.fspath(warm_start_from)
        self._saver: checkpoint.Saver | None = None
        _logger.info("Using config: %s", self._config.describe())

    @property
    def model_dir(self) -> str:
        assert self._config.model_dir is not None
        return self._config.model_dir

    @property
    def config(self) -> RunConfig:
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters."""
        return dict(self._params or {})

    @property
    def model_fn(self) -> Callable[..., Any]:
        return self._model_fn

    def eval_dir(self, name: str | None = None) -> str:
        """Where evaluations leave what they write."""
        return os.path.join(self.model_dir, f"eval_{name}" if name else "eval")

    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint, waiting for one that is being saved; None without."""
        self._wait_for_save()
        return checkpoint.latest_checkpoint(self.model_dir)

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the newest checkpoint.

        Raises:
            ValueError: There is none.
        """
        return sorted(self._newest().names)

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the newest checkpoint.

        Raises:
            ValueError: There is no checkpoint, or no such variable in it.
        """
        newest = self._newest()
        if name not in newest.names:
            raise ValueError(
                f"variable {name!r} is not in {newest.path}; it has {', '.join(newest.names)}"
            )
        return newest.read(name)

    def train(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> Estimator:
        """Train from the newest checkpoint on, and save.

        Args:
            input_fn: Returns a `Dataset` of batches (features, labels), each for *one replica*. Of
                the arguments mode, params, config and input_context it names what it needs.
            hooks: Take part in the run.
            steps: How many steps to make; with 10 and again 10 it is 20.
            max_steps: The global step to end at; nothing happens where it is reached already.
                At most one of the two; with neither training ends with the data.
            saving_listeners: Told before and after each checkpoint, on the chief.

        Returns:
            Itself; on every worker when the last checkpoint is written.

        Raises:
            ValueError: Both steps and max_steps, one that is not positive, an empty dataset, or a
                task that cannot train: an evaluator, a parameter server, a worker without a
                strategy that knows of the others.
            NanLossDuringTrainingError: The loss of a step was not finite.
            CheckpointError: `model_dir` cannot be written to.
        """
        self.train_and_report(input_fn, hooks, steps, max_steps, saving_listeners)
        return self

    def train_and_report(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
    ) -> TrainingEnd:
        """`train`, returning how it ended."""
        if steps is not None and max_steps is not None:
            raise ValueError(
                f"steps={steps} and max_steps={max_steps} exclude each other: steps counts from "
                f"now, max_steps from the very beginning; give one of them"
            )
        for name, value in (("steps", steps), ("max_steps", max_steps)):
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be > 0 or None, it is {value}")
        strategy = self._config.train_distribute or get_strategy()
        self._refuse_to_train_apart(strategy)
        with self._writing() if strategy.extended.worker_index == 0 else nullcontext():
            return self._train(strategy, input_fn, hooks, steps, max_steps, saving_listeners)

    def _train(
        self,
        strategy: Strategy,
        input_fn: Callable[..., Any],
        hooks: Sequence[SessionRunHook] | None,
        steps: int | None,
        max_steps: int | None,
        saving_listeners: Sequence[CheckpointSaverListener] | None,
    ) -> TrainingEnd:
        config, workers = self._config, strategy.extended.workers
        newest = self._newest_whole() if workers.rank == 0 else None
        start = workers.number_from_chief(newest.step if newest else 0, "first step")
        states = newest.state.get("input", []) if newest else []
        states = json.loads(workers.text_from_chief(json.dumps(states), "input of the last run"))
        if max_steps is not None and start >= max_steps:
            _logger.info("Nothing to train: step %d ≥ max_steps %d.", start, max_steps)
            return TrainingEnd(start, None, f"max_steps={max_steps} was reached before")
        tune_malloc()
        store = self._store(newest, workers.rank == 0)
        last_step = max_steps if steps is None else start + steps
        session = TrainingSession(self._model, strategy, store)
        all_hooks = self._training_hooks(last_step, saving_listeners or (), workers.rank == 0)
        with (
            closing(
                batches_for_replicas(input_fn, strategy, ModeKeys.TRAIN, self._params, config)
            ) as batches,
            closing(ProgressHook(last_step, start)) as progress,
        ):
            continue_input(batches, states, workers)
            end = train(session, batches, [progress, *all_hooks, *(hooks or ())])
        workers.number_from_chief(0, "the last checkpoint is written")
        _logger.info("Loss for final step: %.8g.", end.loss)
        reached = last_step is not None and end.global_step >= last_step
        return TrainingEnd(end.global_step, end.loss, "max_steps was reached") if reached else end

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate the newest checkpoint, or the one given.

        Args:
            input_fn: As for `train`.
            steps: The number of batches (per replica); None takes all data.
            hooks: Take part in the run.
            checkpoint_path: What to evaluate. Without any checkpoint the model is evaluated with
                its initial values.
            name: Names the evaluation, where there are several.

        Returns:
            The metrics by name, "loss" (the mean over all examples), and "global_step".

        Raises:
            ValueError: `steps` is not positive, or the dataset is empty.
        """
        if steps is not None and steps <= 0:
            raise ValueError(f"steps must be > 0 or None, it is {steps}")
        config = self._config
        strategy = config.eval_distribute or get_strategy()
        is_chief = strategy.extended.worker_index == 0
        restored = self._restored(checkpoint_path) if is_chief else None
        _logger.info("Starting evaluation at %s", datetime.now(UTC).isoformat(timespec="seconds"))
        if restored is not None:
            _logger.info("Restoring parameters from %s", restored.path)
        elif is_chief:
            _logger.info("No checkpoint in %s: initial values are evaluated.", self.model_dir)
        store = self._store(restored, is_chief)
        session = EvaluationSession(self._model, strategy, store)
        with (
            checkpoint.lease(restored.path) if restored else nullcontext(),
            closing(
                batches_for_replicas(input_fn, strategy, ModeKeys.EVAL, self._params, config)
            ) as batches,
        ):
            results = evaluate(session, batches, steps, hooks or ())
        shown = ", ".join(f"{k} = {v:.8g}" for k, v in results.items() if np.ndim(v) == 0)
        where = f" ({name})" if name else ""
        _logger.info("Evaluation%s at global step %d: %s", where, results["global_step"], shown)
        return results

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        yield_single_examples: bool = True,
    ) -> Iterator[Any]:
        """Predict with the newest checkpoint, or the one given, in this process alone.

        Args:
            input_fn: As for `train`; labels are left aside.
            predict_keys: Which of the predictions to give, where they are a dict.
            checkpoint_path: What to predict with. Without any checkpoint the model predicts with
                its initial values.
            yield_single_examples: Whether to give the predictions example by example, or as the
                batches that `model_fn` made.

        Returns:
            A generator, which ends with the data.

        Raises:
            ValueError: An unknown key, or predictions that cannot be split into examples.
        """
        restored = self._restored(checkpoint_path)
        config = self._config
        store = self._store(restored, is_chief=True)
        batches = batches_for_replicas(
            input_fn, DEFAULT_STRATEGY, ModeKeys.PREDICT, self._params, config
        )
        return predict(
            self._model, store, batches, predict_keys, hooks or (), yield_single_examples
        )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Be the one who writes checkpoints, in the background; the last one is on disk after it.

        Raises:
            CheckpointError: `model_dir` cannot be written to, or another job trains there.
        """
        config = self._config
        keep = checkpoint.keep_any(
            checkpoint.keep_last(config.keep_checkpoint_max),
            checkpoint.keep_one_every_n_hours(config.keep_checkpoint_every_n_hours),
        )
        with checkpoint.Saver(self.model_dir, keep) as self._saver:
            try:
                yield
            finally:
                self._saver = None

    def _refuse_to_train_apart(self, strategy: Strategy) -> None:
        """Refuse what would train a model beside that of the others.

        Raises:
            ValueError: This task does not train, the cluster has parameter servers, or it has
                several workers and the strategy knows of one.
        """
        config = self._config
        if config.task_type in ("evaluator", "ps"):
            raise ValueError(
                f"this process is {config.task_type} {config.task_id}, which does not train; call "
                f"train_and_evaluate, the same in every process of the job"
            )
        if config.num_ps_replicas:
            raise ValueError(
                f"the cluster has {config.num_ps_replicas} parameter servers (ps), which no "
                f"strategy of this version uses; leave them out"
            )
        num_workers = config.num_worker_replicas
        if num_workers > 1 and strategy.extended.num_workers == 1:
            raise ValueError(
                f"the cluster has {num_workers} workers, but {strategy!r} trains each of them "
                f"alone; pass RunConfig(train_distribute=MultiWorkerMirroredStrategy())"
            )

    def _training_hooks(
        self,
        last_step: int | None,
        listeners: Sequence[CheckpointSaverListener],
        is_chief: bool,
    ) -> list[SessionRunHook]:
        config = self._config
        hooks: list[SessionRunHook] = [
            CheckpointSaverHook(
                partial(self._save, last_step) if is_chief else _leave,
                config.save_checkpoints_secs,
                config.save_checkpoints_steps,
                listeners if is_chief else (),
                decides=is_chief,
                wait=self._wait_for_save,
            ),
        ]
        if config.log_step_count_steps is not None:
            every = config.log_step_count_steps
            hooks += [
                StepCounterHook(every),
                LoggingTensorHook({"loss": "loss", "step": "step"}, every_n_iter=every),
            ]
        if last_step is not None:
            hooks.append(StopAtStepHook(last_step=last_step))
        return hooks

    def _save(
        self,
        last_step: int | None,
        step: int,
        values: dict[str, Any],
        input_states: list[dict[str, Any]] | None,
    ) -> None:
        """Begin to save; where a run ends its input ends, too."""
        assert self._saver is not None
        goes_on = input_states is not None and step != last_step
        self._saver.save(step, values, state={"input": input_states} if goes_on else {})
        _logger.info("Saving the checkpoint of step %d.", step)

    def _wait_for_save(self) -> None:
        if self._saver is not None:
            self._saver.wait()

    def _store(self, restored: checkpoint.Checkpoint | None, is_chief: bool) -> VariableStore:
        """Variables that begin with those of a checkpoint.

        All workers begin with the chief's values, so that the others need not see its files.
        """
        warm_start = self._warm_start(restored) if is_chief else None
        return restored_store(restored, self._config.tf_random_seed, warm_start)

    def _newest(self) -> checkpoint.Checkpoint:
        newest = self._newest_or_none()
        if newest is None:
            raise ValueError(f"there is no checkpoint in {self.model_dir} yet; train first")
        return newest

    def _newest_whole(self) -> checkpoint.Checkpoint | None:
        """The newest checkpoint of which every byte is right; damaged ones are warned of."""
        path = checkpoint.latest_checkpoint(self.model_dir, verify=True)
        return None if path is None else checkpoint.load(path)

    def _newest_or_none(self) -> checkpoint.Checkpoint | None:
        path = self.latest_checkpoint()
        return None if path is None else checkpoint.load(path)

    def _restored(self, path: str | os.PathLike[str] | None) -> checkpoint.Checkpoint | None:
        return self._newest_or_none() if path is None else checkpoint.load(path)

    def _warm_start(self, own: checkpoint.Checkpoint | None) -> checkpoint.Checkpoint | None:
        if own is not None or self._warm_start_from is None:
            return None
        path = checkpoint.latest_checkpoint(self._warm_start_from) or self._warm_start_from
        _logger.info("Warm start from %s", path)
        return checkpoint.load(path)


def _leave(step: int, values: dict[str, Any], input_states: Any) -> None:
    """The chief writes."""


def _one_model_dir(argument: Any, config: RunConfig) -> str:
    configured = agreed_model_dir(config.model_dir, config.place)
    given = None if argument is None else os.fspath(argument)
    if given == "":
        raise ValueError("model_dir must not be empty; leave it out for a temporary directory")
    if given is not None and configured is not None and given != configured:
        raise ValueError(
            f"model_dir is {given!r} in the call and {configured!r} in config; give it once"
        )
    if given is None and configured is None:
        if config.task_type == "evaluator":
            raise ValueError(
                "model_dir is not given, and an evaluator cannot know where the others train; "
                "pass Estimator or RunConfig the model_dir of the training job"
            )
        strategy = config.train_distribute or get_strategy()
        workers = strategy.extended.workers
        made = tempfile.mkdtemp(prefix="paceline-") if workers.rank == 0 else ""
        made = workers.text_from_chief(made, "temporary model_dir")
        _logger.warning("No model_dir is given: checkpoints go to the temporary directory %s", made)
        return made
    return given or configured or ""
