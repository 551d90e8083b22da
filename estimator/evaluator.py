"""The evaluator beside a training job, and the mark by which it knows that the run has ended."""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, final

from ..checkpoint import (
    CheckpointError,
    fingerprint,
    lease,
    list_checkpoints,
    read_json,
    remove_text,
    write_text,
)
from ..training import Session, SessionRunHook
from .estimator import Estimator
from .export import Exports
from .specs import EvalSpec

_logger = logging.getLogger("paceline")

_MARKER_NAME = "training_ended.json"
_POLL_SECS = 0.5
_SECS_FOR_NEXT_RUN = 60.0
_SECS_FOR_END_MARK = 20.0
_SECS_BETWEEN_REMINDERS = 600.0
_SECS_BETWEEN_ATTEMPTS = 10.0
_MAX_ATTEMPTS = 3


class ContinuousEvaluation:
    """Evaluates the newest checkpoint again and again.

    It may start before, during or after training. It ends when it has evaluated the last checkpoint
    of a run that has left its end mark; where none comes, some seconds after one whose step is
    `max_steps`: workers that do not wait for each other go beyond it before the run ends, and its
    last checkpoint is a later one. A mark that is there from the beginning may be that of an
    earlier run which is about to be continued: unless nothing is left to train, it is believed only
    a minute later (or after `start_delay_secs`, if longer).

    Args:
        estimator: Whose checkpoints.
        spec: The data, and how often.
        max_steps: Where training will end; None: where the run says so.
        clock, sleep: Of the `time` module.
    """

    def __init__(
        self,
        estimator: Estimator,
        spec: EvalSpec,
        max_steps: int | None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._estimator = estimator
        self._spec = spec
        self._max_steps = max_steps
        self._clock = clock
        self._sleep = sleep
        self._evaluated: str | None = None
        self._evaluated_at = clock()
        self._reminded = clock()
        self._told = ""
        self._seen = ""
        self._look_again_at = 0.0
        self._num_failures: Counter[str] = Counter()
        self._exports = Exports(estimator, spec.exporters)
        self._found = self._end_marker()
        self._found_counts_from = clock() + max(spec.start_delay_secs, _SECS_FOR_NEXT_RUN)
        self.metrics: dict[str, Any] = {}

    @property
    def evaluated_step(self) -> int:
        """The step in the name of the checkpoint that was evaluated last; -1 before the first.

        What servers hold may be some steps ahead of the name, which counts those that the chief
        knew of. By its content such a checkpoint would pass for the last one of a run.
        """
        return -1 if self._evaluated is None else int(self._evaluated.rpartition("-")[2])

    @property
    def exports(self) -> tuple[str, ...]:
        """The latest export of each exporter that has made one."""
        return tuple(self._exports.paths)

    def run(self) -> EndMarker:
        """Evaluate until the run has ended; return how it did."""
        self._wait_until(self._clock() + self._spec.start_delay_secs)
        earliest = 0.0
        while True:
            began = self._clock()
            end = self._end_of_run()  # before looking: misses no checkpoint
            if self._evaluate_newest():
                earliest = began + self._spec.throttle_secs
            if end is not None and self.evaluated_step >= end.global_step:
                self._exports.ended()
                return end
            if end is not None and self._nothing_is_left():
                return self._ended_without_last_checkpoint(end)
            if self._max_steps_are_past():
                self._exports.ended()
                return EndMarker(self.evaluated_step, "max_steps was reached")
            self._wait_until(max(earliest, self._clock() + _POLL_SECS))

    def _max_steps_are_past(self) -> bool:
        """Whether training has come to `max_steps`, and nothing has been heard of it since."""
        if self._max_steps is None or self.evaluated_step < self._max_steps:
            return False
        return self._clock() >= self._evaluated_at + _SECS_FOR_END_MARK

    def _end_of_run(self) -> EndMarker | None:
        """How the run has ended; None while it goes on, or may not have begun."""
        end = self._end_marker()
        if end is None or end != self._found:
            self._found = None
            return end
        is_last = self._max_steps is not None and end.global_step >= self._max_steps
        return end if is_last or self._clock() >= self._found_counts_from else None

    def _end_marker(self) -> EndMarker | None:
        try:
            return read_end_marker(self._estimator.model_dir)
        except (CheckpointError, ValueError) as error:
            self._tell_once(str(error))
            return None

    def _nothing_is_left(self) -> bool:
        """Whether everything was evaluated that can be."""
        return self._look_again_at == math.inf

    def _ended_without_last_checkpoint(self, end: EndMarker) -> EndMarker:
        what = (
            f"training in {self._estimator.model_dir} ended at step {end.global_step}, but the "
            f"checkpoint of that step is not there, or cannot be read; was it deleted?"
        )
        if not self.metrics:
            raise ValueError(what)
        _logger.warning("The last evaluation is that of step %d: %s", self.evaluated_step, what)
        return end

    def _evaluate_newest(self) -> bool:
        """Evaluate the newest checkpoint, unless that is done or cannot be; return whether it was.

        To look is cheap, and says nothing; what was there before is not looked at twice.
        """
        path = None
        try:
            seen = fingerprint(self._estimator.model_dir)
            if seen != self._seen:
                self._num_failures.clear()
            elif self._clock() < self._look_again_at:
                self._remind()
                return False
            self._seen, self._look_again_at = seen, math.inf
            path = self._newest()
            if path is not None:
                self._evaluate(path)
        except CheckpointError as error:
            self._look_again_at = self._clock() + _SECS_BETWEEN_ATTEMPTS
            self._note_failure(path, error)
            return False
        return path is not None

    def _newest(self) -> str | None:
        """The newest checkpoint that was neither evaluated nor given up."""
        newest = self._estimator.latest_checkpoint()
        if newest is None or not self._is_given_up(newest):
            return None if newest == self._evaluated else newest
        steps = dict(list_checkpoints(self._estimator.model_dir))
        left = [p for p, s in steps.items() if s > self.evaluated_step and not self._is_given_up(p)]
        return max(left, key=steps.__getitem__, default=None)

    def _is_given_up(self, path: str) -> bool:
        return self._num_failures[path] >= _MAX_ATTEMPTS

    def _evaluate(self, path: str) -> None:
        self._tell_skipped(path)
        with lease(path):  # until it is exported, too
            self.metrics = evaluate_checkpoint(self._estimator, self._spec, path)
            self._evaluated = path
            self._evaluated_at = self._reminded = self._clock()
            self._export(path)

    def _export(self, path: str) -> None:
        """Have it exported. Whether it is the last one is known later.

        Raises:
            RuntimeError: That failed: no reason to look for another checkpoint.
        """
        try:
            self._exports.evaluated(path, self.metrics, is_final=False)
        except CheckpointError as error:
            raise RuntimeError(f"{path} was evaluated, and cannot be exported: {error}") from error

    def _note_failure(self, path: str | None, error: CheckpointError) -> None:
        """Say why nothing was evaluated.

        A checkpoint may have been deleted or replaced between looking and reading: there is a newer
        one then. Or storage is away for a moment. One that is damaged stays so: it is given up.
        """
        what = path or self._estimator.model_dir
        self._num_failures[what] += 1
        is_given_up = self._is_given_up(what)
        if path is None:
            self._look_again_at = math.inf if is_given_up else self._look_again_at
            self._tell_once(str(error))
        elif is_given_up:
            self._look_again_at = self._clock()
            _logger.warning("%s is not evaluated, since it cannot be read: %s", path, error)
        else:
            _logger.info("%s cannot be read, looking again: %s", path, error)

    def _tell_once(self, problem: str) -> None:
        if problem != self._told:
            self._told = problem
            _logger.warning("%s", problem)

    def _wait_until(self, moment: float) -> None:
        """Wait, but little longer than until training has ended."""
        while self._clock() < moment:
            self._sleep(min(_POLL_SECS, moment - self._clock()))
            if self._end_of_run() is not None:
                return

    def _tell_skipped(self, newest: str) -> None:
        """Say which checkpoints are left out because a newer one came before their turn."""
        steps = dict(list_checkpoints(self._estimator.model_dir))
        skipped = [s for s in steps.values() if self.evaluated_step < s < steps.get(newest, 0)]
        if self.metrics and skipped:
            listed = ", ".join(map(str, skipped))
            _logger.info("Not evaluated, since newer ones have come: checkpoints of %s.", listed)

    def _remind(self) -> None:
        """Say now and then that there is nothing to do."""
        if self._clock() - self._reminded >= _SECS_BETWEEN_REMINDERS:
            self._reminded = self._clock()
            after = f"after {self._evaluated}" if self._evaluated else "yet"
            _logger.warning("There is no checkpoint %s in %s.", after, self._estimator.model_dir)


def evaluate_checkpoint(estimator: Estimator, spec: EvalSpec, path: str | None) -> dict[str, Any]:
    """What `Estimator.evaluate` finds for a checkpoint, as `spec` wants it evaluated."""
    return estimator.evaluate(
        spec.input_fn,
        steps=spec.steps,
        hooks=spec.hooks,
        checkpoint_path=path,
        name=spec.name,
    )


@dataclass(frozen=True)
class EndMarker:
    """A run has ended.

    Args:
        global_step: The step of its last checkpoint.
        reason: Why it ended, in words.
    """

    global_step: int
    reason: str


def write_end_marker(model_dir: str, marker: EndMarker) -> None:
    """Say in `model_dir` that training has ended; readers see all of it or nothing."""
    write_text(model_dir, _MARKER_NAME, json.dumps(asdict(marker)))


def read_end_marker(model_dir: str) -> EndMarker | None:
    """The mark of the last run in `model_dir`; None where one is under way, or none was.

    Raises:
        ValueError: It is damaged.
        CheckpointError: It cannot be read.
    """
    try:
        found = read_json(model_dir, _MARKER_NAME)
        if found is None:
            return None
        return EndMarker(int(found["global_step"]), str(found["reason"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{_MARKER_NAME} in {model_dir} is damaged ({type(error).__name__}: {error}), so that "
            f"nobody can say whether training has ended; delete it, or start training again"
        ) from error


def training_ended(
    model_dir: str | os.PathLike[str], max_steps: int | None = None
) -> EndMarker | None:
    """How the run in `model_dir` ended; None where there is more to train.

    For a task that a supervisor has started again by itself: making its strategy waits for the
    other tasks, which do not come back where training has ended. It asks before.

    Args:
        model_dir: Where the chief saves.
        max_steps: As of `TrainSpec`: a run that ended at an earlier step is not at its end. By
            default every end counts.

    Raises:
        ValueError: The mark of the end is damaged.
        CheckpointError: It cannot be read.
    """
    end = read_end_marker(os.fspath(model_dir))
    is_short = end is not None and max_steps is not None and end.global_step < max_steps
    return None if is_short else end


def remove_end_marker(model_dir: str) -> None:
    """Say that training goes on."""
    remove_text(model_dir, _MARKER_NAME)


@final
class Unended(SessionRunHook):
    """Takes the mark of an earlier run away from `model_dir`, for a run that goes on there.

    Entered as a context by who has been given the right to write. A run that ends before its first
    step (it was refused, say) puts the mark back.
    """

    def __init__(self, model_dir: str) -> None:
        self._model_dir = model_dir
        self._marker: EndMarker | None = None

    def __enter__(self) -> Unended:
        try:
            self._marker = read_end_marker(self._model_dir)
        except (CheckpointError, ValueError) as error:
            # Whatever it said: from now on training has not ended.
            _logger.warning("Removing a damaged file, since training goes on: %s", error)
        remove_end_marker(self._model_dir)
        return self

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        self._marker = None

    def __exit__(self, *error: object) -> None:
        if self._marker is not None:
            write_end_marker(self._model_dir, self._marker)
