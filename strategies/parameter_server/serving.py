"""`ServingJob`: the job of a task that is a parameter server."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import final

from ...collectives.parameter_server import ParameterServer, ShardStorage, UpdateRule
from ..communication import CommunicationOptions
from ..job import Job
from .channel import Channel

_logger = logging.getLogger("paceline")


@final
class ServingJob(Job):
    """A parameter server keeps variables and makes no steps.

    Args:
        channel: How it is reached.
        is_synchronous: Whether all trainers make each step together.
        replicas_to_aggregate: How many of them make a step; None for all.
        absence_secs: How long trainers that have died are waited for.
        options: Say how long trainers may take to start.
    """

    def __init__(
        self,
        channel: Channel,
        is_synchronous: bool,
        replicas_to_aggregate: int | None,
        absence_secs: float,
        options: CommunicationOptions,
    ) -> None:
        self._channel = channel
        self._is_synchronous = is_synchronous
        self._replicas_to_aggregate = replicas_to_aggregate
        self._absence_secs = absence_secs
        self._start_timeout_secs = options.start_timeout_secs

    @property
    def num_trainers(self) -> int:
        return len(self._channel.trainers)

    @property
    def trainer_index(self) -> int:
        raise _no_trainer()

    @property
    def is_chief(self) -> bool:
        return False

    @property
    def has_chief_in_step(self) -> bool:
        return False

    def text_from_chief(self, text: str, name: str) -> str:
        raise _no_trainer()

    def tell_input_state(self, state: Callable[[], str]) -> None:
        raise _no_trainer()

    def input_states(self) -> Sequence[str]:
        raise _no_trainer()

    def latest_input_state(self) -> str:
        raise _no_trainer()

    def tell_newest_checkpoint(self, find: Callable[[], str | None]) -> None:
        raise _no_trainer()

    def finish(self) -> None:
        raise _no_trainer()

    @property
    def can_leave_alone(self) -> bool:
        return self._channel.can_leave_alone

    @property
    def is_ending(self) -> bool:
        raise _no_trainer()

    def leave(self) -> None:
        raise _no_trainer()

    def share_result(self, text: str) -> str:
        raise _no_trainer()

    def serve(
        self,
        rules: Mapping[str, UpdateRule],
        storage: ShardStorage,
        is_asked_to_end: Callable[[], bool],
    ) -> str:
        name = str(self._channel.servers[self._channel.rank])
        server = ParameterServer(
            name=name,
            trainers=[member.task for member in self._channel.trainers],
            rules=rules,
            storage=storage,
            synchronous=self._is_synchronous,
            replicas_to_aggregate=self._replicas_to_aggregate,
            absence_secs=self._absence_secs,
            start_timeout_secs=self._start_timeout_secs,
        )
        with closing(self._channel.serve(server.handle, server.joined, server.lost, server.left)):
            _logger.info("%s serves.", name)
            outcome = server.run(is_asked_to_end)
        self._channel.abandon(server.unfinished)
        _logger.info("%s has served: all trainers are done or gone.", name)
        return outcome


def _no_trainer() -> RuntimeError:
    return RuntimeError(
        "this process is a parameter server (ps), which does not train; call train_and_evaluate, "
        "the same in every process of the job"
    )
