"""`Estimator`: a `model_fn` with what it learned, and the verbs train, evaluate, predict."""

from __future__ import annotations

import copy
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
)
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from .. import observe
from ..checkpoint import CheckpointReader
from ..inputs import DatasetIterator
from ..strategies import DEFAULT_STRATEGY, Strategy, get_strategy
from ..training import (
    EvaluationSession,
    ModeKeys,
    PredictionSession,
    SessionRunHook,
    TrainingEnd,
    evaluate,
    predict,
)
from .hooks import CheckpointSaverListener
from .input_function import batches_for_replicas
from .model_dir import ModelDir, SavedModel, one_model_dir
from .model_function import ModelFunction, copy_of_params
from .predictor import Predictor
from .records import EvaluationRecords
from .run_config import RunConfig
from .saved_model import Exported, ReceiverFn, export_model
from .specs import TrainSpec
from .trainer import Trainer, require_one_end
from .warm_start import WarmStartSettings, settings_of

_logger = logging.getLogger("paceline")


class Estimator:
    """Trains, evaluates and uses a model that is given as a function.

    What it learned lies in checkpoints in `model_dir` and nowhere else: each call begins with the
    newest one, so that training twice continues, also in another process. Customise it by
    `model_fn`, hooks and strategy. A subclass chooses a `model_fn` in its `__init__`, as the
    premade models do, and may add methods; as in TensorFlow it overrides none.

    Args:
        model_fn: `model_fn(features, labels, mode, params, config) -> EstimatorSpec`; `features` is
            mandatory, of the others it names what it needs. It is called anew for each batch,
            and finds its variables again by their names.
        model_dir: Where checkpoints go; may come from `config`; where both are given they agree.
        config: How to run.
        params: Handed to `model_fn` and `input_fn`.
        warm_start_from: What a model begins with that has no checkpoint of its own: the trainable
            variables of a checkpoint, or of the newest in a directory; `WarmStartSettings` choose.

    Raises:
        ValueError: Arguments that contradict each other, or a `model_fn` that cannot be called.
    """

    def __init__(
        self,
        model_fn: Callable[..., Any],
        model_dir: str | os.PathLike[str] | None = None,
        config: RunConfig | None = None,
        params: dict[str, Any] | None = None,
        warm_start_from: str | os.PathLike[str] | WarmStartSettings | None = None,
    ) -> None:
        observe.ensure_handler()
        config = config or RunConfig()
        if not isinstance(config, RunConfig):
            raise TypeError(f"config must be a paceline.RunConfig, it is {config!r}")
        path = one_model_dir(model_dir, config)
        self._config = config.replace(model_dir=path)
        self._params = copy.deepcopy(params)
        self._model = ModelFunction(model_fn, self._params, self._config)
        self._model_fn = model_fn
        self._warm_start_from = warm_start_from
        self._records = EvaluationRecords(self._config)
        self._dir = ModelDir(path, self._config, settings_of(warm_start_from))
        self._trainer = Trainer(self._model, self._dir, self._params, self._config)
        _logger.info("Using config: %s (and defaults)", self._config.describe_changes())
        _logger.debug("The whole config: %s", self._config.describe())
        for sentence in config.without_effect():
            _logger.warning("RunConfig has no effect by %s", sentence)

    def __init_subclass__(cls) -> None:
        own = {name for name in vars(Estimator) if not name.startswith("__")}
        if overridden := sorted(own & vars(cls).keys()):
            raise TypeError(
                f"{cls.__name__} overrides {', '.join(overridden)} of Estimator, whose methods "
                f"rely on each other; customize by model_fn, hooks or strategy: a subclass may "
                f"have an __init__ that chooses the model_fn, and methods of other names"
            )

    @property
    def model_dir(self) -> str:
        return self._dir.path

    @property
    def config(self) -> RunConfig:
        return self._config

    @property
    def params(self) -> dict[str, Any]:
        """A copy of the parameters: what is changed in it changes nothing here."""
        return copy_of_params(self._params or {})

    @property
    def model_fn(self) -> Callable[..., Any]:
        return self._model_fn

    @property
    def warm_start_from(self) -> str | os.PathLike[str] | WarmStartSettings | None:
        """What a model begins with that has no checkpoint of its own, as it was given."""
        return self._warm_start_from

    def eval_dir(self, name: str | None = None) -> str:
        """Where evaluations leave what they write."""
        return self._dir.eval_dir(name)

    def latest_checkpoint(self) -> str | None:
        """The path of the newest checkpoint, waiting for one that is being saved; None without."""
        return self._dir.latest()

    def best_checkpoint(
        self, metric: str | None = None, mode: Literal["min", "max"] | None = None
    ) -> str | None:
        """The path of the best checkpoint, of those that were evaluated and are kept.

        Args:
            metric: As in `RunConfig.keep_checkpoint_best`, which is the default; "loss" where that
                is not set either.
            mode: Whether the smallest is the best ("min") or the largest ("max"); by default
                what `RunConfig.keep_checkpoint_best_mode` says of its metric, and "min" of "loss".

        Returns:
            None where no checkpoint was evaluated. Only `keep_checkpoint_best` keeps the best of a
            whole run from being deleted.

        Raises:
            ValueError: Nobody says which value of the metric is the best.
        """
        return self._dir.best(metric, mode)

    def get_variable_names(self) -> list[str]:
        """The names of the variables in the newest checkpoint.

        Raises:
            ValueError: There is none.
        """
        with self._newest() as newest:
            return sorted(newest.names)

    def get_variable_value(self, name: str) -> np.ndarray:
        """The value of a variable in the newest checkpoint.

        Raises:
            ValueError: There is no checkpoint, or no such variable in it.
        """
        with self._newest() as newest:
            if name not in newest.names:
                raise ValueError(
                    f"variable {name!r} is not in {newest.path}; it has {', '.join(newest.names)}"
                )
            return newest.read(name)

    def _is_writer(self) -> bool:
        """Whether this task writes to `model_dir`: the chief, or an evaluator beside the job."""
        strategy = self._config.train_distribute or get_strategy()
        return strategy.extended.job.is_chief

    @contextmanager
    def _newest(self) -> Iterator[CheckpointReader]:
        with self._dir.reading() as newest:
            if newest is None:
                raise ValueError(f"there is no checkpoint in {self.model_dir} yet; train first")
            yield newest

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
                strategy that knows of the others; or a job with parameter servers, whose tasks
                `train_and_evaluate` brings together.
            NanLossDuringTrainingError: The loss of a step was not finite.
            CheckpointError: `model_dir` cannot be written to.
        """
        strategy = self._config.train_distribute or get_strategy()
        if strategy.extended.remote_storage is not None:
            raise ValueError(
                f"{strategy!r} keeps its variables on parameter servers, which have to be told of "
                f"the beginning and the end; call train_and_evaluate, the same in every process"
            )
        with observe.short_tracebacks:
            self.train_and_report(input_fn, hooks, steps, max_steps, saving_listeners)
        return self

    def train_and_report(
        self,
        input_fn: Callable[..., Any],
        hooks: Sequence[SessionRunHook] | None = None,
        steps: int | None = None,
        max_steps: int | None = None,
        saving_listeners: Sequence[CheckpointSaverListener] | None = None,
        while_writing: AbstractContextManager[object] | None = None,
    ) -> TrainingEnd:
        """`train`, returning how it ended.

        Args:
            while_writing: See `Trainer.train`.
        """
        require_one_end(steps, max_steps)
        spec = TrainSpec(input_fn, max_steps, hooks, saving_listeners)
        return self._trainer.train(spec, steps, while_writing)

    def _batches(
        self, input_fn: Callable[..., Any], strategy: Strategy, mode: ModeKeys
    ) -> AbstractContextManager[DatasetIterator]:
        """The batches of a run, closed at its end."""
        return closing(batches_for_replicas(input_fn, strategy, mode, self.params, self._config))

    def evaluate(
        self,
        input_fn: Callable[..., Any],
        steps: int | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Evaluate the newest checkpoint, or the one given.

        The restored model stays in memory for the next `evaluate` or `predict` of the same
        checkpoint under the same strategy, until another takes its place, or `train` is called.

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
        strategy = self._config.eval_distribute or get_strategy()
        if strategy.extended.remote_storage is not None:
            raise ValueError(
                f"{strategy!r} cannot evaluate: a checkpoint is evaluated by one task, with "
                f"variables of its own; leave eval_distribute out, or pass a MirroredStrategy"
            )
        is_chief = strategy.extended.worker_index == 0
        where = f" ({name})" if name else ""
        _logger.info("Starting evaluation%s at %s", where, _now())
        with (
            observe.short_tracebacks,
            self._dir.reading(checkpoint_path) if is_chief else nullcontext() as restored,
            self._dir.restoring(restored, strategy) as store,
            self._batches(input_fn, strategy, ModeKeys.EVAL) as batches,
        ):
            if restored is not None:
                _logger.info("Restoring parameters from %s", restored.path)
            elif is_chief:
                _logger.warning(
                    "There is no checkpoint in %s: initial values are evaluated.", self.model_dir
                )
            session = EvaluationSession(self._model, strategy, store, hooks or ())
            results = evaluate(session, batches, steps)
            if restored is not None and self._is_writer():
                self._dir.note_metrics(restored.path, results, name)
        _logger.info("Finished evaluation%s at %s", where, _now())
        step = results["global_step"]
        shown = ", ".join(f"{k} = {v:.8g}" for k, v in results.items() if np.ndim(v) == 0)
        _logger.info("Saving dict for global step %d: %s", step, shown, extra={"values": results})
        if self._is_writer():
            path = None if restored is None else os.fspath(restored.path)
            self._records.note(self.eval_dir(name), name, results, path)
            if path is not None:
                text = "Saving 'checkpoint_path' summary for global step %d: %s"
                _logger.info(text, step, path)
        return results

    def predict(
        self,
        input_fn: Callable[..., Any],
        predict_keys: Sequence[str] | None = None,
        hooks: Sequence[SessionRunHook] | None = None,
        checkpoint_path: str | os.PathLike[str] | None = None,
        yield_single_examples: bool = True,
        *,
        allow_untrained: bool = False,
    ) -> Iterator[Any]:
        """Predict with the newest checkpoint, or the one given, in this process alone.

        Args:
            input_fn: As for `train`; labels are left aside.
            predict_keys: Which of the predictions to give, where they are a dict.
            hooks: Take part in the run; each batch is a step. They are told of its `end` where
                all predictions were taken.
            checkpoint_path: What to predict with.
            yield_single_examples: Whether to give the predictions example by example, or as the
                batches that `model_fn` made.
            allow_untrained: Whether to predict with initial values where `model_dir` holds no
                checkpoint, rather than to refuse: it is often misspelt then. (Also with
                `warm_start_from` the initial values are meant.)

        Returns:
            A generator, which ends with the data. All is done when it is asked, and while it is not
            closed, nobody deletes the checkpoint. The restored model is kept for the next call, as
            by `evaluate`.

        Raises:
            ValueError: An unknown key, predictions that cannot be split into examples, or there is
                no checkpoint.
        """
        with (
            observe.short_tracebacks,
            self._dir.reading(checkpoint_path) as restored,
            self._dir.restoring(
                self._trained(restored, allow_untrained), DEFAULT_STRATEGY
            ) as store,
            self._batches(input_fn, DEFAULT_STRATEGY, ModeKeys.PREDICT) as batches,
        ):
            session = PredictionSession(self._model, store, hooks or ())
            yield from predict(session, batches, predict_keys, yield_single_examples)

    def predictor(
        self,
        checkpoint_path: str | os.PathLike[str] | None = None,
        *,
        allow_untrained: bool = False,
    ) -> Predictor:
        """What predicts single requests, from any number of threads, with one checkpoint.

        Args:
            checkpoint_path, allow_untrained: As for `predict`.

        Returns:
            A function of one batch of features, to be closed: see `Predictor`.

        Raises:
            ValueError: There is no checkpoint.
        """
        with ExitStack() as held:
            restored = held.enter_context(self._dir.reading(checkpoint_path))
            trained = self._trained(restored, allow_untrained)
            saved = None if trained is None else SavedModel(trained)
            store, _ = self._dir.begin(saved, held, is_chief=True)
            path = None if trained is None else trained.path
            return Predictor(self._model, store, path, held.pop_all())

    def export_saved_model(
        self,
        export_dir_base: str | os.PathLike[str],
        serving_input_receiver_fn: ReceiverFn,
        assets_extra: Mapping[str, str | os.PathLike[str]] | None = None,
        as_text: bool = False,
        checkpoint_path: str | os.PathLike[str] | None = None,
        experimental_mode: str = ModeKeys.PREDICT,
    ) -> str:
        """`experimental_export_all_saved_models` for one mode; `paceline.estimator.load` reads it.

        Args:
            serving_input_receiver_fn: Says what the model takes: `paceline.estimator.export` has
                functions that build such functions.
            experimental_mode: For what `model_fn` is called.
        """
        receivers = {experimental_mode: serving_input_receiver_fn}
        return self.experimental_export_all_saved_models(
            export_dir_base, receivers, assets_extra, as_text, checkpoint_path
        )

    export_savedmodel = export_saved_model  # TensorFlow 1's name

    def experimental_export_all_saved_models(
        self,
        export_dir_base: str | os.PathLike[str],
        input_receiver_fn_map: Mapping[str, ReceiverFn],
        assets_extra: Mapping[str, str | os.PathLike[str]] | None = None,
        as_text: bool = False,
        checkpoint_path: str | os.PathLike[str] | None = None,
    ) -> str:
        """Export the newest checkpoint, or another one, as text in any case: see `export_model`."""
        with observe.short_tracebacks, ExitStack() as held:
            restored = held.enter_context(self._dir.reading(checkpoint_path))
            if restored is None and self._warm_start_from is None:
                raise ValueError(f"there is no checkpoint in {self.model_dir} yet; train first")
            # Variables of its own: those of an evaluation are more than what is exported.
            saved = None if restored is None else SavedModel(restored)
            store, _ = self._dir.begin(saved, held, is_chief=True)
            step = 0 if restored is None else restored.step
            exported = Exported(self._model_fn, self._params, self._model, store, step)
            base = os.fsdecode(export_dir_base)
            return export_model(base, exported, input_receiver_fn_map, assets_extra)

    def _trained(
        self, restored: CheckpointReader | None, allow_untrained: bool
    ) -> CheckpointReader | None:
        """What is restored.

        Raises:
            ValueError: Nothing is, and the model begins with nothing else either.
        """
        if restored is None and not (allow_untrained or self._warm_start_from):
            raise ValueError(
                f"there is no checkpoint in {self.model_dir}, and predictions with initial values "
                f"would be noise; check model_dir, train first, or pass allow_untrained=True"
            )
        return restored


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
