"""When a push changes the variables: at once, or in step with those of all trainers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from .aggregation import Agreement, Terms, mean_of, terms_of
from .membership import Trainer
from .push_plan import Change, apply_all
from .shards import Shard
from .state import State
from .step_requests import Push, Pushed
from .variable_requests import Snapshot


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
class AsynchronousUpdates(Updates):
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
            # Asked and applied under one hold of the variables' lock: a snapshot, which takes it
            # alone, cannot come between the two.
            with state.variables_lock.shared():
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
            try:
                apply_all(changes)
            except BaseException as error:
                state.fail(error, [trainer])
                raise
        # Within the lock: a snapshot holds the push and its note, or neither.
        with state.lock:
            staleness = trainer.staleness(push.pulled_version, state.version)
            version = state.advance()
            trainer.count_push(version, push.note)
        return Pushed(version=version, staleness=staleness)

    def come_to_rest(self) -> None:
        with self._state.variables_lock.exclusive():
            pass  # what is admitted is admitted within the lock

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


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Contribution:
    trainer: Trainer
    push: Push
    changes: Sequence[Change]
    terms: Mapping[Shard, Terms]

    def keep(self) -> None:
        """Have gradients in memory of their own: where they lie the trainer may soon have others.

        Nobody reads them meanwhile.
        """
        for change in self.changes:
            gradient = change.gradient
            gradient.values = np.require(gradient.values, requirements="O")


@final
class SynchronousUpdates(Updates):
    """Synchronous training: step n is one update, with the mean of all trainers' pushes of step n.

    A step waits for whoever takes part in it. The first one made here waits for every trainer that
    may still come, later ones for those who have said from which step on they contribute. Nobody
    waits for the dead: a trainer whose connection is lost, and that is not back within some
    seconds, is left out until it joins again. What it had pushed counts.

    Args:
        state: The server's.
        num_enough: If given, a step waits for so many pushes only, and later ones are dropped:
            backup workers, as in Chen et al., "Revisiting Distributed Synchronous SGD" (2016).
    """

    def __init__(self, state: State, num_enough: int | None) -> None:
        self._state = state
        self._num_enough = num_enough
        self._pending: dict[int, _Contribution] = {}
        self._agreement = Agreement()
        self._last_steps: dict[int, int] = {}
        self._is_updating = False

    def push(self, trainer: Trainer, push: Push, changes: Sequence[Change]) -> Pushed:
        state = self._state
        contribution = _Contribution(trainer, push, changes, terms_of(changes))
        with state.lock:
            state.wait_for_progress(lambda: not self._is_updating)
            state.check()
            if push.step < state.version:
                return self._too_late(trainer, push)
            self._take(contribution)
        self.reconsider()
        with state.lock:
            staleness = push.step - push.pulled_version
            if not state.wait_for_progress(lambda: state.version > push.step, push.wait_secs):
                # What is being added up just now is no longer pending, and done soon.
                state.wait_for_progress(lambda: not self._is_updating)
            if state.version > push.step:
                return Pushed(version=state.version, staleness=staleness)
            contribution.keep()
            waiting_for = state.names(self.missing())
            return Pushed(version=state.version, staleness=staleness, waiting_for=waiting_for)

    def _too_late(self, trainer: Trainer, push: Push) -> Pushed:
        """Its step has been made: without it, or with it and it asks again."""
        is_dropped = push.step > self._last_steps.get(trainer.rank, -1)
        staleness = self._state.version - push.pulled_version
        return Pushed(version=self._state.version, staleness=staleness, dropped=is_dropped)

    def _take(self, contribution: _Contribution) -> None:
        trainer, push = contribution.trainer, contribution.push
        if push.step > self._state.version:
            raise ValueError(
                f"step must be at most {self._state.version}, the version of {self._state.name}; "
                f"{trainer.name} pushes step {push.step}. PULL before you push, also if this "
                "server was restarted"
            )
        if trainer.rank not in self._pending:  # else it asks again
            self._agreement.join(trainer.name, contribution.terms)
            trainer.begin_push(push)
            self._pending[trainer.rank] = contribution
        if trainer.from_version is None or trainer.from_version > push.step:
            trainer.from_version = push.step

    def missing(self) -> list[Trainer]:
        if self._num_enough is not None and len(self._pending) >= self._num_enough:
            return []
        return [
            trainer
            for trainer in self._state.trainers
            if trainer.rank not in self._pending and self._is_required(trainer)
        ]

    def _is_required(self, trainer: Trainer) -> bool:
        state, trainers = self._state, self._state.trainers
        if not state.has_begun and trainer.from_version is None and trainers.may_begin(trainer):
            return True
        return trainers.is_waited_for(trainer, state.version)

    def forget(self, trainer: Trainer) -> None:
        # What it has pushed may be among what is applied just now.
        self._state.wait_for_progress(lambda: not self._is_updating)
        self._last_steps.pop(trainer.rank, None)
        if self._pending.pop(trainer.rank, None) is not None:
            self._agreement = Agreement()
            for other in self._pending.values():
                self._agreement.join(other.trainer.name, other.terms)

    def come_to_rest(self) -> None:
        with self._state.lock:
            self._state.wait_for_progress(lambda: not self._is_updating)

    def behind(self, snapshot: Snapshot) -> list[Trainer]:
        if self._state.version >= snapshot.version:
            return []
        return self.missing() or [contribution.trainer for contribution in self._pending.values()]

    def reconsider(self) -> None:
        state = self._state
        with state.lock:
            is_held = not state.cut.admits_update(state.version)
            if is_held or self._is_updating or not self._pending or self.missing():
                return
            # In the order of ranks, so that sums do not depend on who came first. From here on
            # pushes wait until this step is made: they are of the next one, or too late.
            contributions = [self._pending[rank] for rank in sorted(self._pending)]
            self._pending, self._is_updating = {}, True
            self._agreement = Agreement()
        try:
            # The lock is not held while arrays are added up: heartbeats and status go on.
            with state.variables_lock.exclusive():
                self._update(contributions)
        finally:
            with state.lock:
                self._is_updating = False
                state.tell_progress()

    def _update(self, contributions: Sequence[_Contribution]) -> None:
        state = self._state
        try:
            apply_all(mean_of([(one.push.weight, one.changes) for one in contributions]))
        except BaseException as error:
            state.fail(error, [one.trainer for one in contributions])
            raise
        with state.lock:
            version = state.advance()
            for one in contributions:
                self._last_steps[one.trainer.rank] = one.push.step
                one.trainer.count_push(version, one.push.note)
