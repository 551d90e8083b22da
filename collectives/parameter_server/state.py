"""What all parts of a server share: its lock, its version, and what holds pushes back.

Whoever reads or changes variables goes through the read-write lock; all else is guarded by the
lock. Where both are taken the read-write lock comes first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from math import inf
from threading import Condition, RLock
from typing import Final, final

from .membership import Membership, Trainer

_POLL_SECS: Final = 0.2
"""What changes by the mere passing of time is noticed so soon."""

_MAX_HOLD_SECS: Final = 30.0
"""A snapshot whose taker says nothing for longer holds nobody up."""


@final
class State:
    """The state of a server besides its variables.

    Args:
        name: The server's, for messages.
        trainers: Who is expected.
        clock: Seconds.

    Attributes:
        name, trainers: As given.
        lock: Guards all that is not a variable.
        cut: Which pushes may go on while a snapshot is taken.
        variables_lock: Held by whoever reads or changes variables.
        version: How many updates were made, counted from the beginning of the job.
        has_begun: Whether an update was made here.
        is_ending: Whether a trainer has said that all are to end.
        stop_step: The global step after which nothing is left to train, if one has said so.
        is_ready: Whether a trainer has used the variables, which thus are all there.
    """

    def __init__(self, name: str, trainers: Membership, clock: Callable[[], float]) -> None:
        self.name = name
        self.trainers = trainers
        self.lock = RLock()
        self.variables_lock = ReadWriteLock()
        self.cut = Cut(clock)
        self.version = 0
        self.has_begun = False
        self.is_ready = False
        self.is_ending = False
        self.stop_step: int | None = None
        self._clock = clock
        self._failure: str | None = None
        # Progress is made many times a second, and most of those who wait do not wait for it.
        self._news = Condition(self.lock)
        self._progress = Condition(self.lock)

    def advance(self) -> int:
        """Count an update; the lock is held. Returns the new version."""
        self.version += 1
        self.has_begun = True
        self.tell_progress()
        return self.version

    def tell(self) -> None:
        """Wake all who wait: something has changed; the lock is held."""
        self._news.notify_all()
        self._progress.notify_all()

    def tell_progress(self) -> None:
        """Wake those who wait for it: the version, or a trainer's clock, has changed."""
        self._progress.notify_all()

    def wait_until(self, is_so: Callable[[], bool], wait_secs: float) -> bool:
        """Wait, with the lock held, until it is so. Returns whether it is.

        Raises:
            RuntimeError: The server has failed meanwhile.
        """
        return self._wait(self._news, is_so, wait_secs)

    def wait_for_progress(self, is_so: Callable[[], bool], wait_secs: float = inf) -> bool:
        """`wait_until` for what progress can make so."""
        return self._wait(self._progress, is_so, wait_secs)

    def _wait(self, condition: Condition, is_so: Callable[[], bool], wait_secs: float) -> bool:
        deadline = self._clock() + wait_secs
        while not is_so():
            self.check()
            left = deadline - self._clock()
            if left <= 0:
                return False
            condition.wait(min(left, _POLL_SECS))
        return True

    def check(self) -> None:
        """Raise RuntimeError if the server has failed."""
        if self._failure is not None:
            raise RuntimeError(self._failure)

    def fail(self, error: BaseException, trainers: Iterable[Trainer]) -> None:
        """An update has failed half way: variables are of no use any more, nor is the server.

        Args:
            error: How.
            trainers: Whose pushes were in it, for the message.
        """
        names = ", ".join(trainer.name for trainer in trainers)
        with self.lock:
            self._failure = (
                f"{self.name} has failed in the update that follows version {self.version}, "
                f"pushed by {names}: {type(error).__name__}: {error}; its variables may be half "
                "updated, start it again from the last checkpoint"
            )
            self.tell()

    def names(self, trainers: list[Trainer]) -> tuple[str, ...]:
        """Whom a reply says that it waits for: never nobody."""
        return tuple(trainer.name for trainer in trainers) or (self.name,)


@final
class ReadWriteLock:
    """Lets any number of threads in together, or one thread that wants to be alone.

    Pulls and pushes of single variables go in together. A snapshot, and the update of a synchronous
    step, concern all variables at once: they go in alone, so that nobody sees half of either. Who
    waits to be alone is overtaken by nobody.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._num_inside = 0
        self._is_taken = False

    def shared(self) -> ReadWriteLock:
        """Be inside with others, as a context."""
        return self

    def __enter__(self) -> None:
        with self._lock:
            while self._is_taken:
                self._changed.wait()
            self._num_inside += 1

    def __exit__(self, *about: object) -> None:
        with self._lock:
            self._num_inside -= 1
            if not self._num_inside and self._is_taken:
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Be inside while nobody else is."""
        with self._lock:
            while self._is_taken:
                self._changed.wait()
            self._is_taken = True  # from here on nobody new comes in
            while self._num_inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._lock:
                self._is_taken = False
                self._changed.notify_all()


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
        if self._holder is not None and self._clock() - self._heard_at > _MAX_HOLD_SECS:
            self._holder = None
        return self._holder is not None
