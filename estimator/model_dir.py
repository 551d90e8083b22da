"""The checkpoints of one model: who writes them, which is the newest, what a run begins with."""

from __future__ import annotations

import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, final

import numpy as np

from .. import checkpoint
from ..autodiff import Array
from ..cluster import agreed_model_dir, is_same_directory, restart_count
from ..strategies import (
    Job,
    SavedValue,
    Strategy,
    StrategyExtended,
    VariableStore,
    get_strategy,
)
from ..training import Session, SessionRunHook
from .eval_metrics import record_eval_metrics
from .hooks import CheckpointWriter
from .kept_model import KeptModel
from .run_config import RunConfig
from .saving import Bystander, writer_of
from .warm_start import WarmStart, WarmStartSettings

_logger = logging.getLogger("paceline")

_INPUT_ENDED = "input_ended"
_MAX_NAMES = 10


@final
class ModelDir:
    """Saves the model's checkpoints during a run, and finds and restores them.

    Args:
        path: Where they are.
        config: What is kept.
        warm_start: What a model begins with that has none.
    """

    def __init__(self, path: str, config: RunConfig, warm_start: WarmStartSettings | None) -> None:
        self.path = path
        self._config = config
        self._warm_start = warm_start
        self._writer: CheckpointWriter = Bystander()
        self._kept = KeptModel()
        self._is_in_use = False  # by a run that trains

    @contextmanager
    def writing(self, extended: StrategyExtended) -> Iterator[CheckpointWriter]:
        """This task's part in saving a run; the last checkpoint is on disk after the block.

        Args:
            extended: That of the run's strategy.

        Raises:
            CheckpointError: It cannot be written to, or another job trains there.
        """
        self._kept.drop()
        with writer_of(self.path, self._config, extended) as self._writer:
            self._is_in_use = True
            try:
                yield self._writer
            finally:
                self._writer, self._is_in_use = Bystander(), False

    def end_input(self) -> None:
        """Let the next run begin its input anew, as this one, the chief's, has ended.

        A step that was saved before anybody knew that it is the last says where the input stands,
        and is not written again: its metrics lie beside it already.
        """
        path = self.latest()
        if path is not None:
            checkpoint.write_text(path, _INPUT_ENDED, "")

    def beginning(
        self, saved: SavedModel | None, job: Job
    ) -> tuple[int, list[dict[str, Any]], list[Any]]:
        """The step to begin with, and where the input and the optimizers' rates stood then.

        As the chief has read them; the last for `restore_optimizers`.
        """
        newest = None if saved is None else saved.reader
        own_path = self.path if "://" in self.path else os.path.abspath(self.path)
        found: dict[str, Any] = {"model_dir": own_path, "step": 0, "input": [], "optimizers": []}
        if newest is not None:
            optimizers = newest.state.get("optimizers", [])
            found |= {"step": newest.step, "input": _input_states(newest), "optimizers": optimizers}
        if job.is_chief:
            self._tell_of_beginning(newest)
        told = json.loads(job.text_from_chief(json.dumps(found), "beginning of the run"))
        if told["model_dir"] != own_path:
            _logger.warning(
                "model_dir is %s on worker %d and %s on the chief, whose checkpoints are those of "
                "the job: give all workers the same.",
                own_path,
                job.trainer_index,
                told["model_dir"],
            )
        return told["step"], told["input"], told["optimizers"]

    def best(self, metric: str | None, mode: Literal["min", "max"] | None) -> str | None:
        """What `Estimator.best_checkpoint` returns."""
        kept = self._config.keep_checkpoint_best
        metric = metric or kept or "loss"
        if mode is None and metric not in ("loss", kept):
            raise ValueError(
                f"mode is not given; say whether the best {metric!r} is 'min' or 'max'"
            )
        if mode is None:
            mode = self._config.keep_checkpoint_best_mode if metric == kept else "min"
        self._writer.wait()
        return checkpoint.best_checkpoint(self.path, metric, mode)

    def _tell_of_beginning(self, newest: checkpoint.CheckpointReader | None) -> None:
        """Say what a run begins with; warn of a job that was started again and finds nothing."""
        count = restart_count(os.environ)
        if newest is not None:
            _logger.info(
                "Restoring parameters from %s: training goes on at step %d.%s",
                newest.path,
                newest.step,
                "" if self._warm_start is None else " It has begun: there is no warm start.",
            )
        elif count:
            _logger.warning(
                "The job was started again (%d so far), and there is no checkpoint in %s: training "
                "begins at step 0. Was the directory deleted, or is it another one on this host?",
                count,
                self.path,
            )
        else:
            _logger.info("There is no checkpoint in %s: training begins at step 0.", self.path)

    def latest(self) -> str | None:
        """The path of the newest checkpoint, waiting for one that is being saved; None without."""
        self._writer.wait()
        return checkpoint.latest_checkpoint(self.path)

    @contextmanager
    def reading(
        self, path: str | os.PathLike[str] | None = None
    ) -> Iterator[checkpoint.CheckpointReader | None]:
        """A checkpoint that nobody deletes within the block: that of `path`, or the newest.

        Yields:
            None where there is none yet.
        """
        self._writer.wait()
        with (
            checkpoint.lease_latest(self.path)
            if path is None
            else checkpoint.lease(os.fsdecode(path)) as found
        ):
            yield None if found is None else checkpoint.load(found)

    def newest_whole(self, in_memory: bool) -> SavedModel | None:
        """The newest checkpoint of which every byte is right; its values can be had once.

        Args:
            in_memory: Whether to read them at once, rather than each when it is asked for.
        """
        if in_memory:
            found = checkpoint.read_latest(self.path)
            return None if found is None else SavedModel(found[0], found[1].pop)
        path = checkpoint.latest_checkpoint(self.path, verify=True)
        return None if path is None else SavedModel(checkpoint.load(path))

    @contextmanager
    def restoring(
        self, reader: checkpoint.CheckpointReader | None, strategy: Strategy
    ) -> Iterator[VariableStore]:
        """Variables that begin with a checkpoint's values, which are read as they are created.

        The next call for the same checkpoint gets the same variables, with those values again,
        unless this one has failed, or a run is under way: it needs the memory, and evaluates
        each of its checkpoints once.

        Args:
            reader: What the chief has found; None where there is none yet, and on other workers.
            strategy: Whose workers all call this.
        """
        own = "" if reader is None else reader.identity
        identity = strategy.extended.workers.text_from_chief(own, "model to restore")
        store = self._kept.take(identity, strategy)
        with ExitStack() as held:
            if store is None:
                saved = None if reader is None else SavedModel(reader)
                store, _ = self.begin(saved, held, strategy.extended.worker_index == 0)
            is_whole = True
            try:
                yield store
            except GeneratorExit:  # the caller of `predict` has had enough
                raise
            except BaseException:
                is_whole = False
                raise
            finally:
                if identity and is_whole and not self._is_in_use:
                    self._kept.give_back(identity, strategy, store)

    def begin(
        self, saved: SavedModel | None, held: ExitStack, is_chief: bool
    ) -> tuple[VariableStore, list[SessionRunHook]]:
        """Variables that begin with a checkpoint's values, or with those of a warm start.

        All workers begin with the chief's values, so that the others need not see its files.

        Args:
            saved: The checkpoint, if there is one.
            held: Closed when all variables exist, at the latest.
            is_chief: Whether this is the worker that reads.

        Returns:
            The variables, and hooks for the run in which they are created.
        """
        seed = self._config.tf_random_seed
        if saved is not None:
            return _store(seed, saved.restore), [saved]
        if self._warm_start is None or not is_chief:
            return _store(seed, None), []
        source = self._warm_start.ckpt_to_initialize_from
        reader: Any = checkpoint.find_tensor_bundle(source)
        if reader is None:
            newest = held.enter_context(checkpoint.lease_latest(source))
            reader = checkpoint.load(newest or held.enter_context(checkpoint.lease(source)))
        warm_start = WarmStart(self._warm_start, reader, seed, held)
        return _store(seed, warm_start.restore), [warm_start]

    def eval_dir(self, name: str | None) -> str:
        """Where evaluations of this name leave what they write."""
        return os.path.join(self.path, f"eval_{name}" if name else "eval")

    def note_metrics(self, path: str, metrics: Mapping[str, Any], name: str | None) -> None:
        """Note what an evaluation found, for `keep_checkpoint_best` and for early stopping.

        It goes beside the checkpoint, and into the history of evaluations if that is this model's.

        Args:
            path: The checkpoint.
            metrics: By name; arrays and the global step are left out.
            name: That of the evaluation, where there are several; precedes the metrics' names.
        """
        found = {
            key: float(value)
            for key, value in metrics.items()
            if np.ndim(value) == 0 and key != "global_step"
        }
        numbers = {f"{name}/{key}" if name else key: value for key, value in found.items()}
        try:
            noted = checkpoint.read_metrics(path)
            if not numbers.items() <= noted.items():
                checkpoint.record_metrics(path, {**noted, **numbers})
            if os.path.realpath(os.path.dirname(path)) == os.path.realpath(self.path):
                record_eval_metrics(self.eval_dir(name), int(metrics["global_step"]), found)
        except checkpoint.CheckpointError as error:  # somebody else's directory, say
            _logger.info("The metrics are not noted beside the checkpoint: %s", error)


