"""Who writes a run's checkpoints: the chief, all workers, or the chief and parameter servers."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from .. import checkpoint
from ..collectives import CollectiveError, RefusedRequest
from ..strategies import Download, StrategyExtended
from .hooks import CheckpointWriter
from .run_config import RunConfig

_logger = logging.getLogger("paceline")

Values = dict[str, Any]


@final
class Bystander(CheckpointWriter):
    """Others write."""

    def prepare(self) -> None:
        pass

    def save(self, step: int, arrays: Values, state: dict[str, Any]) -> checkpoint.PendingCopies:
        return {}

    def check(self) -> None:
        pass

    def wait(self) -> None:
        pass


@final
class _Chief(CheckpointWriter):
    """Writes all, or the first part, and commits.

    A save that a parameter server does not survive is given up, and the run goes on.

    Args:
        saver: What it writes with.
        extended: That of the run's strategy.
        all_write: Whether each worker writes a part.
    """

    def __init__(
        self, saver: checkpoint.Saver, extended: StrategyExtended, all_write: bool
    ) -> None:
        self._saver = saver
        self._workers = extended.workers
        self._all_write = all_write
        self._is_over = threading.Event()
        remote = extended.remote_storage
        self._others: checkpoint.OtherWriters | None = None if remote is None else remote.writers
        if all_write:
            self._others = _OtherWorkers(extended, self._is_over)
        self._step = 0
        self._given_up: Exception | None = None

    def prepare(self) -> None:
        with self._losses_given_up():  # the next one is not given up
            self._saver.prepare()

    def save(self, step: int, arrays: Values, state: dict[str, Any]) -> checkpoint.PendingCopies:
        self._step, self._given_up = step, None
        part = checkpoint.share_of(arrays, 0, self._workers.size) if self._all_write else arrays
        others = self._others
        copies = self._saver.start(step, part, state=state, others=others, download=Download)
        told = {"global_step": step, "model_dir": self._saver.model_dir}
        text = "Saving checkpoints for %d into %s/model.ckpt-%d."
        _logger.info(text, step, self._saver.model_dir, step, extra={"values": told})
        return copies

    def check(self) -> None:
        if self._saver.has_finished:
            with self._losses_given_up():
                pass  # what is finished is looked at in any case

    def wait(self) -> None:
        with self._losses_given_up():
            self._saver.wait()

    def require_last(self) -> None:
        """Return when the last checkpoint is on disk.

        Raises:
            CheckpointError: It was given up.
        """
        self.wait()
        if self._given_up is not None:
            raise checkpoint.CheckpointError(
                f"the last checkpoint, of step {self._step}, was not saved: {self._given_up}. "
                f"Start the job again: it goes on from the one before"
            ) from self._given_up

    def abandon(self) -> None:
        """Let nobody wait for the parts of workers that may be gone."""
        self._is_over.set()

    @contextmanager
    def _losses_given_up(self) -> Iterator[None]:
        try:
            yield
            for path, step in self._saver.finished():
                told = {"global_step": step, "path": path}
                text = "The checkpoint of step %d is on disk: %s"
                _logger.info(text, step, path, extra={"values": told})
        except (CollectiveError, RefusedRequest) as error:
            self._given_up = error
            _logger.warning("The checkpoint of step %d is given up: %s", self._step, error)


@final
class _OtherWorkers:
    """The workers beside the chief, as they write their parts: see `_Helper`.

    Args:
        extended: That of the run's strategy.
        is_over: Set where nobody is to be waited for any more.
    """

    def __init__(self, extended: StrategyExtended, is_over: threading.Event) -> None:
        self.num = extended.workers.size - 1
        self._workers = extended.workers
        self._is_over = is_over
        self._draft = ""

    def begin(self, draft: str) -> None:
        # Each other worker makes this call at the same step, and then begins.
        self._draft = self._workers.text_from_chief(draft, "draft of a checkpoint")

    def reports(self) -> Sequence[str]:
        # As files beside the shards: a collective of this thread would break the order of calls.
        return checkpoint.collect_reports(self._draft, 1 + self.num, self._is_over.is_set)


@final
class _Helper(CheckpointWriter):
    """Another worker: writes its part where the chief says."""

    def __init__(self, extended: StrategyExtended) -> None:
        self._workers = extended.workers
        self._saver = checkpoint.ShardSaver(self._workers.rank, self._workers.size)

    def prepare(self) -> None:
        self._saver.wait()

    def save(self, step: int, arrays: Values, state: dict[str, Any]) -> checkpoint.PendingCopies:
        # The chief's `Saver.start` calls `_OtherWorkers.begin` at the same step: a common call.
        draft = self._workers.text_from_chief("", "draft of a checkpoint")
        part = checkpoint.share_of(arrays, self._workers.rank, self._workers.size)
        return self._saver.start(draft, part, download=Download)

    def check(self) -> None:
        self._saver.check()

    def wait(self) -> None:
        self._saver.wait()


@contextmanager
def writer_of(
    model_dir: str, config: RunConfig, extended: StrategyExtended
) -> Iterator[CheckpointWriter]:
    """This task's part in saving a run's checkpoints; the last one is on disk after the block.

    Raises:
        CheckpointError: `model_dir` cannot be written to, or another job trains there.
    """
    workers, remote = extended.workers, extended.remote_storage
    all_write = config.save_checkpoints_sharded and workers.size > 1 and remote is None
    if not extended.job.is_chief:
        helper = _Helper(extended) if all_write else Bystander()
        yield helper
        helper.wait()
        return
    with checkpoint.Saver(model_dir, _keep_policy(config)) as saver:
        chief = _Chief(saver, extended, all_write)
        try:
            yield chief
            chief.require_last()
        except BaseException:
            chief.abandon()
            raise


def _keep_policy(config: RunConfig) -> checkpoint.KeepPolicy:
    """Which checkpoints a run keeps: all that one of its settings wants kept."""
    policies = [
        checkpoint.keep_last(config.keep_checkpoint_max),
        checkpoint.keep_steps(config.keep_checkpoint_steps),
    ]
    if config.keep_checkpoint_every_n_hours is not None:
        policies.append(checkpoint.keep_one_every_n_hours(config.keep_checkpoint_every_n_hours))
    if config.keep_checkpoint_best is not None:
        num, mode = config.keep_checkpoint_best_max, config.keep_checkpoint_best_mode
        policies.append(checkpoint.keep_best(config.keep_checkpoint_best, num, mode))
    return checkpoint.keep_any(*policies)


@final
class CheckpointShards:
    """Reads rows of variables, and writes one shard of each checkpoint, under one directory only.

    The paths come from other tasks, over a network: none of them leads anywhere else.

    Args:
        num_writers: How many tasks write a shard: the chief and all parameter servers.
        model_dir: Where all checkpoints are; a directory or a URL.
    """

    def __init__(self, num_writers: int, model_dir: str) -> None:
        self._num_writers = num_writers
        self._model_dir = model_dir

    def read(self, path: str, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of a variable of a checkpoint; a scalar as it is.

        Raises:
            ValueError: It is not there, or damaged, or lies outside of `model_dir`.
        """
        path = confined(path, self._model_dir)
        try:
            is_scalar = checkpoint.load(path).shapes.get(name) == ()
            rows = None if is_scalar else (start, stop)
            return checkpoint.read_slices(path, {name: rows})[name]
        except (checkpoint.CheckpointError, KeyError) as error:
            raise ValueError(f"{name!r} cannot be read from checkpoint {path}: {error}") from error

    def write(
        self,
        path: str,
        shard_index: int,
        slices: Sequence[tuple[str, tuple[int, ...], int, int, np.ndarray]],
    ) -> str:
        """Write this server's shard of an unfinished checkpoint; a report for who commits it.

        Raises:
            ValueError: It lies outside of `model_dir`.
        """
        path = confined(path, self._model_dir)
        arrays: dict[str, list[checkpoint.TensorSlice]] = {}
        for name, shape, start, _, array in slices:
            first = (start, *(0,) * (len(shape) - 1)) if shape else ()
            part = checkpoint.TensorSlice(array, start=first, full_shape=shape)
            arrays.setdefault(name, []).append(part)
        return checkpoint.write_shard(path, shard_index, self._num_writers, arrays)


def confined(path: str, root: str) -> str:
    """A path that lies under a directory or URL, free of symbolic links where it is of this host.

    Raises:
        ValueError: It lies elsewhere, or is the directory itself.
    """
    if "://" in root:
        inside = path.removeprefix(root.rstrip("/") + "/")
        parts = inside.split("/")
        # ":" would begin another URL within this one.
        is_inside = inside != path and ":" not in inside and not {"", ".", ".."} & set(parts)
    else:
        inside, root = os.path.realpath(path), os.path.realpath(root)
        is_inside = "://" not in path and inside != root and _is_under(inside, root)
        path = inside
    if not is_inside:
        raise ValueError(
            f"path must lie under {root}, the model_dir of this parameter server; it is {path}. "
            f"Give all tasks the same model_dir"
        )
    return path


def _is_under(path: str, root: str) -> bool:
    return os.path.commonpath([path, root]) == root
