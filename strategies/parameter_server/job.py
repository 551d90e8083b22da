"""`ServerJob`: the job of trainers that meet at parameter servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import final

from ...collectives.parameter_server import ShardStorage, UpdateRule
from ..job import Job, refuse_to_serve
from .meeting import Meeting
from .storage import ServerStorage

_OUTCOME = "outcome"


@final
class ServerJob(Job):
    """Trainers that each make their own steps, and meet at the parameter servers.

    Args:
        num_trainers, trainer_index: How many there are, and which one this is.
        is_chief: Whether it is the one that writes files.
        servers: Gives the servers.
        storage: Where the variables are.
        can_leave_alone: Whether it may end while the others go on.
    """

    def __init__(
        self,
        num_trainers: int,
        trainer_index: int,
        is_chief: bool,
        servers: Meeting,
        storage: ServerStorage,
        can_leave_alone: bool = True,
    ) -> None:
        self._num_trainers = num_trainers
        self._trainer_index = trainer_index
        self._is_chief = is_chief
        self._servers = servers
        self._storage = storage
        self._can_leave_alone = can_leave_alone

    @property
    def num_trainers(self) -> int:
        return self._num_trainers

    @property
    def trainer_index(self) -> int:
        return self._trainer_index

    @property
    def is_chief(self) -> bool:
        return self._is_chief

    @property
    def has_chief_in_step(self) -> bool:
        return self._is_chief

    def text_from_chief(self, text: str, name: str) -> str:
        if not self._is_chief:
            return self._servers().read(name)
        self._servers().post(name, text)
        return text

    def tell_input_state(self, state: Callable[[], str]) -> None:
        self._storage.note = state
        self._servers().post(f"input of trainer {self._trainer_index}", state())

    def input_states(self) -> Sequence[str]:
        if not self._is_chief:
            return [""] * self._num_trainers
        notes = self._servers().snapshot()
        return [
            notes.get(index) or self._servers().posted(f"input of trainer {index}")
            for index in range(self._num_trainers)
        ]

    def latest_input_state(self) -> str:
        return self._servers().note or ""

    def tell_newest_checkpoint(self, find: Callable[[], str | None]) -> None:
        self._servers.newest_checkpoint = find

    def finish(self) -> None:
        if self._is_chief:
            self._servers().wait_until_all_have_finished()
            self._storage.refresh()
        else:
            self._servers().finish()

    @property
    def can_leave_alone(self) -> bool:
        return self._can_leave_alone

    @property
    def is_ending(self) -> bool:
        return self._servers().is_ending

    def leave(self) -> None:
        if self._can_leave_alone:  # the others go on, and it may come back
            return
        servers = self._servers()
        servers.end_all(f"trainer {self._trainer_index} was asked to end")
        servers.finish()
        if not self._is_chief:
            servers.wait_until_the_chief_has_finished()
        self._servers.leave()

    def share_result(self, text: str) -> str:
        servers = self._servers()
        if self._is_chief:
            servers.post_everywhere(_OUTCOME, text)
            servers.finish()
        else:
            text = servers.read(_OUTCOME)
        self._servers.leave()
        return text

    def serve(
        self,
        rules: Mapping[str, UpdateRule],
        storage: ShardStorage,
        is_asked_to_end: Callable[[], bool],
    ) -> str:
        raise refuse_to_serve()
