"""A parameter server: variables that several trainers read and change.

    trainer ──  PULL: give me these variables (or rows of them)   ──►  server
            ──  PUSH: change them along these gradients           ──►

The optimizer runs here, with what it keeps beside a variable. The rest follows from there being
several trainers, which come late, leave, die and come back:

    verbs         what can be asked
    variables     answers what concerns variables    shards, table   what they are made of
    plan          what a push asks for, checked      rules, mean     the arithmetic
    updates       asynchronous: at once              steps           synchronous: in step
    coordination  answers what concerns trainers     trainers        who is here, gone, done
    state, gate   what threads share                 cut              snapshots of several servers
    agreement     what trainers in step must do alike

How requests come here is no matter of this module: the transport calls `handle` for each, in any
thread, and tells who has come and gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from ..errors import CollectiveError, CollectiveTimeoutError
from .bodies import as_body, parse_request
from .coordination import Coordination
from .messages import Client, Message
from .rules import UpdateRule
from .shards import Array
from .state import State
from .steps import InStep
from .table import ShardStorage
from .trainer_requests import Done, Join, Post, Read, ServerStatus, Status, Wait, WaitDone
from .trainers import Trainer, Trainers
from .updates import AtOnce, Updates
from .variable_requests import Create, Hold, Pull, Push, Snapshot, Write
from .variables import Variables
from .verbs import Reply, Request

OUTCOME_KEY = "outcome"
"""What is on the board under it when all trainers are done is what `run` returns."""

FAILURE_KEY = "failure"
"""On the board under it: why a trainer gave the job up. Where nobody says how the job ended, this
is what `run` raises."""

_HANG_UP_SECS = 10.0

_log = logging.getLogger("paceline")


@final
class ParameterServer:
    """Holds variables, and changes them as trainers ask. All methods may be called by any thread.

    Args:
        name: Its name, for messages.
        trainers: The names of all trainers of the job, by rank.
        rules: The update rules by name; "add" and "assign" are built in.
        storage: Reads and writes checkpoints.
        synchronous: Whether an update waits for all trainers (see `InStep`, `AtOnce`).
        replicas_to_aggregate: In synchronous training, for how many instead of all; later pushes
            are dropped. Each server of a job decides for itself which these are.
        absence_secs: How long a trainer that was lost may stay away until it is given up.
        start_timeout_secs: How long trainers may take to come at all.
        return_secs: In synchronous training: how long a step goes on waiting for a trainer whose
            connection was lost, and which may just have to connect again.
        clock: Seconds from any beginning.

    Raises:
        ValueError: An argument is out of range.
    """

    def __init__(
        self,
        *,
        name: str = "ps 0",
        trainers: Sequence[str],
        rules: Mapping[str, UpdateRule],
        storage: ShardStorage,
        synchronous: bool,
        replicas_to_aggregate: int | None = None,
        absence_secs: float = 60.0,
        start_timeout_secs: float = 600.0,
        return_secs: float = 3.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        _check(trainers, synchronous, replicas_to_aggregate, absence_secs, start_timeout_secs)
        self.name = name
        self._start_timeout_secs = start_timeout_secs
        self._trainers = Trainers(trainers, absence_secs, start_timeout_secs, return_secs, clock)
        self._state = State(name, self._trainers, clock)
        self._updates: Updates = (
            InStep(self._state, replicas_to_aggregate) if synchronous else AtOnce(self._state)
        )
        self._variables = Variables(self._state, rules, storage, self._updates)
        self._coordination = Coordination(self._state, self._updates, self._variables)
        self._num_received_bytes = 0
        self._num_sent_bytes = 0
        self._answers: dict[type[Request], Callable[[Trainer, Any], Reply]] = {
            Join: self._coordination.join,
            Wait: self._coordination.wait,
            Post: self._coordination.post,
            Read: self._coordination.read,
            Done: self._coordination.done,
            WaitDone: self._coordination.wait_done,
            Hold: self._variables.hold,
            Snapshot: self._variables.snapshot,
            Write: self._variables.write,
            Status: self._status,
        }
        self._answers_with_arrays: dict[
            type[Request], Callable[[Trainer, Any, Sequence[Array]], tuple[Reply, list[Array]]]
        ] = {
            Create: lambda *given: (self._variables.create(*given), []),
            Pull: self._variables.pull,
            Push: self._variables.push,
        }

    def handle(self, client: Client, message: Message) -> Message:
        """Answer a request; may wait for as long as the request says.

        The arrays of the request belong to the server from here on. Those of the reply are read
        only and may be variables themselves: what holds on to them longer than it takes to send
        them makes the next update copy.

        Raises:
            ValueError: The request is refused; nothing has changed.
            RuntimeError: An update has failed, the server is of no use any more.
        """
        request = parse_request(message.verb, message.body)
        with self._state.lock:
            self._state.check()
            trainer = self._trainers[client.rank]
            self._num_received_bytes += sum([array.nbytes for array in message.arrays])
        reply, arrays = self._answer(trainer, request, message.arrays)
        with self._state.lock:
            self._num_sent_bytes += sum([array.nbytes for array in arrays])
        return Message(message.verb, as_body(reply), arrays)

    def joined(self, client: Client) -> None:
        """A trainer has opened a connection; it may have several."""
        with self._state.lock:
            self._trainers[client.rank].connect()
            self._state.tell()
        _log.info("%s: %s is here.", self.name, client)

    def lost(self, client: Client, reason: str) -> None:
        """A trainer's connection has broken. When it was its last, nobody waits for it for long."""
        _log.warning("%s: lost %s: %s", self.name, client, reason)
        self._disconnect(client, is_lost=True)

    def left(self, client: Client) -> None:
        """A trainer has closed a connection in order."""
        _log.info("%s: %s has left.", self.name, client)
        self._disconnect(client, is_lost=False)

    def run(self, is_asked_to_end: Callable[[], bool] = lambda: False) -> str:
        """Wait until every trainer is done, or has been gone for `absence_secs`.

        Those who are done get a few seconds to read the board and hang up.

        Args:
            is_asked_to_end: Whether to wait only for those that are here, who may be saving.

        Returns:
            The text on the board under "outcome", or "".

        Raises:
            CollectiveTimeoutError: No trainer ever came.
            CollectiveError: A trainer gave the job up, and nobody said how it ended.
            RuntimeError: An update has failed.
        """
        state = self._state
        with state.lock:
            while not state.wait_until(lambda: self._is_over(is_asked_to_end()), 60.0):
                pass
            state.wait_until(lambda: not any(t.is_here for t in self._trainers), _HANG_UP_SECS)
            if not self._trainers.have_any_come and not is_asked_to_end():
                raise CollectiveTimeoutError(
                    f"{self.name} waited {self._start_timeout_secs:.0f} s for trainers, none came: "
                    f"{', '.join(trainer.name for trainer in self._trainers)}; are they started, "
                    "with the same cluster, and can they reach this server's address?"
                )
            return self._outcome()

    def _is_over(self, is_asked_to_end: bool) -> bool:
        if is_asked_to_end:
            self._trainers.hurry()
        return not self._trainers.unsettled()

    @property
    def unfinished(self) -> list[str]:
        """The names of the trainers that are not done."""
        with self._state.lock:
            return [trainer.name for trainer in self._trainers if not trainer.is_done]

    def _outcome(self) -> str:
        outcome = self._coordination.text(OUTCOME_KEY)
        failure = self._coordination.text(FAILURE_KEY)
        if outcome is None and failure is not None:
            raise CollectiveError(f"{self.name} has ended: {failure}")
        gone = self.unfinished
        if gone:
            _log.warning("%s: %s did not finish, and came back no more.", self.name, _listed(gone))
        return outcome or ""

    def _answer(
        self, trainer: Trainer, request: Request, arrays: Sequence[Array]
    ) -> tuple[Reply, list[Array]]:
        with_arrays = self._answers_with_arrays.get(type(request))
        if with_arrays is not None:
            return with_arrays(trainer, request, arrays)
        if arrays:
            raise ValueError(f"{request.verb.name} takes no arrays, {len(arrays)} came with it")
        return self._answers[type(request)](trainer, request), []

    def _disconnect(self, client: Client, is_lost: bool) -> None:
        with self._state.lock:
            trainer = self._trainers[client.rank]
            self._trainers.disconnect(trainer, is_lost)
            if not trainer.is_here:
                self._state.cut.forget(trainer)
            self._state.tell()
        self._updates.reconsider()

    def _status(self, trainer: Trainer, request: Status) -> ServerStatus:
        with self._state.lock:
            expected = self._trainers.unsettled()
            return ServerStatus(
                name=self.name,
                version=self._state.version,
                num_shards=len(self._variables),
                shard_bytes=self._variables.nbytes,
                num_received_bytes=self._num_received_bytes,
                num_sent_bytes=self._num_sent_bytes,
                trainers=tuple(one.status(one in expected) for one in self._trainers),
            )


def _listed(names: Sequence[str]) -> str:
    return " and ".join([", ".join(names[:-1]), names[-1]] if names[1:] else names)


def _check(
    trainers: Sequence[str],
    synchronous: bool,
    replicas_to_aggregate: int | None,
    absence_secs: float,
    start_timeout_secs: float,
) -> None:
    if not trainers:
        raise ValueError("trainers must name at least one")
    if replicas_to_aggregate is not None:
        if not synchronous:
            raise ValueError(
                f"replicas_to_aggregate={replicas_to_aggregate} has no meaning where each push is "
                "applied at once; leave it out, or train synchronously"
            )
        if not 1 <= replicas_to_aggregate <= len(trainers):
            raise ValueError(
                f"replicas_to_aggregate must be from 1 to {len(trainers)}, the number of trainers; "
                f"it is {replicas_to_aggregate}"
            )
    for name, secs in (("absence_secs", absence_secs), ("start_timeout_secs", start_timeout_secs)):
        if secs < 0:
            raise ValueError(f"{name} must not be negative, it is {secs}")
