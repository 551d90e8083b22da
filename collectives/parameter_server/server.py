"""A parameter server: variables that several trainers read and change.

    trainer ──  PULL: give me these variables (or rows of them)   ──►  server
            ──  PUSH: change them along these gradients           ──►

The optimizer runs here, with what it keeps beside a variable. The rest follows from there being
several trainers, which come late, leave, die and come back:

    requests, step_, variable_ and trainer_requests    what can be asked
    variables    answers what concerns variables       shards       what they are made of
    push_plan    what a push does, checked and applied
    updates      when: at once, or in step             aggregation  several pushes become one
    membership   who is here, gone, done               state        what threads share

How requests come here is no matter of this module: the transport calls `handle` for each, in any
thread, and tells who has come and gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

from ..errors import CollectiveError, CollectiveTimeoutError
from .frames import Client, Message
from .membership import Membership, Trainer
from .push_plan import UpdateRule
from .requests import Body, Reply, Verb
from .shards import Array, ShardStorage
from .state import State
from .step_requests import Pull, Push
from .trainer_requests import (
    Done,
    Found,
    Join,
    Joined,
    Post,
    Read,
    Remaining,
    ServerStatus,
    Status,
    Wait,
    WaitDone,
    Waited,
)
from .updates import AsynchronousUpdates, SynchronousUpdates, Updates
from .variable_requests import Create, Hold, Snapshot, Write
from .variables import Variables

OUTCOME_KEY = "outcome"
"""The text posted under it when all trainers are done is what `run` returns."""

FAILURE_KEY = "failure"
"""Under it: why a trainer gave the job up. Where nobody says how the job ended, this is what `run`
raises."""

ENDING_KEY = "ending"
"""Under it a trainer says why all are to end; each of them learns that with its next push."""

STOPPING_KEY = "stopping"
"""Under it a trainer says after which global step nothing is left to train: with their push or pull
of that step all know it. It comes before the trainer's own push, so that in step nobody ends
earlier than another, or later."""

_HANG_UP_SECS = 10.0
MAX_KEYS = 10_000
_MAX_CHARACTERS = 16 << 20

_log = logging.getLogger("paceline")


@final
class ParameterServer:
    """Holds variables, and changes them as trainers ask. All methods may be called by any thread.

    Args:
        name: Its name, for messages.
        trainers: The names of all trainers of the job, by rank.
        rules: The update rules by name; "add" and "assign" are built in.
        storage: Reads and writes checkpoints.
        synchronous: Whether an update waits for all trainers (see `Updates`).
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
        self._trainers = Membership(trainers, absence_secs, start_timeout_secs, return_secs, clock)
        self._state = State(name, self._trainers, clock)
        self._updates: Updates = (
            SynchronousUpdates(self._state, replicas_to_aggregate)
            if synchronous
            else AsynchronousUpdates(self._state)
        )
        self._variables = Variables(self._state, rules, storage, self._updates)
        self._texts = _Texts()
        self._has_ended = False
        self._answers: dict[type[Any], Callable[[Trainer, Any], Reply]] = {
            Join: self._join,
            Wait: self._wait,
            Post: self._post,
            Read: self._read,
            Done: self._finish,
            WaitDone: self._wait_done,
            Status: self._status,
            Hold: self._variables.hold,
            Snapshot: self._variables.snapshot,
            Write: self._variables.write,
        }
        self._answers_with_arrays: dict[
            type[Any], Callable[[Trainer, Any, Sequence[Array]], tuple[Body, list[Array]]]
        ] = {
            Create: self._variables.create,
            Pull: self._variables.pull,
            Push: self._variables.push,
        }
        self._kinds = {kind.verb: kind for kind in (*self._answers, *self._answers_with_arrays)}

    def handle(self, client: Client, message: Message) -> Message:
        """Answer a request; may wait for as long as the request says.

        The arrays of the request belong to the server from here on. Those of the reply are read
        only and may be variables themselves: what holds on to them longer than it takes to send
        them makes the next update copy.

        Raises:
            ValueError: The request is refused; nothing has changed.
            RuntimeError: An update has failed, the server is of no use any more.
        """
        kind = self._kinds.get(message.verb)
        if kind is None:
            raise ValueError(
                f"verb {message.verb} is unknown; a parameter server knows 1 to {len(Verb)}"
            )
        request = kind.unpacked(message.body)
        with self._state.lock:
            self._state.check()
            trainer = self._trainers[client.rank]
        reply, arrays = self._answer(trainer, request, message.arrays)
        return Message(message.verb, reply.packed(), arrays)

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

        Those who are done get a few seconds to read how it ended and hang up.

        Args:
            is_asked_to_end: Whether to wait only for those that are here, who may be saving.

        Returns:
            The text posted under "outcome", or "".

        Raises:
            CollectiveTimeoutError: No trainer ever came.
            CollectiveError: A trainer gave the job up, and nobody said how it ended.
            RuntimeError: An update has failed.
        """
        state = self._state
        with state.lock:
            # Polled, as nobody tells when SIGTERM has come or a trainer has been away for too long.
            while not state.wait_until(lambda: self._is_over(is_asked_to_end()), 60.0):
                pass
            self._has_ended = True
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
        outcome, failure = self._texts.read(OUTCOME_KEY), self._texts.read(FAILURE_KEY)
        if outcome is None and failure is not None:
            raise CollectiveError(f"{self.name} has ended: {failure}")
        gone = self.unfinished
        if gone:
            _log.warning("%s: %s did not finish, and came back no more.", self.name, _listed(gone))
        return outcome or ""

    def _answer(
        self, trainer: Trainer, request: Any, arrays: Sequence[Array]
    ) -> tuple[Body, list[Array]]:
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

    def _join(self, trainer: Trainer, request: Join) -> Joined:
        state = self._state
        with state.lock:
            # It would go on with what the job that ends has trained.
            if self._has_ended and not request.returning:
                raise ValueError(
                    f"{self.name} is ending, for all trainers of its job are done; another "
                    f"training in the same processes needs servers of its own, started anew"
                )
            # A second JOIN of the same process only says from which step on it is waited for.
            if request.from_version is None or not trainer.is_joined:
                if not request.returning:
                    self._updates.forget(trainer)
                is_replacement = request.returning and not state.has_begun
                self._trainers.join(trainer, request.returning, is_replacement)
            trainer.number = max(trainer.number, request.number)
            if request.from_version is not None:
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

    def _wait(self, trainer: Trainer, request: Wait) -> Waited:
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

    def _post(self, trainer: Trainer, request: Post) -> Reply:
        with self._state.lock:
            self._texts.post(request.key, request.text)
            self._state.is_ending |= request.key == ENDING_KEY
            if request.key == STOPPING_KEY:
                self._state.stop_step = None if request.text is None else int(request.text)
            self._state.tell()
        return Reply()

    def _read(self, trainer: Trainer, request: Read) -> Found:
        with self._state.lock:
            self._state.wait_until(
                lambda: self._texts.read(request.key) is not None, request.wait_secs
            )
            return Found(text=self._texts.read(request.key))

    def _finish(self, trainer: Trainer, request: Done) -> Reply:
        with self._state.lock:
            trainer.finish()
            self._state.tell()
        self._updates.reconsider()
        return Reply()

    def _wait_done(self, trainer: Trainer, request: WaitDone) -> Remaining:
        def others() -> list[Trainer]:
            return [other for other in self._trainers.unsettled() if other is not trainer]

        with self._state.lock:
            trainer.rest()
            self._state.tell()
        self._updates.reconsider()
        with self._state.lock:
            self._state.wait_until(lambda: not others(), request.wait_secs)
            return Remaining(waiting_for=tuple(other.name for other in others()))

    def _status(self, trainer: Trainer, request: Status) -> ServerStatus:
        with self._state.lock:
            expected = self._trainers.unsettled()
            trainers = tuple([one.status(one in expected) for one in self._trainers])
            return ServerStatus(version=self._state.version, trainers=trainers)


@final
class _Texts:
    """What trainers tell each other, by key, bounded in number and size. The lock is held."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._num_characters = 0

    def read(self, key: str) -> str | None:
        """What is there."""
        return self._texts.get(key)

    def post(self, key: str, text: str | None) -> None:
        """Put a text in place of what was there; None takes it off.

        Raises:
            ValueError: There is no room.
        """
        if text is None:
            self._num_characters -= len(self._texts.pop(key, ""))
            return
        if key not in self._texts and len(self._texts) >= MAX_KEYS:
            raise ValueError(
                f"the board holds {MAX_KEYS} keys, no room for '{key}'; post None for keys that "
                "are needed no longer"
            )
        num_characters = self._num_characters - len(self._texts.get(key, "")) + len(text)
        if num_characters > _MAX_CHARACTERS:
            raise ValueError(
                f"the board holds {_MAX_CHARACTERS} characters, with '{key}' they would be "
                f"{num_characters}; post shorter texts, or files for what is large"
            )
        self._texts[key] = text
        self._num_characters = num_characters


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
