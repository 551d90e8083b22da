"""Where the replica threads of one `run` meet, and how they are started and released."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Sequence
from typing import Any


class ReplicaAborted(RuntimeError):
    """This replica was released from waiting because another one failed; that error is the cause."""


class Rendezvous:
    """A meeting point for a fixed number of replicas, usable any number of times.

    If a replica fails or returns while others wait for it, the others are released at once: nobody
    waits for one who cannot come.
    """

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas
        self._changed = threading.Condition()
        self._arrived: dict[int, tuple[str, Any]] = {}
        self._left: set[int] = set()
        self._outcome: list[Any] = []
        self._round = 0
        self._failure: str | None = None

    def exchange(self, replica: int, place: str, value: Any) -> list[Any]:
        """Wait until every replica has come to `place`; return all their values in replica order.

        Raises:
            ReplicaAborted: Another replica failed, came to a different place, or has returned.
        """
        if self._num_replicas == 1:
            return [value]
        with self._changed:
            self._arrived[replica] = (place, value)
            self._check()
            if self._failure is None and len(self._arrived) == self._num_replicas:
                self._outcome = [self._arrived[i][1] for i in range(self._num_replicas)]
                self._arrived = {}
                self._round += 1
                self._changed.notify_all()
                return self._outcome
            this_round = self._round
            while self._failure is None and self._round == this_round:
                self._changed.wait()
            if self._round != this_round:
                return self._outcome
            raise ReplicaAborted(f"replica {replica} stopped waiting at {place}: {self._failure}")

    def leave(self, replica: int, error: BaseException | None = None) -> None:
        """Say that `replica` has returned, or failed with `error`, and will not come any more."""
        with self._changed:
            self._left.add(replica)
            if error is not None and self._failure is None:
                self._failure = f"replica {replica} failed with {error!r}"
            self._check()
            self._changed.notify_all()

    def _check(self) -> None:
        """Find out whether those who wait here can still be joined by all others."""
        if self._failure is not None or not self._arrived:
            return
        places = {place for place, _ in self._arrived.values()}
        if len(places) > 1 or self._left:
            where = [
                f"replica {i} is at {place}" for i, (place, _) in sorted(self._arrived.items())
            ]
            where += [f"replica {i} has returned" for i in sorted(self._left)]
            self._failure = (
                "; ".join(where) + "; all replicas must make the same calls in one order"
            )
            self._changed.notify_all()


def run_replicas(
    calls: Sequence[Callable[[], Any]], rendezvous: Rendezvous, names: Sequence[str]
) -> list[Any]:
    """Make all calls at the same time, the first one in this thread; return their results in order.

    Each thread starts with a copy of this thread's context variables.

    Raises:
        BaseException: What the first failing replica raised, with a note that says which one it was.
    """
    results: list[Any] = [None] * len(calls)
    errors: list[tuple[int, BaseException]] = []

    def replica(index: int) -> None:
        try:
            results[index] = calls[index]()
        except BaseException as error:
            errors.append((index, error))
            rendezvous.leave(index, error)
        else:
            rendezvous.leave(index)

    threads = [
        threading.Thread(
            target=contextvars.copy_context().run, args=(replica, i), name=names[i], daemon=True
        )
        for i in range(1, len(calls))
    ]
    for thread in threads:
        thread.start()
    replica(0)
    for thread in threads:
        thread.join()
    if errors:
        raise _first_cause(errors, len(calls))
    return results


def _first_cause(errors: list[tuple[int, BaseException]], num_replicas: int) -> BaseException:
    """The error to report: the first that is not merely the echo of another replica's."""
    originals = [e for e in errors if not isinstance(e[1], ReplicaAborted)]
    index, error = (originals or errors)[0]
    if num_replicas > 1:
        error.add_note(f"Raised in replica {index} of {num_replicas} (0-based).")
    return error
