"""One function in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar, final

THREAD_NAME: Final = "paceline-save"
Result = TypeVar("Result")


@final
class Background(Generic[Result]):
    """Runs a function in a thread that ends with it: nobody has to stop it.

    The thread is no daemon, so that an interpreter that exits waits for it. (The executors of
    `concurrent.futures` refuse work as soon as the main thread has ended.) At the end of a `with`
    block the function has ended, too.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._results: list[Result] = []
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(function,), name=THREAD_NAME)
        self._thread.start()

    def _run(self, function: Callable[[], Result]) -> None:
        try:
            self._results.append(function())
        except BaseException as error:
            self._error = error
        finally:
            self._ended.set()

    def is_done(self) -> bool:
        return self._ended.is_set()

    def join(self) -> None:
        """Waits for the end."""
        # A thread whose join was interrupted counts as ended (Python 3.11); an event does not.
        self._ended.wait()
        self._thread.join()

    def result(self) -> Result:
        """Waits for the end; what the function returned, or its error as it was raised."""
        self.join()
        if self._error is not None:
            raise self._error
        return self._results[0]

    def __enter__(self) -> Background[Result]:
        return self

    def __exit__(self, *error: object) -> None:
        self.join()
