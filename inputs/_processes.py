"""Calling a function in another process, which is started without forking this one.

A fork would copy the threads' locks and the state of MPI and CUDA in whatever condition they are.
"""

from __future__ import annotations

import signal
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Answer = tuple[Any, Exception | None, str]
"""The result, or the error and its traceback as text."""

_JOIN_SECS = 5.0
_SERVER = f"{__package__}._map_server"


@final
class RemoteFunction:
    """`function` in a process of its own, one call at a time; the process ends with `close`.

    Args:
        function: what a fresh interpreter can import; it gets arguments and returns results that
            are copied between the processes.

    Raises:
        TypeError: the function cannot be named to another process.
    """

    def __init__(self, function: Callable[[Any], Any]) -> None:
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
    # Imported here because it takes longer to import than this whole package.
    import multiprocessing

    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_SERVER])
    return context


def _serve(connection: Connection, function: Callable[[Any], Any]) -> None:
    """Answers calls until the other end is closed, be it by the other process's death."""
    # Ctrl-C reaches all processes of a terminal; the consumer decides what becomes of it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            argument = connection.recv()
        except (EOFError, OSError):
            return
        _send(connection, _answer(function, argument))


def _answer(function: Callable[[Any], Any], argument: Any) -> Answer:
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
