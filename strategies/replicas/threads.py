"""The threads in which replicas run.

Waking a thread is some ten times cheaper than starting one, which takes up to a few hundred
microseconds: noticeable in a step of a millisecond. A thread that has made its call therefore waits
a moment for the next step's. If none comes it ends by itself: nobody has to stop it, and it belongs
to no strategy.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from .interrupts import InterruptsPutOff
from .rendezvous import Rendezvous, ReplicaAbortedError

IDLE_SECS = 0.01
"""How long a thread waits for its next call: long beside what starting another would cost."""

_Job: TypeAlias = "tuple[Callable[[], None], threading.Event]"


class _ReplicaThread(threading.Thread):
    """A thread that makes one call after another, until it has waited for one in vain."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.jobs: SimpleQueue[_Job] = SimpleQueue()

    def run(self) -> None:
        try:
            while True:
                self._make(*self._next_job())
        except Empty:
            pass

    def _make(self, call: Callable[[], None], done: threading.Event) -> None:
        call()
        del call  # what is done keeps nothing alive
        # Before `done` is set: the caller's next step then finds this thread, and starts no other.
        _idle.append(self)
        done.set()

    def _next_job(self) -> _Job:
        try:
            return self.jobs.get(timeout=IDLE_SECS)
        except Empty:
            try:
                _idle.remove(self)
            except ValueError:  # someone has just chosen this thread
                return self.jobs.get()
            raise


_idle: list[_ReplicaThread] = []


def run_replicas(
    calls: Sequence[Callable[[], Any]], rendezvous: Rendezvous, names: Sequence[str]
) -> list[Any]:
    """Make all calls at the same time, the first one in this thread; return their results in order.

    What the first failing replica raised has a note that says which it was.
    """
    results: list[Any] = [None] * len(calls)
    errors: list[tuple[int, BaseException]] = []

    def replica(index: int) -> None:
        try:
            rendezvous.joined(index)
            results[index] = calls[index]()
        except BaseException as error:
            errors.append((index, error))
            rendezvous.leave(index, error)
        else:
            rendezvous.leave(index)

    others = [(partial(replica, index), names[index]) for index in range(1, len(calls))]
    _run_together(partial(replica, 0), others, rendezvous)
    try:
        if errors:
            raise _first_cause(errors, len(calls))
    finally:
        errors.clear()  # an error's traceback leads here: they would keep each other alive
    return results


def _run_together(
    here: Callable[[], None],
    others: Sequence[tuple[Callable[[], None], str]],
    rendezvous: Rendezvous,
) -> None:
    """Make one call in this thread and each of `others` in one of its own; wait for all."""
    running: list[threading.Event] = []
    try:
        with InterruptsPutOff() as interrupts:  # a thread that is chosen gets something to do
            interrupts.begin()
            for call, name in others:
                done = threading.Event()
                thread = _some_thread()
                thread.name = name
                thread.jobs.put((call, done))
                running.append(done)
        here()
        _wait_for(running)
    except BaseException as error:  # no thread is left, or this one was interrupted
        rendezvous.leave(0, error)
        _wait_for(running)
        raise


def _wait_for(events: Sequence[threading.Event]) -> None:
    """Wait for all; whoever is interrupted in it may do so again."""
    for event in events:
        event.wait()


def _some_thread() -> _ReplicaThread:
    """A thread that waits for a job and is kept for the caller."""
    while _idle:
        try:
            thread = _idle.pop()
        except IndexError:  # another caller was quicker
            break
        if thread.is_alive():  # not so in a process forked from the one where it ran
            return thread
    thread = _ReplicaThread()
    thread.start()
    return thread


def _first_cause(errors: Sequence[tuple[int, BaseException]], num_replicas: int) -> BaseException:
    """The error to report: the first that is not merely the echo of another replica's."""
    originals = [e for e in errors if not isinstance(e[1], ReplicaAbortedError)]
    index, error = (originals or errors)[0]
    error.add_note(f"Raised in replica {index} of {num_replicas} (0-based).")
    return error
