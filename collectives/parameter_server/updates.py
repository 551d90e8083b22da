"""When a push changes the variables: the interface, and "at once"."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

from .rules import Change
from .state import State
from .trainers import Trainer
from .variable_requests import Push, Pushed


class Updates(ABC):
    """Turns pushes into updates, each of which makes a version."""

    @abstractmethod
    def push(self, trainer: Trainer, push: Push, changes: Sequence[Change]) -> Pushed:
        """Take a push; returns when it has been applied, or was dropped, or time is up."""

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
        with state.gate.together():
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

    def missing(self) -> list[Trainer]:
        return [trainer for trainer in self._state.trainers if trainer.is_here]

    def forget(self, trainer: Trainer) -> None:
        """There is nothing that is not applied."""

    def reconsider(self) -> None:
        """Nobody waits for anybody."""