def _input_states(reader: checkpoint.CheckpointReader) -> list[dict[str, Any]]:
    """Where the input of each worker stood, if the run of this checkpoint was interrupted."""
    if checkpoint.has_text(reader.path, _INPUT_ENDED):
        return []
    states: list[dict[str, Any]] = reader.state.get("input", [])
    return states


@final
class SavedModel(SessionRunHook):
    """Gives variables the values of a checkpoint, which must have every variable that is saved.

    As a hook of the run that creates them it tells what nobody has asked for.

    Args:
        reader: The checkpoint.
        read: Gives the value of a name; by default it is read when it is asked for.
    """

    def __init__(
        self,
        reader: checkpoint.CheckpointReader,
        read: Callable[[str], np.ndarray] | None = None,
    ) -> None:
        self.reader = reader
        self._read = reader.read if read is None else read
        self._shapes, self._dtypes = reader.shapes, reader.dtypes

    def restore(self, name: str, value: Array, trainable: bool) -> SavedValue:
        path = self.reader.path
        if name not in self._shapes:
            raise ValueError(
                f"variable {name!r} is not in checkpoint {path}, which has "
                f"{', '.join(sorted(self._shapes))}; the model has changed since. Use another "
                f"model_dir, with warm_start_from=WarmStartSettings({str(path)!r}, "
                f"vars_to_warm_start=...) to keep what fits"
            )
        shape, dtype = self._shapes[name], self._dtypes[name]
        if shape != value.shape or dtype != value.dtype:
            raise ValueError(
                f"variable {name!r} has shape {shape} and dtype {dtype} in checkpoint "
                f"{path}, but the model makes it with shape {value.shape} and dtype {value.dtype}; "
                f"restore the model's sizes, or use another model_dir"
            )
        return SavedValue(str(path), shape, dtype, partial(self._read, name))

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        left = sorted(set(self.reader.names) - set(session.store.variables))
        if left:
            more = f" and {len(left) - _MAX_NAMES} more" if len(left) > _MAX_NAMES else ""
            _logger.warning(
                "Nothing in the model takes %s%s from checkpoint %s: the next checkpoint is "
                "without them. Has the model changed?",
                ", ".join(map(repr, left[:_MAX_NAMES])),
                more,
                self.reader.path,
            )


