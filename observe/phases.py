"""What the time of a training step goes to, and when: a stopwatch for each replica.

At each moment a replica is in one phase. Whoever begins another one within it stops the clock of
the outer one for that long, so that the phases add up to the time that has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextvars import ContextVar, Token
from time import perf_counter_ns
from typing import Final, NamedTuple, final

PHASES: Final = (
    "input",
    "forward",
    "backward",
    "communication",
    "update",
    "save",
    "evaluate",
    "other",
)
"""Waiting for the next batch; the model; gradients; waiting for other replicas, workers or servers;
changing variables; taking what a checkpoint needs; an evaluation between two steps; all else."""


class Span(NamedTuple):
    """Something that took a while.

    Args:
        name: What it was.
        begin, end: Nanoseconds of `time.perf_counter_ns`.
    """

    name: str
    begin: int
    end: int


@final
class Stopwatch:
    """Adds up how long one replica is in each phase; one thread uses it at a time.

    Attributes:
        nanos: Nanoseconds by phase, since it was made.
        collectives: The collectives of the steps that are looked at; None where nobody looks.
        outer: The phases within which the present one began, outermost first.
    """

    __slots__ = ("_phase", "_since", "_spans", "collectives", "nanos", "outer")

    def __init__(self) -> None:
        self.nanos = dict.fromkeys(PHASES, 0)
        self.collectives: list[Span] | None = None
        self._spans: list[Span] | None = None
        self._phase = "other"
        self.outer: list[str] = []
        self._since = perf_counter_ns()

    def switch(self, phase: str) -> str:
        """Begin a phase; return the one that ends."""
        now, before = perf_counter_ns(), self._phase
        self.nanos[before] += now - self._since
        if self._spans is not None:
            self._spans.append(Span(before, self._since, now))
        self._phase, self._since = phase, now
        return before

    def read(self) -> dict[str, float]:
        """Seconds by phase up to now, of those that it was in."""
        self.switch(self._phase)
        return {name: nanos / 1e9 for name, nanos in self.nanos.items() if nanos}

    def look(self) -> None:
        """Note from now on when each phase and collective begins and ends."""
        self.switch(self._phase)
        self._spans, self.collectives = [], []

    def look_away(self) -> tuple[list[Span], list[Span]]:
        """The phases and the collectives since `look`; no more are noted."""
        self.switch(self._phase)
        spans, collectives = self._spans or [], self.collectives or []
        self._spans = self.collectives = None
        return spans, collectives

    def running(self) -> _Running:
        """Let `phase` in this thread, and in those that it starts with its context, use this."""
        return _Running(self)

    def run_for_good(self) -> None:
        """`running` for all that follows in the calling context, which is the caller's own."""
        _running.set(self)


class _Running:
    """See `Stopwatch.running`; entered once."""

    __slots__ = ("_stopwatch", "_token")

    def __init__(self, stopwatch: Stopwatch) -> None:
        self._stopwatch = stopwatch

    def __enter__(self) -> None:
        self._token: Token[Stopwatch | None] = _running.set(self._stopwatch)

    def __exit__(self, *error: object) -> None:
        _running.reset(self._token)


_running: ContextVar[Stopwatch | None] = ContextVar("paceline_stopwatch", default=None)


class _Phase:
    """See `phase`. It holds nothing of the block, so that one object serves all threads."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> Callable[[str], object]:
        stopwatch = _running.get()
        if stopwatch is None:
            return _nobody_looks
        stopwatch.outer.append(stopwatch.switch(self._name))
        return stopwatch.switch

    def __exit__(self, *error: object) -> None:
        stopwatch = _running.get()  # the same: one that began to run within has ended
        if stopwatch is not None:
            stopwatch.switch(stopwatch.outer.pop())


def _nobody_looks(phase: str) -> None:
    pass


_contexts = {name: _Phase(name) for name in PHASES}


def phase(name: str) -> _Phase:
    """A context: the running stopwatch, if there is one, counts its time as that of a phase.

    In `with phase("forward") as switch` phases that follow each other need one context only:
    `switch("backward")` ends the one and begins the other.

    Args:
        name: One of `PHASES`.
    """
    return _contexts[name]


@final
class Collective:
    """A collective that begins now, for whoever looks; nearly always nobody does."""

    __slots__ = ("_begin", "_name", "_seen")

    def __init__(self, name: str) -> None:
        stopwatch = _running.get()
        self._seen = None if stopwatch is None else stopwatch.collectives
        if self._seen is not None:
            self._name, self._begin = name, perf_counter_ns()

    def end(self) -> None:
        """It has ended; any thread may say so."""
        if self._seen is not None:
            self._seen.append(Span(self._name, self._begin, perf_counter_ns()))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.end()


def wall_clock_offset_ns() -> int:
    """What to add to `perf_counter_ns` for the time since 1970, which all workers share."""
    return time.time_ns() - perf_counter_ns()
