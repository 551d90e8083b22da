"""What trainers have to do with each other: who is there, who is how far, who has finished.

And a board, on which they tell each other what is not the server's business.
"""

from __future__ import annotations

from typing import final

from .board import Board
from .state import State
from .trainer_requests import (
    Dismissed,
    Done,
    Found,
    Join,
    Joined,
    Post,
    Posted,
    Read,
    Remaining,
    Wait,
    WaitDone,
    Waited,
)
from .trainers import Trainer
from .updates import Updates
from .variables import Variables

ENDING_KEY = "ending"
"""Under it a trainer says why all are to end; each of them learns that with its next push."""


@final
class Coordination:
    """Answers requests that concern trainers.

    Args:
        state: The server's.
        updates: Is told who has joined and who is done.
        variables: To tell newcomers about.
    """

    def __init__(self, state: State, updates: Updates, variables: Variables) -> None:
        self._state = state
        self._trainers = state.trainers
        self._updates = updates
        self._variables = variables
        self._board = Board()

    def join(self, trainer: Trainer, request: Join) -> Joined:
        state = self._state
        with state.lock:
            if request.from_version is None or not trainer.is_joined:
                if not request.returning:
                    self._updates.forget(trainer)
                is_replacement = request.returning and not state.has_begun
                self._trainers.join(trainer, request.returning, is_replacement)
            trainer.number = max(trainer.number, request.number)
            trainer.from_version = request.from_version
            state.tell()
            joined = Joined(
                version=state.version,
                num_shards=len(self._variables),
                is_ready=state.is_ready,
                note=trainer.note,
                clock=trainer.clock,
                number=trainer.number,
            )
        self._updates.reconsider()
        return joined

    def wait(self, trainer: Trainer, request: Wait) -> Waited:
        """Clocks are what trainers have told here: all variables may be on other servers."""
        state, bound = self._state, request.clock - request.staleness
        with state.lock:
            if request.clock > trainer.clock:
                trainer.clock = request.clock
                state.tell_progress()
            is_near = state.wait_for_progress(
                lambda: self._trainers.slowest(trainer).clock >= bound, request.wait_secs
            )
            slowest = self._trainers.slowest(trainer)
            return Waited(ok=is_near, slowest=slowest.name, clock=slowest.clock)

    def post(self, trainer: Trainer, request: Post) -> Posted:
        with self._state.lock:
            self._board.post(request.key, request.text)
            self._state.is_ending |= request.key == ENDING_KEY
            self._state.tell()
        return Posted()

    def read(self, trainer: Trainer, request: Read) -> Found:
        with self._state.lock:
            self._state.wait_until(
                lambda: self._board.read(request.key) is not None, request.wait_secs
            )
            return Found(text=self._board.read(request.key))

    def done(self, trainer: Trainer, request: Done) -> Dismissed:
        with self._state.lock:
            trainer.finish()
            self._state.tell()
        self._updates.reconsider()
        return Dismissed()

    def wait_done(self, trainer: Trainer, request: WaitDone) -> Remaining:
        def others() -> list[Trainer]:
            return [other for other in self._trainers.unsettled() if other is not trainer]

        with self._state.lock:
            trainer.rest()
            self._state.tell()
        self._updates.reconsider()
        with self._state.lock:
            self._state.wait_until(lambda: not others(), request.wait_secs)
            return Remaining(waiting_for=tuple(other.name for other in others()))

    def text(self, key: str) -> str | None:
        """What is on the board; the lock is held."""
        return self._board.read(key)
