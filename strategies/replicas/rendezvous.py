"""Where the replicas of one `run` meet."""

from __future__ import annotations

import logging
import sys
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

from .interrupts import InterruptsPutOff

_LOOK_SECS = 0.1
"""How often one who waits looks whether it was interrupted, or has waited for long."""

SLOW_SECS = 10.0
"""After so long the log names who is waited for, and again after each further such time."""

_logger = logging.getLogger("paceline")


class ReplicaAbortedError(RuntimeError):
    """This replica cannot go on, because another one failed or will not come."""


class _Exchange:
    """One exchange of all replicas: where each has come to, what it brought, what came out."""

    __slots__ = ("is_over", "outcome", "places", "values")

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        self.values: dict[int, Any] = {}
        self.outcome: Any = None
        self.is_over = False


class Rendezvous:
    """Where a fixed number of replicas meet, any number of times.

    If a replica fails or returns while others wait for it, the others are released at once: nobody
    waits for one who cannot come. One that does neither is named in the log after `slow_secs`, with
    what it is at.
    """

    def __init__(self, num_replicas: int, slow_secs: float = SLOW_SECS) -> None:
        self._num_replicas = num_replicas
        self._slow_secs = slow_secs
        self._threads: dict[int, int] = {}
        self._changed = threading.Condition(threading.Lock())
        self._current = _Exchange()
        self._left: set[int] = set()
        self._failure: str | None = None

    def exchange(
        self,
        replica: int,
        place: str,
        value: Any,
        combine: Callable[[list[Any]], Any] = tuple,
        interrupts: InterruptsPutOff | None = None,
    ) -> Any:
        """Wait until every replica has come to `place`; return what they make of their values.

        Args:
            replica: Who comes.
            place: Where to: what all replicas are expected to do next.
            value: What it brings.
            combine: Called once, by the last to come and while the others wait, with the values in
                replica order. What it returns goes to everyone. It alone may read the values:
                a replica that goes on may change its own again.
            interrupts: Begun in the moment in which all have met. An interrupt before it ends the
                run of all replicas, one after it comes when the caller says so: what they go on to
                do is done by all of them or by none.
        """
        if self._num_replicas == 1:
            outcome = combine([value])
            if interrupts is not None:
                interrupts.begin()
            return outcome
        with InterruptsPutOff() as until_met:
            until_met.begin()
            outcome = self._meet(replica, place, value, combine, until_met)
            if interrupts is not None:
                interrupts.begin()
            return outcome

    def joined(self, replica: int) -> None:
        """Say that the calling thread is that of `replica`."""
        self._threads[replica] = threading.get_ident()

    def leave(self, replica: int, error: BaseException | None = None) -> None:
        """Say that `replica` has returned, or failed with `error`, and will not come any more."""
        with InterruptsPutOff() as interrupts:
            interrupts.begin()
            with self._changed:
                self._left.add(replica)
                if error is not None:
                    self._fail(f"replica {replica} failed with {error!r}")
                self._check()

    def _meet(
        self,
        replica: int,
        place: str,
        value: Any,
        combine: Callable[[list[Any]], Any],
        until_met: InterruptsPutOff,
    ) -> Any:
        with self._changed:
            # Held in a variable: whoever concludes it puts a new one in its place at once, which a
            # replica that is quick enters while others have not been woken from this one.
            exchange = self._current
            exchange.places[replica] = place
            exchange.values[replica] = value
            self._check()
            if self._failure is not None or len(exchange.places) < self._num_replicas:
                return self._wait_for_outcome(exchange, replica, until_met)
        # Without the lock: it may take long, and those who wait must be able to look whether they
        # were interrupted. Nobody else comes here, as all others have come and wait.
        return self._conclude(exchange, replica, combine, until_met)

    def _wait_for_outcome(
        self, exchange: _Exchange, replica: int, until_met: InterruptsPutOff
    ) -> Any:
        started = told = time.monotonic()
        while not exchange.is_over and self._failure is None:
            # In slices: an interrupt is put off here, it only sets a flag, and wakes nobody.
            self._changed.wait(_LOOK_SECS)
            if until_met.is_due and not exchange.is_over:
                self._fail(f"replica {replica} was interrupted")
            if time.monotonic() - told >= self._slow_secs:
                told = time.monotonic()
                self._tell_who_is_missing(exchange, replica, told - started)
        if exchange.is_over:
            return exchange.outcome
        raise self._aborted(exchange, replica)

    def _aborted(self, exchange: _Exchange, replica: int) -> ReplicaAbortedError:
        place = exchange.places[replica]
        return ReplicaAbortedError(f"replica {replica} stopped waiting at {place}: {self._failure}")

    def _tell_who_is_missing(self, exchange: _Exchange, replica: int, secs: float) -> None:
        """Log whom `replica` waits for; one of those who wait says it for all."""
        missing = [i for i in range(self._num_replicas) if i not in exchange.places]
        if not missing or replica != min(exchange.places):
            return
        frames = sys._current_frames()
        for index in missing:
            frame = frames.get(self._threads.get(index, 0))
            stack = "".join(traceback.format_stack(frame)) if frame is not None else "unknown\n"
            _logger.warning(
                "Replica %d has waited for %.0f s at %s for replica %d, which neither comes nor "
                "returns. It is here:\n%s",
                replica,
                secs,
                exchange.places[replica],
                index,
                stack.rstrip(),
            )

    def _conclude(
        self,
        exchange: _Exchange,
        replica: int,
        combine: Callable[[list[Any]], Any],
        until_met: InterruptsPutOff,
    ) -> Any:
        try:
            until_met.end()  # to combine may mean to wait for other workers
            outcome = combine([exchange.values[i] for i in range(self._num_replicas)])
            until_met.begin()
        except BaseException as error:
            until_met.begin()
            with self._changed:
                self._fail(f"what the replicas brought cannot be combined: {error!r}")
            raise
        with self._changed:
            if self._failure is not None:  # another one was interrupted meanwhile
                raise self._aborted(exchange, replica)
            exchange.outcome = outcome
            exchange.is_over = True
            self._current = _Exchange()
            self._changed.notify_all()
        return outcome

    def _check(self) -> None:
        """Find out whether those who wait can still be joined by all others."""
        places = self._current.places
        if not places or (len(set(places.values())) == 1 and not self._left):
            return
        where = [f"replica {i} is at {place}" for i, place in sorted(places.items())]
        where += [f"replica {i} has returned" for i in sorted(self._left)]
        self._fail("; ".join(where) + "; all replicas must make the same calls in one order")

    def _fail(self, reason: str) -> None:
        if self._failure is None:
            self._failure = reason
            self._changed.notify_all()
