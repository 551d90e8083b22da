"""Who takes part: the trainers of a job, as a server sees them come, go, return and finish."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Final, final

from .step_requests import Push
from .trainer_requests import TrainerStatus

_KEPT_VERSIONS: Final = 256


@final
class Trainer:
    """One trainer. All but `rank` and `name` changes under the server's lock.

    Attributes:
        rank, name: Position in the list of trainers, and what it is called.
        is_joined: Whether it takes part now: has said JOIN, is connected, has not said DONE or
            WAIT_DONE since.
        is_resting: Whether it makes no more steps, and is not done; until it says JOIN.
        is_done: Whether it has said DONE, and not JOIN afterwards.
        has_come: Whether it has ever connected.
        from_version: In synchronous training, from which step on it is waited for; None if not yet.
        clock: How many steps it has made (see `Wait`).
        number, servers: Of its last push that has come here (see `Push`).
        note: What came with its last push that was applied.
    """

    def __init__(self, rank: int, name: str) -> None:
        self.rank = rank
        self.name = name
        self.is_joined = False
        self.is_resting = False
        self.is_done = False
        self.has_come = False
        self.from_version: int | None = None
        self.clock = 0
        self.number = 0
        self.servers: tuple[int, ...] = ()
        self.note: str | None = None
        self._missed_from: int | None = None
        self._missed_until = 0.0
        self._num_connections = 0
        self._gone_since: float | None = None
        self._own_versions: list[int] = []

    @property
    def is_here(self) -> bool:
        """Whether it is connected."""
        return self._num_connections > 0

    def connect(self) -> None:
        """It has opened a connection; it may have several."""
        self.has_come = True
        self._num_connections += 1
        self._gone_since = None

    def disconnect(self, now: float, return_secs: float) -> None:
        """It has lost or closed a connection; with the last one it is gone.

        Args:
            return_secs: For how long steps that waited for it still do.
        """
        self._num_connections = max(0, self._num_connections - 1)
        if not self._num_connections:
            self._gone_since = now
            # Steps go on waiting for a moment: if only the connection was lost, its push is sent
            # again, and a server must not make the step without it that another makes with it.
            if self.is_joined:
                self._missed_until = now + return_secs
            if self.from_version is not None:  # else it was lost again before it had said
                self._missed_from = self.from_version
            self.is_joined = False
            self.from_version = None

    def is_waited_for(self, version: int, now: float) -> bool:
        """Whether, in synchronous training, the step that follows a version needs its push."""
        if self.is_done or self.is_resting:
            return False
        if self.is_joined and self.from_version is not None:
            return self.from_version <= version
        first = self._missed_from
        return first is not None and first <= version and self.is_missed(now)

    def is_missed(self, now: float) -> bool:
        """Whether it has just lost its connection, and may be back at once."""
        return now < self._missed_until

    def join(self, clock: int, is_returning: bool) -> None:
        """It begins to take part: another process, or the same one after it has lost connection."""
        self.is_joined, self.is_resting, self.is_done = True, False, False
        # Who returns may do so before its loss was noticed: then `from_version` still holds.
        if not is_returning:
            self.from_version = self._missed_from = None
            self._missed_until = 0.0
        self.clock = clock
        self._own_versions = []

    def rest(self) -> None:
        """It makes no more steps, and is not done."""
        self.is_joined, self.is_resting = False, True

    def finish(self) -> None:
        """It is done."""
        self.is_joined, self.is_done = False, True

    def is_settled(self, now: float, absence_secs: float) -> bool:
        """Whether nothing more is expected of it: it is done, or has been gone for so long."""
        if self.is_done:
            return True
        return self._gone_since is not None and now - self._gone_since >= absence_secs

    def staleness(self, pulled_version: int, version: int) -> int:
        """How many of the updates between two versions are by others."""
        own = len(self._own_versions) - bisect_right(self._own_versions, pulled_version)
        return max(0, version - pulled_version - own)

    def begin_push(self, push: Push) -> bool:
        """Note that a push has come; returns whether it is new, and not one that came before."""
        is_new = push.number > self.number
        if is_new:
            self.number, self.servers = push.number, push.servers
        return is_new

    def count_push(self, version: int, note: str | None) -> None:
        """Its push has made this version."""
        self._own_versions.append(version)
        if len(self._own_versions) > 2 * _KEPT_VERSIONS:
            del self._own_versions[:_KEPT_VERSIONS]
        if note is not None:
            self.note = note

    def status(self, is_expected: bool) -> TrainerStatus:
        """What others are told of it."""
        return TrainerStatus(
            name=self.name, state=self._state(), is_expected=is_expected, clock=self.clock
        )

    def _state(self) -> str:
        if self.is_done:
            return "done"
        if self.is_here:
            return "here"
        return "gone" if self.has_come else "absent"


@final
class Membership:
    """All trainers of the job. Whoever calls a method holds the server's lock.

    A trainer that has never come is waited for as long as a job may take to start. Where one of the
    others has trained before, the server replaces one that died in the midst of the job: who does
    not come back soon then has been lost or done already.

    Args:
        names: Of the trainers, by rank.
        absence_secs: How long one that is gone may stay away before nobody counts on it any more.
        start_timeout_secs: The same for one that has never come, from now on.
        return_secs: How long a step goes on waiting for one whose connection was lost.
        clock: Seconds.
    """

    def __init__(
        self,
        names: Sequence[str],
        absence_secs: float,
        start_timeout_secs: float,
        return_secs: float,
        clock: Callable[[], float],
    ) -> None:
        self._trainers = tuple(Trainer(rank, name) for rank, name in enumerate(names))
        self._absence_secs = absence_secs
        self._start_timeout_secs = start_timeout_secs
        self._return_secs = return_secs
        self._clock = clock
        self._start = clock()
        self._is_replacement = False

    def __iter__(self) -> Iterator[Trainer]:
        return iter(self._trainers)

    def __getitem__(self, rank: int) -> Trainer:
        if not 0 <= rank < len(self._trainers):
            raise ValueError(
                f"rank {rank} is none of this job's trainers: {', '.join(t.name for t in self)}"
            )
        return self._trainers[rank]

    @property
    def have_any_come(self) -> bool:
        return any(trainer.has_come for trainer in self)

    def join(self, trainer: Trainer, is_returning: bool, is_replacement: bool) -> None:
        """A trainer begins to take part, with its clock beside the slowest of those at work.

        Args:
            trainer: Who.
            is_returning: Whether it is the same process as before.
            is_replacement: Whether it knows that this server replaces one that it has worked with.
        """
        self._is_replacement |= is_replacement
        # Not from 0: all others would wait for a newcomer that is a thousand steps behind.
        others = [other.clock for other in self if other.is_joined and other is not trainer]
        trainer.join(min(others, default=trainer.clock), is_returning)

    def disconnect(self, trainer: Trainer, is_lost: bool) -> None:
        """A connection of it has ended.

        Args:
            is_lost: Without a goodbye: then it may be back at once.
        """
        trainer.disconnect(self._clock(), self._return_secs if is_lost else 0.0)

    def is_waited_for(self, trainer: Trainer, version: int) -> bool:
        """Whether, in synchronous training, the step that follows a version needs its push."""
        return trainer.is_waited_for(version, self._clock())

    def may_begin(self, trainer: Trainer) -> bool:
        """Whether the first step of all has to wait for a trainer that has not pushed so far."""
        if trainer.is_done or trainer.is_resting:
            return False
        return trainer.is_here or trainer.is_missed(self._clock()) or self.is_awaited(trainer)

    def hurry(self) -> None:
        """Whoever has not come is not waited for, and whoever is gone for no longer than a blip."""
        self._start_timeout_secs = 0.0
        self._absence_secs = min(self._absence_secs, self._return_secs)

    def is_awaited(self, trainer: Trainer) -> bool:
        """Whether a trainer that never came may still come."""
        if trainer.has_come:
            return False
        limit_secs = self._start_timeout_secs
        if self._is_replacement:  # the others have come long ago, and know that it is back
            limit_secs = min(limit_secs, self._absence_secs)
        return self._clock() - self._start < limit_secs

    def unsettled(self) -> list[Trainer]:
        """Those of whom something is expected: neither done nor gone for long."""
        now = self._clock()
        return [
            trainer
            for trainer in self
            if self.is_awaited(trainer)
            or (trainer.has_come and not trainer.is_settled(now, self._absence_secs))
        ]

    def slowest(self, trainer: Trainer) -> Trainer:
        """Whose clock is lowest among those at work; the given one if nobody else's is lower."""
        return min((trainer, *(t for t in self if t.is_joined)), key=lambda t: t.clock)