def one_model_dir(argument: Any, config: RunConfig) -> str:
    """The directory that a call, its config or the cluster names; a temporary one without.

    Raises:
        ValueError: They contradict each other, or this task cannot know where the others save.
    """
    # A strategy may have been told of its cluster since the config was made.
    configured = agreed_model_dir(config.model_dir, config.task_info)
    given = None if argument is None else os.fsdecode(argument)
    if given == "":
        raise ValueError("model_dir must not be empty; leave it out for a temporary directory")
    if None not in (given, configured) and not is_same_directory(given or "", configured or ""):
        is_told = config.task_info.model_dir is not None
        where = "config" if not is_told else "TF_CONFIG, or after --model-dir"
        raise ValueError(
            f"model_dir is {given!r} in the call and {configured!r} in {where}; give it once"
        )
    if given is None and configured is None:
        if config.task_type == "evaluator":
            raise ValueError(
                "model_dir is not given, and an evaluator cannot know where the others train; "
                "pass Estimator or RunConfig the model_dir of the training job, or name it as in "
                "`paceline evaluate --model-dir DIR SCRIPT`"
            )
        if config.num_ps_replicas:
            raise ValueError(
                "model_dir is not given, and parameter servers save and restore their variables "
                "there; pass Estimator or RunConfig a directory that all tasks can reach"
            )
        strategy = config.train_distribute or get_strategy()
        workers = strategy.extended.workers
        made = tempfile.mkdtemp(prefix="paceline-") if workers.rank == 0 else ""
        made = workers.text_from_chief(made, "temporary model_dir")
        _logger.warning("No model_dir is given: checkpoints go to the temporary directory %s", made)
        return made
    return given or configured or ""


def _store(seed: int | None, restore: Any) -> VariableStore:
    return VariableStore(seed, restore, averages_replicas=True)
