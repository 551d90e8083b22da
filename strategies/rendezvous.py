"""Where the replicas of one `run` meet."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class ReplicaAbortedError(RuntimeError):
    """This replica cannot go on, because another one failed or will not come to the meeting."""


class _Meeting:
    """One gathering of all replicas: where each has come to, what it brought, what came out."""

    __slots__ = ("is_over", "outcome", "places", "values")

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        self.values: dict[int, Any] = {}
        self.outcome: Any = None
        self.is_over = False


class Rendezvous:
    """A meeting point for a fixed number of replicas, usable any number of times.

    If a replica fails or returns while others wait for it, the others are released at once: nobody
    waits for one who cannot come.
    """

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas
        self._changed = threading.Condition(threading.Lock())
        self._meeting = _Meeting()
        self._left: set[int] = set()
        self._failure: str | None = None

    def exchange(
        self,
        replica: int,
        place: str,
        value: Any,
        combine: Callable[[list[Any]], Any] = tuple,
    ) -> Any:
        """Wait until every replica has come to `place`; return what they make of their values.

        Args:
            replica: Who comes.
            place: Where to: what all replicas are expected to do next.
            value: What it brings.
            combine: Called once, by the last to come and while the others wait, with the values in
                replica order. What it returns goes to everyone. It alone may read the values:
                a replica that goes on may change its own again.

        Raises:
            ReplicaAbortedError: Another replica failed, came to a different place, or has returned.
        """
        if self._num_replicas == 1:
            return combine([value])
        with self._changed:
            meeting = self._meeting
            meeting.places[replica] = place
            meeting.values[replica] = value
            self._check()
            if self._failure is not None or len(meeting.places) < self._num_replicas:
                return self._wait_for_outcome(meeting, replica)
        return self._conclude(meeting, combine)

    def leave(self, replica: int, error: BaseException | None = None) -> None:
        """Say that `replica` has returned, or failed with `error`, and will not come any more."""
        with self._changed:
            self._left.add(replica)
            if error is not None:
                self._fail(f"replica {replica} failed with {error!r}")
            self._check()

    def _wait_for_outcome(self, meeting: _Meeting, replica: int) -> Any:
        while not meeting.is_over and self._failure is None:
            self._changed.wait()
        if meeting.is_over:
            return meeting.outcome
        place = meeting.places[replica]
        raise ReplicaAbortedError(f"replica {replica} stopped waiting at {place}: {self._failure}")

    def _conclude(self, meeting: _Meeting, combine: Callable[[list[Any]], Any]) -> Any:
        try:
            outcome = combine([meeting.values[i] for i in range(self._num_replicas)])
        except BaseException as error:
            with self._changed:
                self._fail(f"what the replicas brought cannot be combined: {error!r}")
            raise
        with self._changed:
            meeting.outcome = outcome
            meeting.is_over = True
            self._meeting = _Meeting()
            self._changed.notify_all()
        return outcome

    def _check(self) -> None:
        """Find out whether those who wait can still be joined by all others."""
        places = self._meeting.places
        if not places or (len(set(places.values())) == 1 and not self._left):
            return
        where = [f"replica {i} is at {place}" for i, place in sorted(places.items())]
        where += [f"replica {i} has returned" for i in sorted(self._left)]
        self._fail("; ".join(where) + "; all replicas must make the same calls in one order")

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
            self._changed.notify_all()
