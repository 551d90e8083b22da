"""Who writes a run's checkpoints: the chief, all workers, or parameter servers and the chief."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, final

import numpy as np

from .. import checkpoint
from ..collectives import CollectiveError
from ..collectives.parameter_server import RefusedRequest
from ..strategies import StrategyExtended
from .run_config import RunConfig

_logger = logging.getLogger("paceline")

Values = dict[str, np.ndarray]


class Writer(ABC):
    """One task's part in saving. All workers of a strategy make the same calls."""

    @abstractmethod
    def prepare(self) -> None:
        """Return when this task's part of the save before is written."""

    @abstractmethod
    def save(self, step: int, values: Values, state: dict[str, Any]) -> None:
        """Begin to save; the values may change as soon as it returns. Call `prepare` before."""

    @abstractmethod
    def check(self) -> None:
        """Raise what has gone wrong with the last save meanwhile; does not wait."""

    @abstractmethod
    def wait(self) -> None:
        """Return when this task's part of what was saved is on disk."""


@final
class Bystander(Writer):
    """Others write."""

    def prepare(self) -> None:
        pass

    def save(self, step: int, values: Values, state: dict[str, Any]) -> None:
        pass

    def check(self) -> None:
        pass

    def wait(self) -> None:
        pass


@final
class _Chief(Writer):
    """Writes all, or the first part, and commits.

    A save that a parameter server does not survive is given up, and the run goes on.

    Args:
        saver: What it writes with.
        part: Of all values those that it writes.
        num_writers, share: See `Saver.save`.
    """

    def __init__(
        self,
        saver: checkpoint.Saver,
        part: Callable[[Values], checkpoint.Arrays],
        num_writers: int,
        share: checkpoint.Share | None,
    ) -> None:
        self._saver = saver
        self._part = part
        self._num_writers = num_writers
        self._share = share
        self._step = 0
        self._given_up: Exception | None = None

    def prepare(self) -> None:
        self._or_give_up(self._saver.prepare)  # the next one is not given up

    def save(self, step: int, values: Values, state: dict[str, Any]) -> None:
        self._step, self._given_up = step, None
        part = self._part(values)
        self._saver.save(step, part, state=state, num_writers=self._num_writers, share=self._share)
        _logger.info("Saving the checkpoint of step %d.", step)

    def check(self) -> None:
        self._or_give_up(_nothing_more)

    def wait(self) -> None:
        self._or_give_up(self._saver.wait)

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

    def _or_give_up(self, finish: Callable[[], object]) -> None:
        try:
            finish()
            for path, step in self._saver.finished():
                _logger.info("The checkpoint of step %d is on disk: %s", step, path)
        except (CollectiveError, RefusedRequest) as error:
            self._given_up = error
            _logger.warning("The checkpoint of step %d is given up: %s", self._step, error)


@final
class _Helper(Writer):
    """Another worker: writes its part where the chief says."""

    def __init__(self, extended: StrategyExtended) -> None:
        self._workers = extended.workers
        self._saver = checkpoint.ShardSaver(self._workers.rank, self._workers.size)

    def prepare(self) -> None:
        self._saver.wait()

    def save(self, step: int, values: Values, state: dict[str, Any]) -> None:
        draft = self._workers.text_from_chief("", "draft of a checkpoint")
        self._saver.save(draft, checkpoint.share_of(values, self._workers.rank, self._workers.size))

    def check(self) -> None:
        self._saver.check()

    def wait(self) -> None:
        self._saver.wait()


def _nothing_more() -> None:
    """What is finished is looked at in any case."""


@contextmanager
def writer_of(
    model_dir: str, config: RunConfig, extended: StrategyExtended, is_chief: bool
) -> Iterator[Writer]:
    """This task's part in saving a run's checkpoints; the last one is on disk after the block.

    Raises:
        CheckpointError: `model_dir` cannot be written to, or another job trains there.
    """
    workers, storage = extended.workers, extended.storage
    all_write = config.save_checkpoints_sharded and workers.size > 1 and storage.num_writers == 1
    if not is_chief:
        helper = _Helper(extended) if all_write else Bystander()
        yield helper
        helper.wait()
        return
    is_over = threading.Event()

    def share(draft: str) -> Callable[[], Sequence[str]]:
        workers.text_from_chief(draft, "draft of a checkpoint")
        return partial(checkpoint.collect_reports, draft, workers.size, is_over.is_set)

    with checkpoint.Saver(model_dir, keep_policy(config)) as saver:
        try:
            if all_write:
                part = partial(checkpoint.share_of, index=0, count=workers.size)
                chief = _Chief(saver, part, workers.size, share)
            else:
                num = storage.num_writers
                chief = _Chief(saver, dict, num, storage.share_checkpoint if num > 1 else None)
            yield chief
            chief.require_last()
        except BaseException:
            is_over.set()  # nobody waits for the parts of workers that may be gone
            raise


def keep_policy(config: RunConfig) -> checkpoint.KeepPolicy:
    """Which checkpoints a run keeps: all that one of its settings wants kept."""
    policies = [
        checkpoint.keep_last(config.keep_checkpoint_max),
        checkpoint.keep_one_every_n_hours(config.keep_checkpoint_every_n_hours),
        checkpoint.keep_steps(config.keep_checkpoint_steps),
    ]
    if config.keep_checkpoint_best is not None:
        num, mode = config.keep_checkpoint_best_max, config.keep_checkpoint_best_mode
        policies.append(checkpoint.keep_best(config.keep_checkpoint_best, num, mode))
    return checkpoint.keep_any(*policies)
