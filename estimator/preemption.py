"""SIGTERM: a scheduler takes the machine away, and gives a moment to save."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

EXIT_CODE: Final = 128 + signal.SIGTERM
"""What shells and schedulers report of a process that SIGTERM has ended: 143."""


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


class SigtermWatch:
    """Whether SIGTERM has come.

    The first one asks the run to end after its step and to save; a second one ends it at once.

    Args:
        waits: Whether there is something to be finished; else already the first one ends the
            process. (It does so by itself, too, but then mpirun kills the other ranks before they
            have saved.)
    """

    def __init__(self, waits: bool = True) -> None:
        self.has_come = False
        self._waits = waits
        self._process = os.getpid()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a child forked since, which is not the one that trains
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        if self.has_come or not self._waits:
            raise Preempted
        self.has_come = True

    @contextmanager
    def installed(self, is_wanted: bool) -> Iterator[None]:
        """Within the block SIGTERM is noted here.

        Python lets only the main thread have a say in signals. A handler that somebody else has
        installed stays: it was meant.

        Args:
            is_wanted: Else nothing happens.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if not (is_wanted and is_main) or signal.getsignal(signal.SIGTERM) != signal.SIG_DFL:
            yield
            return
        signal.signal(signal.SIGTERM, self._on_signal)
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
