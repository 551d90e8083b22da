"""SIGTERM and Ctrl-C: somebody wants the machine back, and gives a moment to save."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Final

from ..strategies import Job
from .session import SessionRunContext, SessionRunHook, SessionRunValues

_logger = logging.getLogger("paceline")

EXIT_CODE: Final = 128 + signal.SIGTERM
"""What shells and schedulers report of a process that SIGTERM has ended: 143."""

_NAMES: Final = {signal.SIGTERM: "SIGTERM", signal.SIGINT: "Ctrl-C"}
"""The signals that ask a run to end, as its log calls them."""

_DEFAULTS: Final[dict[signal.Signals, Any]] = {
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGINT: signal.default_int_handler,
}
"""What Python does with them; another handler was meant by somebody."""


class Preempted(SystemExit):
    """The run was ended by SIGTERM, and what it had learned is saved.

    It leaves the process with the exit code 143 (128 + 15) unless somebody catches it. All
    `finally` blocks run.

    Args:
        global_step: The step of the last checkpoint; None where there was no time to save.
    """

    def __init__(self, global_step: int | None = None) -> None:
        super().__init__(EXIT_CODE)
        self.global_step = global_step


class SignalWatch:
    """Whether SIGTERM or SIGINT (Ctrl-C) has come.

    The first one asks the run to end after its step and to save; a second one ends it at once.

    Args:
        waits: Whether there is something to be finished; else already the first one ends the
            process. (It does so by itself, too, but then mpirun kills the other ranks before they
            have saved.)
    """

    def __init__(self, waits: bool = True) -> None:
        self._came: signal.Signals | None = None
        self._waits = waits
        self._process = os.getpid()

    @property
    def has_come(self) -> bool:
        """Whether one has come."""
        return self._came is not None

    @property
    def name(self) -> str | None:
        """What the log calls the one that has come."""
        return None if self._came is None else _NAMES[self._came]

    def end(self, global_step: int | None = None) -> BaseException:
        """What is to be raised, as the signal (or else one to another worker) asks for it.

        Args:
            global_step: The step that is saved; None where there was no time.
        """
        saved = () if global_step is None else (f"step {global_step} is saved",)
        if self._came is signal.SIGINT:
            return KeyboardInterrupt(*saved)
        _logger.info("%s.", "; ".join((f"The process ends with exit code {EXIT_CODE}", *saved)))
        return Preempted(global_step)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child forked since, which is not the one that trains
            signal.signal(number, _DEFAULTS[signal.Signals(number)])
            os.kill(os.getpid(), number)
        is_first, self._came = self._came is None, signal.Signals(number)
        if not (is_first and self._waits):
            raise self.end()

    @contextmanager
    def installed(self, is_wanted: bool) -> Iterator[None]:
        """Within the block the signals are noted here.

        Python lets only the main thread have a say in signals. A handler that somebody else has
        installed stays: it was meant.

        Args:
            is_wanted: Else nothing happens.
        """
        is_main = threading.current_thread() is threading.main_thread()
        with ExitStack() as undo:
            for number, default in _DEFAULTS.items() if is_wanted and is_main else ():
                if signal.getsignal(number) == default:
                    signal.signal(number, self._on_signal)
                    undo.callback(signal.signal, number, default)
            yield


class EndOnSignalHook(SessionRunHook):
    """Ends the run after the step for which a worker has asked all workers to.

    Nobody takes a batch that is not trained on, so that the run can be continued exactly.

    Args:
        watch: Knows of a signal to this worker.
        job: Knows whether another task, which makes steps of its own, has asked all to end.
    """

    def __init__(self, watch: SignalWatch, job: Job) -> None:
        self._watch = watch
        self._job = job

    def before_run(self, run_context: SessionRunContext) -> None:
        run_context.session.wants_end = self._watch.has_come or self._job.is_ending

    def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = run_context.session.global_step
        if run_context.session.end_is_agreed:
            other = (
                "A signal to another task" if self._job.is_ending else "A signal to another worker"
            )
            _logger.info("%s: the run ends after step %d.", self._watch.name or other, step)
            run_context.request_stop()
