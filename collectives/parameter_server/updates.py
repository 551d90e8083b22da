"""When a push changes the variables: the interface, and "at once"."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

from .rules import Change
from .state import State
from .trainers import Trainer
from .variable_requests import Push, Pushed, Snapshot


class Updates(ABC):
    """Turns pushes into updates, each of which makes a version."""

    @abstractmethod
    def push(self, trainer: Trainer, push: Push, changes: Sequence[Change]) -> Pushed:
        """Take a push; returns when it has been applied, or was dropped, or time is up."""

    @abstractmethod
    def come_to_rest(self) -> None:
        """Return when what `State.cut` has admitted so far is done."""

    @abstractmethod
    def behind(self, snapshot: Snapshot) -> list[Trainer]:
        """Whose pushes are missing in a snapshot, of those who are here; the lock is held."""

    @abstractmethod
    def missing(self) -> list[Trainer]:
        """Whom the next version waits for; the lock is held."""

    @abstractmethod
    def forget(self, trainer: Trainer) -> None:
        """Give up what a trainer has pushed and is not applied; the lock is held, or waited for."""

    @abstractmethod
    def reconsider(self) -> None:
        """A trainer has come, gone or finished: perhaps nothing is missing any more."""


@final
class AtOnce(Updates):
    """Asynchronous training: each push is an update, applied as it comes.

    Pushes to different variables run side by side, those to the same one after the other.

    Args:
        state: The server's.
    """

    def __init__(self, state: State) -> None:
        self._state = state

    def push(self, trainer: Trainer, push: Push, changes: Sequence[Change]) -> Pushed:
        state = self._state
        while True:
            with state.gate.together():
                with state.lock:
                    is_admitted = state.cut.admits_push(trainer.rank, push.number)
                    is_new = is_admitted and trainer.begin_push(push)
                if is_new:
                    return self._apply(trainer, push, changes)
            with state.lock:
                if is_admitted:  # its reply was lost
                    return Pushed(version=state.version)
                state.wait_for_progress(lambda: state.cut.admits_push(trainer.rank, push.number))

    def _apply(self, trainer: Trainer, push: Push, changes: Sequence[Change]) -> Pushed:
        state = self._state
        if push.weight:
            with state.updating(trainer.name):
                for change in changes:
                    change.apply()
        # Within the gate: a snapshot holds the push and its note, or neither.
        with state.lock:
            staleness = trainer.staleness(push.pulled_version, state.version)
            version = state.advance()
            trainer.count_push(version, staleness, push.note)
        return Pushed(version=version, staleness=staleness)

    def come_to_rest(self) -> None:
        with self._state.gate.alone():
            pass  # what is admitted is admitted within the gate

    def behind(self, snapshot: Snapshot) -> list[Trainer]:
        return [
            trainer
            for trainer in self._state.trainers
            if trainer.is_here and trainer.number < snapshot.numbers.get(trainer.rank, 0)
        ]

    def missing(self) -> list[Trainer]:
        return [trainer for trainer in self._state.trainers if trainer.is_here]

    def forget(self, trainer: Trainer) -> None:
        """There is nothing that is not applied."""

    def reconsider(self) -> None:
        """Nobody waits for anybody."""
