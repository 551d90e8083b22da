"""`map` with several calls at a time, in threads or processes."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any, final

from ._background import BackgroundThreads
from ._elements import ElementIterator, Elements, State, Stream, note_element
from ._processes import RemoteFunction
from ._states import COUNT, COUNTS, STATE, checked_fields

Function = Callable[[Any], Any]
OpenFunction = Callable[[], tuple[Function, Callable[[], None]]]

_MAX_WINDOW = 8
"""How many times as many elements as there are threads one slow call may hold up."""


def num_processors() -> int:
    """How many processors this process may use; a launcher may have given it one."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


@final
class ParallelMappedStream(Stream):
    """Each element passed through a function, several at a time.

    Args:
        inner: the elements.
        open_function: called in each thread; returns the function for that thread, and what
            releases it.
        num_threads: how many elements are computed at a time.
        in_order: whether the results keep the order of the elements.
    """

    def __init__(
        self, inner: Elements, open_function: OpenFunction, num_threads: int, in_order: bool
    ) -> None:
        self._inner = inner
        self._open_function = open_function
        self._num_threads = num_threads
        self._in_order = in_order

    def iterate(self, iteration: int) -> ElementIterator:
        inner = self._inner.iterate(iteration)
        return _ParallelMapIterator(inner, self._open_function, self._num_threads, self._in_order)


def in_this_process(function: Function) -> tuple[Function, Callable[[], None]]:
    """An `OpenFunction` for threads that call the function themselves."""
    return function, _nothing


def in_another_process(function: Function) -> tuple[Function, Callable[[], None]]:
    """An `OpenFunction` for threads that have a process each call the function."""
    remote = RemoteFunction(function)
    return remote, remote.close


@final
class _Call:
    """One element on its way through the function."""

    def __init__(
        self, number: int, element: Any, state_after: State, error: Exception | None = None
    ) -> None:
        self.number = number
        self.element = element
        self.state_after = state_after
        self.result: Any = None
        self.error: BaseException | None = error
        self.is_done = error is not None
        self.is_given = False


@final
class _ParallelMapIterator(ElementIterator):
    """Keeps a window of calls in the order of the input.

    The state is the input's at the window's beginning, how many elements lie before it, and which
    of the window were given already.
    """

    def __init__(
        self,
        inner: ElementIterator,
        open_function: OpenFunction,
        num_threads: int,
        in_order: bool,
    ) -> None:
        self._inner = inner
        self._open_function = open_function
        self._num_threads = num_threads
        self._in_order = in_order
        self._window: deque[_Call] = deque()
        self._num_pending = 0
        self._start_state = inner.get_state()
        self._num_read = 0
        self._given_before: set[int] = set()
        self._has_ended = False
        self._calls: _Calls | None = None
        self._threads: BackgroundThreads | None = None

    def __next__(self) -> Any:
        self._fill()
        if self._num_pending == 0:
            raise StopIteration
        call = self._next_call()
        call.is_given = True
        self._num_pending -= 1
        while self._window and self._window[0].is_given:
            self._start_state = self._window.popleft().state_after
        if call.error is not None:
            raise call.error
        return call.result

    def get_state(self) -> State:
        return {
            "start": self._window[0].number if self._window else self._num_read,
            "given": [call.number for call in self._window if call.is_given],
            "inner": self._start_state,
        }

    def set_state(self, state: State) -> None:
        checked_fields(state, {"start": COUNT, "given": COUNTS, "inner": STATE})
        self._stop()
        self._inner.set_state(state["inner"])
        self._window.clear()
        self._num_pending = 0
        self._num_read = state["start"]
        self._start_state = state["inner"]
        self._given_before = set(state["given"])
        self._has_ended = False

    def close(self) -> None:
        self._stop()
        self._window.clear()
        self._num_pending = 0
        self._has_ended = True
        self._inner.close()

    def _fill(self) -> None:
        most = 2 * self._num_threads
        while (
            not self._has_ended
            and self._num_pending < most
            and len(self._window) < _MAX_WINDOW * most
        ):
            self._read()

    def _read(self) -> None:
        number = self._num_read
        try:
            call = _Call(number, next(self._inner), self._inner.get_state())
        except StopIteration:
            self._has_ended = True
            return
        except Exception as error:
            # It is raised in its turn, behind the elements before it.
            call = _Call(number, None, self._inner.get_state(), error)
        self._window.append(call)
        self._num_read += 1
        if number in self._given_before:
            call.is_given = True
            return
        self._num_pending += 1
        if call.error is None:
            self._started().submit(call)

    def _next_call(self) -> _Call:
        """The call whose result is handed out next, when it is done."""
        while True:
            for call in self._window:
                if call.is_done and not call.is_given:
                    return call
                if self._in_order:
                    break
            self._started().wait()

    def _started(self) -> _Calls:
        if self._calls is None:
            calls = self._calls = _Calls(self._open_function, self._num_threads)
            self._threads = BackgroundThreads(
                self, calls.run, calls.stop, "paceline-map", self._num_threads
            )
        return self._calls

    def _stop(self) -> None:
        if self._threads is not None:
            self._threads.stop()
        self._calls = self._threads = None


@final
class _Calls:
    """Makes calls in the threads that are in `run`; the rest is for the consumer's thread."""

    def __init__(self, open_function: OpenFunction, num_threads: int) -> None:
        self._open_function = open_function
        self._num_threads = num_threads
        self._waiting: SimpleQueue[_Call | None] = SimpleQueue()
        self._done: SimpleQueue[_Call] = SimpleQueue()
        self._is_stopped = False

    def submit(self, call: _Call) -> None:
        """Has the call made as soon as a thread is free."""
        self._waiting.put(call)

    def wait(self) -> None:
        """Waits until one more call is done, and marks it."""
        self._done.get().is_done = True

    def stop(self) -> None:
        """Makes `run` return as soon as the function lets it."""
        self._is_stopped = True
        for _ in range(self._num_threads):
            self._waiting.put(None)

    def run(self) -> None:
        """Makes calls until `stop`."""
        try:
            function, release = self._open_function()
        except Exception as error:
            # It stands in place of each result, and is no matter of any element.
            for call in self._submitted():
                call.error = error
                self._done.put(call)
            return
        try:
            for call in self._submitted():
                try:
                    call.result = function(call.element)
                except BaseException as error:
                    call.error = error
                    note_element(error, call.number)
                self._done.put(call)
        finally:
            release()

    def _submitted(self) -> Iterator[_Call]:
        """The calls that are to be made, as this thread is free for them, until `stop`."""
        while (call := self._waiting.get()) is not None and not self._is_stopped:
            yield call


def _nothing() -> None:
    pass
