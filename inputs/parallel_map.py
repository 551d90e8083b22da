"""`map` with several calls at a time, in threads or in processes.

A process is started without forking this one: a fork would copy the threads' locks and the state of
MPI and CUDA in whatever condition they are.
"""

from __future__ import annotations

import os
import signal
import traceback
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, final

from .background import BackgroundThreads, Work
from .checks import COUNT, COUNTS, STATE, checked_fields
from .elements import ElementIterator, Elements, State, add_element_note
from .mapping import ElementFunction, UserFunction, element_function
from .plan import Keeps, Opening, Plan

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Answer = tuple[Any, Exception | None, str]
"""The result, or the error and its traceback as text."""

_MAX_WINDOW = 8
"""How many times as many elements as there are threads one slow call may hold up."""

_JOIN_SECS = 5.0
_SERVER = f"{__package__}.map_server"


def num_processors() -> int:
    """How many processors this process may use; a launcher may have given it one."""
    affinity = getattr(os, "sched_getaffinity", None)  # not on every system
    return (os.cpu_count() or 1) if affinity is None else len(affinity(0))


@final
@dataclass(frozen=True)
class ParallelCalls:
    """How a function is called for several elements at a time; each thread may have a process."""

    function: ElementFunction
    num_threads: int
    in_processes: bool


def mapped_in_parallel(
    plan: Plan, map_func: UserFunction, count: int, in_order: bool | None, in_processes: bool
) -> Plan:
    """Each element passed through a function, several at a time.

    Where somebody counts on the order, leave to hand out what is ready first is not made use of.
    """
    calls = ParallelCalls(element_function(map_func), count, in_processes)

    def step(inner: Elements, opening: Opening) -> Elements:
        asked = opening.options.deterministic if in_order is None else in_order
        keeps_order = opening.in_order or asked is not False
        return inner.through(_ParallelMapIterator, calls, keeps_order)

    return plan.then(step, "map(num_parallel_calls)", Keeps.EACH)


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
    of the window were given already. Resumed, the elements of the window are read again, and the
    function is called for those that were not given.

    Only the consumer's thread reads the input and touches the window; the threads see one `_Call`
    each and give it back. So the input need not be safe for threads, and its state is that of a
    moment.
    """

    def __init__(
        self,
        inner: ElementIterator,
        calls: ParallelCalls,
        in_order: bool,
    ) -> None:
        self._inner = inner
        self._parallel = calls
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
        # One element for each thread to work on, and one that waits for it.
        most = 2 * self._parallel.num_threads
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
            calls = self._calls = _Calls(self._parallel)
            self._threads = BackgroundThreads(
                self, calls, "paceline-map", self._parallel.num_threads
            )
        return self._calls

    def _stop(self) -> None:
        if self._threads is not None:
            self._threads.stop()
        self._calls = self._threads = None


@final
class _Calls(Work):
    """Makes calls in the background threads; `submit` and `wait` are for the consumer's."""

    def __init__(self, parallel: ParallelCalls) -> None:
        self._parallel = parallel
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
        # The flag has what is submitted already left undone; a None wakes each thread.
        self._is_stopped = True
        for _ in range(self._parallel.num_threads):
            self._waiting.put(None)

    def run_until_stopped(self) -> None:
        try:
            function: ElementFunction | RemoteFunction = self._parallel.function
            if self._parallel.in_processes:
                function = RemoteFunction(self._parallel.function)
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
                    add_element_note(error, call.number)
                self._done.put(call)
        finally:
            if isinstance(function, RemoteFunction):
                function.close()

    def _submitted(self) -> Iterator[_Call]:
        """The calls that are to be made, as this thread is free for them, until `stop`."""
        while (call := self._waiting.get()) is not None and not self._is_stopped:
            yield call


@final
class RemoteFunction:
    """`function` in a process of its own, one call at a time; the process ends with `close`.

    A fresh interpreter must be able to import it; arguments and results are copied.
    """

    def __init__(self, function: ElementFunction) -> None:
        context = _context()
        self._connection, far_end = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(far_end, function), name="paceline-map", daemon=True
        )
        try:
            self._process.start()
        except Exception as error:
            self._connection.close()
            raise TypeError(
                f"map_func must be a function that another process can import ({error}). Define it "
                "at the top of a module, or use threads."
            ) from error
        finally:
            far_end.close()

    def __call__(self, argument: Any) -> Any:
        try:
            self._connection.send(argument)
            result, error, trace = self._connection.recv()
        except (EOFError, OSError) as lost:
            self._process.join(_JOIN_SECS)
            raise RuntimeError(
                f"A process of map ended with exit code {self._process.exitcode} in the midst of "
                "an element. map_func crashed, or the system killed it for want of memory; or the "
                "script does not start its work under `if __name__ == '__main__':`."
            ) from lost
        if error is not None:
            error.add_note(f"In another process:\n{trace}")
            raise error
        return result

    def close(self) -> None:
        """Ends the process, at once if it does not end by itself."""
        self._connection.close()
        self._process.join(_JOIN_SECS)
        if self._process.is_alive():
            self._process.terminate()
            self._process.join()


def _context() -> Any:
    """How processes are started: from a server that does not run the user's script, or afresh."""
    # Imported here because it takes longer to import than this whole package. The server does not
    # run the script, and forgets the MPI launcher's variables: a script that begins with
    # `from mpi4py import MPI` would join the job a second time.
    import multiprocessing

    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_SERVER])
    return context


def _serve(connection: Connection, function: ElementFunction) -> None:
    """Answers calls until the other end is closed, be it by the other process's death."""
    # Ctrl-C reaches all processes of a terminal; the consumer decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            argument = connection.recv()
        except (EOFError, OSError):
            return
        _send(connection, _answer(function, argument))


def _answer(function: ElementFunction, argument: Any) -> Answer:
    try:
        return function(argument), None, ""
    except Exception as error:
        return None, error, traceback.format_exc()


def _send(connection: Connection, answer: Answer) -> None:
    try:
        connection.send(answer)
    except (BrokenPipeError, ConnectionResetError):
        return
    except Exception as error:
        reason = RuntimeError(f"What map_func returned or raised cannot be sent back: {error}")
        connection.send((None, reason, answer[2]))
