"""Which pushes may go on while a snapshot is being taken on all servers of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from .trainers import Trainer

_MAX_SILENCE_SECS: Final = 30.0


@final
class Cut:
    """Makes the snapshots of several servers one moment. The server's lock is held in all methods.

    A push goes to several servers, and comes to each of them at another time. So all servers stand
    still first (`hold`), and say which pushes they have. Whoever takes the snapshot tells each
    of them which pushes another server has already: these may still go on (`limit`). A trainer
    begins a push only when all servers have answered the one before, so what is waited for
    is on its way.

    Args:
        clock: Seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holder: Trainer | None = None
        self._heard_at = 0.0
        self._version = 0
        self._numbers: Mapping[int, int] = {}

    def hold(self, holder: Trainer) -> None:
        """Let nothing more go on, until `release`, or until the holder is lost or silent."""
        self._holder = holder
        self.limit(0, {})

    def limit(self, version: int, numbers: Mapping[int, int]) -> None:
        """Let pushes go on up to this version, and of each rank up to this number."""
        self._heard_at = self._clock()
        self._version, self._numbers = version, numbers

    def release(self) -> None:
        """Let everything go on."""
        self._holder = None

    def forget(self, trainer: Trainer) -> None:
        """Let everything go on if it was held for a trainer that is lost."""
        if self._holder is trainer:
            self._holder = None

    def is_held_by(self, trainer: Trainer) -> bool:
        """Whether nothing but what `limit` allows has gone on since this trainer's `hold`."""
        return self._is_held() and self._holder is trainer

    def admits_push(self, rank: int, number: int) -> bool:
        """Whether a push may be applied at once."""
        return not self._is_held() or number <= self._numbers.get(rank, 0)

    def admits_update(self, version: int) -> bool:
        """Whether the update that follows a version may be made, of a step of all trainers."""
        return not self._is_held() or version < self._version

    def _is_held(self) -> bool:
        if self._holder is not None and self._clock() - self._heard_at > _MAX_SILENCE_SECS:
            self._holder = None
        return self._holder is not None
