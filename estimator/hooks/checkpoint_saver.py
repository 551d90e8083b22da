"""The hook that saves checkpoints, who writes them for it, and who listens to it."""

from __future__ import annotations

import logging
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ...checkpoint import PendingCopies
from ...nn.optimizers import states_of_optimizers
from ...observe import phase
from ...training import (
    Rest,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from .timer import SecondOrStepTimer

_logger = logging.getLogger("paceline")

_SECS_BETWEEN_LOOKS_AT_THE_WRITER = 0.5


class CheckpointWriter(ABC):
    """One task's part in saving. All workers of a strategy make the same calls."""

    @abstractmethod
    def prepare(self) -> None:
        """Return when nothing is being written: what is saved next is of a moment after that."""

    @abstractmethod
    def save(self, step: int, arrays: dict[str, Any], state: dict[str, Any]) -> PendingCopies:
        """Begin to save, after `prepare`.

        Args:
            step: The global step.
            arrays: The values of all variables, by name, wherever they lie.
            state: What else the checkpoint is to hold, as JSON: where the input stands.

        Returns:
            What is to be called before the values of these names change in place.
        """

    @abstractmethod
    def check(self) -> None:
        """Raise what has gone wrong with the last save meanwhile; does not wait."""

    @abstractmethod
    def wait(self) -> None:
        """Return when this task's part of what was saved is on disk."""


class CheckpointSaverListener:
    """Told by a `CheckpointSaverHook` about each checkpoint. Write the methods that you need."""

    def begin(self) -> None:
        """The run is about to begin."""

    def before_save(self, session: Session, global_step_value: int) -> None:
        """A checkpoint is about to be written."""

    def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """A checkpoint was written; return True to end the run."""
        return None

    def end(self, session: Session, global_step_value: int) -> None:
        """The run has ended; its last checkpoint is written."""


class CheckpointSaverHook(SessionRunHook):
    """Says how often a run saves, in place of its `RunConfig`, and to whom it tells that.

    The run itself saves, into its one directory, whole or not at all, whatever the strategy. The
    hook may be given to all workers; that of the chief counts.

    Args:
        checkpoint_dir: The `model_dir` of the run.
        save_secs, save_steps: How often; exactly one of them.
        saver, scaffold: Of TensorFlow's graphs; must be None.
        checkpoint_basename: Must be "model.ckpt".
        listeners: Told about each checkpoint, besides the `saving_listeners` of the run.
        save_graph_def: Has no effect: a checkpoint needs no graph.

    Raises:
        ValueError: Arguments that nothing can be made of; when the run begins, another directory
            than its own, or a second hook.
    """

    def __init__(
        self,
        checkpoint_dir: str | os.PathLike[str],
        save_secs: float | None = None,
        save_steps: int | None = None,
        saver: None = None,
        checkpoint_basename: str = "model.ckpt",
        scaffold: None = None,
        listeners: Sequence[CheckpointSaverListener] | None = None,
        save_graph_def: bool = True,
    ) -> None:
        if saver is not None or scaffold is not None or checkpoint_basename != "model.ckpt":
            raise ValueError(
                "CheckpointSaverHook: a checkpoint has all variables and is called "
                "model.ckpt-STEP; leave saver, scaffold and checkpoint_basename out"
            )
        self.timer = SecondOrStepTimer(save_secs, save_steps)
        self.listeners = tuple(listeners or ())
        self.directory = os.fsdecode(checkpoint_dir)

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        if not isinstance(session.saver, RunSaver):
            raise ValueError("CheckpointSaverHook: only training saves checkpoints; leave it out")
        if session.saver.take_over(self, session):
            coord.request_stop()


class RunSaver(SessionRunHook):
    """Saves a run: at the start, every so many steps or seconds, and at the end.

    On several workers every one has this hook: all collect the values, since some are only known
    to all together, and save at the same step, which the chief's clock decides. A step whose loss
    was not a finite number is never saved.

    Args:
        directory: Where to.
        writer: This worker's part in writing. Listeners, who may read what was written, and the end
            of the run wait for it; steps do not.
        save_secs, save_steps: How often; at most one of them. With neither only at start and end.
        listeners: Told about each checkpoint.
        decides: Whether this worker says when it is time.
        first_step: The global step that the run begins with; what it was restored from is saved
            already.
        last_step: The one at which it ends, if that is known: its input ends there, too.

    Attributes:
        last_has_input: Whether the checkpoint that was saved last says where the input stands; else
            the next run begins its input anew.
    """

    def __init__(
        self,
        directory: str,
        writer: CheckpointWriter,
        save_secs: float | None = None,
        save_steps: int | None = None,
        listeners: Sequence[CheckpointSaverListener] = (),
        decides: bool = True,
        first_step: int = 0,
        last_step: int | None = None,
    ) -> None:
        self._directory = directory
        self._asked: CheckpointSaverHook | None = None
        neither = save_secs is None and save_steps is None
        self._timer = SecondOrStepTimer(math.inf if neither else save_secs, save_steps)
        self._writer = writer
        self._listeners = tuple(listeners)
        self._decides = decides
        self._first_step = first_step
        self._last_step = last_step
        self.last_has_input = False

    def begin(self) -> None:
        if self._decides:
            when = "at the start and at the end"
            if self._timer.every_steps is not None:
                when = f"every {self._timer.every_steps} steps"
            elif self._timer.every_secs is not None and math.isfinite(self._timer.every_secs):
                when = f"every {self._timer.every_secs:g} s"
            _logger.info("Create CheckpointSaverHook: %s, into %s.", when, self._directory)
        for listener in self._listeners:
            listener.begin()

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        session.saver = self
        self._save(session)

    def take_over(self, asked: CheckpointSaverHook, session: Session) -> bool:
        """Save as a hook wants it; return whether a listener wants the run to end.

        The checkpoint at the start is written already: its listeners hear of it now.
        """
        if _real(asked.directory) != _real(self._directory):
            raise ValueError(
                f"CheckpointSaverHook: checkpoint_dir is {asked.directory!r}, and the run saves in "
                f"its model_dir {self._directory!r}; pass that, or save elsewhere in a hook with "
                f"paceline.checkpoint.save(directory, session.global_step, session.values())"
            )
        if self._asked is not None:
            raise ValueError("two CheckpointSaverHooks in one run; give one, with all listeners")
        self._asked = asked
        if not self._decides:
            return False
        step = session.global_step
        asked.timer.update_last_triggered_step(step)
        self._timer = asked.timer
        self._listeners += asked.listeners
        self._writer.wait()
        for listener in asked.listeners:
            listener.begin()
            listener.before_save(session, step)
        answers = [listener.after_save(session, step) for listener in asked.listeners]
        return any(answers)

    def before_run(self, run_context: SessionRunContext) -> None:
        session = run_context.session
        due = self._timer.should_trigger_for_step(session.global_step + 1)
        session.wants_save = self._decides and due

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        session = run_context.session
        self._writer.check()
        if session.save_is_agreed and self._save(session):
            run_context.request_stop()

    def save_if_due(self, session: Session) -> None:
        """See `Saver`: what others learn is saved as often as what the chief has learned."""
        if self._timer.should_trigger_for_step(session.global_step):
            self._save(session)

    def may_rest(self, session: Session) -> Rest | None:
        session.wants_save = False
        rest = self._timer.rest()
        return rest and rest._replace(secs=min(rest.secs, _SECS_BETWEEN_LOOKS_AT_THE_WRITER))

    def end(self, session: Session) -> None:
        if self._timer.last_triggered_step() != session.global_step:
            self._save(session, ends=not session.end_is_agreed)
        self._writer.wait()
        for listener in self._listeners:
            listener.end(session, session.global_step)

    @property
    def last_saved_step(self) -> int | None:
        """The global step of the newest checkpoint of the run, which may still be written."""
        return self._timer.last_triggered_step()

    def _save(self, session: Session, ends: bool = False) -> bool:
        """Save if the model is sound; return whether a listener wants the run to end."""
        step = session.global_step
        if session.loss is not None and not math.isfinite(session.loss):
            _logger.warning("Step %d is not saved: its loss is %s.", step, session.loss)
            return False
        self._timer.update_last_triggered_step(step)
        for listener in self._listeners:
            listener.before_save(session, step)
        with phase("save"):
            if step != self._first_step or step == 0:
                self._write(session, ends or step == self._last_step)
            if self._listeners:
                self._writer.wait()
        # Every listener hears of every checkpoint, also when an earlier one asks to stop.
        answers = [listener.after_save(session, step) for listener in self._listeners]
        return any(answers)

    def _write(self, session: Session, input_ends: bool) -> None:
        """Begin to write, as all workers do at this step: they collect some of it together."""
        self._writer.prepare()
        arrays, states = session.arrays(), [] if input_ends else session.input_states()
        self.last_has_input = not input_ends
        state: dict[str, Any] = {} if input_ends else {"input": states}
        if optimizers := states_of_optimizers(session.store):
            state["optimizers"] = optimizers
        session.lend(self._writer.save(session.global_step, arrays, state))


def _real(directory: str) -> str:
    return directory if "://" in directory else os.path.realpath(directory)
