"""What all parts of a server share: its lock, its version, its trainers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from threading import Condition, RLock
from typing import Final, final

from .cut import Cut
from .gate import Gate
from .trainers import Trainer, Trainers

_POLL_SECS: Final = 0.2
"""What changes by the mere passing of time is noticed so soon."""


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
        gate: Through which whoever reads or changes variables goes. Taken before the lock, if both.
        version: How many updates were made, counted from the beginning of the job.
        has_begun: Whether an update was made here.
        is_ending: Whether a trainer has said that all are to end.
        is_ready: Whether a trainer has used the variables, which thus are all there.
    """

    def __init__(self, name: str, trainers: Trainers, clock: Callable[[], float]) -> None:
        self.name = name
        self.trainers = trainers
        self.lock = RLock()
        self.gate = Gate()
        self.cut = Cut(clock)
        self.version = 0
        self.has_begun = False
        self.is_ready = False
        self.is_ending = False
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

    @contextmanager
    def updating(self, trainers: str) -> Iterator[None]:
        """Change variables. If that fails half way they are of no use any more: nor is the server.

        Args:
            trainers: Whose push it is, for the message.
        """
        try:
            yield
        except BaseException as error:
            with self.lock:
                self._failure = (
                    f"{self.name} has failed in the update that follows version {self.version}, "
                    f"pushed by {trainers}: {type(error).__name__}: {error}; its variables may be "
                    "half updated, start it again from the last checkpoint"
                )
                self.tell()
            raise

    def names(self, trainers: list[Trainer]) -> tuple[str, ...]:
        """Whom a reply says that it waits for: never nobody."""
        return tuple(trainer.name for trainer in trainers) or (self.name,)
