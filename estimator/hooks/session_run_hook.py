"""What a hook is: something that is told about each step of a run and can ask for its values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


class Session(Protocol):
    """A run, as its hooks see it."""

    @property
    def global_step(self) -> int:
        """The number of steps made so far, those of earlier runs included."""

    @property
    def loss(self) -> float | None:
        """The loss of the latest step, the mean over all its examples; None before the first."""

    @property
    def workers_with_bad_loss(self) -> list[str]:
        """Where there are several, whose own loss was no finite number in the latest step."""

    wants_save: bool
    """A hook may set this before a step to ask all workers for a checkpoint after it."""

    @property
    def save_is_agreed(self) -> bool:
        """Whether a worker has asked for a checkpoint after the step that was just made."""

    wants_end: bool
    """A hook may set this before a step to have all workers save after it and end, so that the run
    can be continued later."""

    @property
    def end_is_agreed(self) -> bool:
        """Whether a worker has asked for such an end after the step that was just made."""

    will_stop: bool
    """A hook that is sure to ask for the end after a step may say so here before it. Where all
    workers say so, none computes another step for the others' sake."""

    def will_run(self, fetches: Sequence[Any]) -> None:
        """Say before a step what `run` will be asked for after it.

        Some values are made of those of all workers, which have to know that one of them asks.
        """

    def run(self, fetches: Any) -> Any:
        """The present values of names, in the structure of `fetches`; see `SessionRunArgs`.

        On several workers, what was not announced and is aggregated over replicas (an `ON_READ`
        variable) must be asked for by all workers alike.
        """

    def values(self) -> dict[str, Any]:
        """The values of all variables that belong into a checkpoint, by name.

        They are not copies: the next step changes them.
        """

    def input_states(self) -> list[dict[str, Any]]:
        """Where the input of each worker stands after the latest step; all workers call this."""


@dataclass(frozen=True)
class SessionRunArgs:
    """What a hook wants to know after the step.

    Args:
        fetches: A name, or a list or dict of names: "loss", "global_step" (the steps made in all),
            "step" (the number of the step just made, from 0), or that of a variable. A variable
            stands for its name, and the loss that `model_fn` returned for "loss".
    """

    fetches: Any


@dataclass(frozen=True)
class SessionRunValues:
    """What a hook gets after the step: the values that it asked for, in the same structure."""

    results: Any = None


NO_VALUES = SessionRunValues()
"""What a hook gets that has asked for nothing."""


class SessionRunContext:
    """One step, as a hook sees it."""

    __slots__ = ("_stop_requested", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self._stop_requested = False

    @property
    def stop_requested(self) -> bool:
        return self._stop_requested

    def request_stop(self) -> None:
        """End the run after all hooks of this step were called."""
        self._stop_requested = True

    def should_stop(self) -> bool:
        """`stop_requested`, as a TensorFlow coordinator has it."""
        return self._stop_requested


class SessionRunHook:
    """Takes part in a run: begin, then after_create_session, then before_run and after_run around
    each step, then end.

    `end` is called at the end of the data too, but not after an exception. Write the methods that
    you need.
    """

    def begin(self) -> None:
        """The run is about to begin; nothing exists yet."""

    def after_create_session(self, session: Session, coord: Any = None) -> None:
        """All variables exist and have their first values.

        Args:
            session: The run.
            coord: Has `request_stop()` and `should_stop()`: the run's `SessionRunContext`.
        """

    def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        """A step is about to be made; say which values to hand to `after_run`."""
        return None

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """A step was made."""

    def end(self, session: Session) -> None:
        """The run has ended in order."""
