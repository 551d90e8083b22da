"""Waits of a trainer: each says for whom, every so often, and none for the chief is without end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import final

from ...collectives import CollectiveError
from ...collectives.parameter_server import TrainerStatus

_logger = logging.getLogger("paceline")

_REPORT_SECS = 10.0
_CHECK_SECS = 5.0


@final
class ReportedWait:
    """One wait, which may consist of many short ones, with a log line every 10 s.

    Args:
        what: What is waited for, for the log.
        limit_secs: How long; None for as long as it takes.
    """

    def __init__(self, what: str, limit_secs: float | None = None) -> None:
        self._what = what
        self._limit_secs = limit_secs
        self._start = time.monotonic()
        self._next_report = self._start + _REPORT_SECS

    def report(self, culprits: str) -> None:
        """Note that the wait goes on because of `culprits`; log it where it is time."""
        now = time.monotonic()
        if now >= self._next_report:
            self._next_report = now + _REPORT_SECS
            _logger.warning(
                "Waiting for %s since %.0f s: %s.", self._what, now - self._start, culprits
            )

    @property
    def left_secs(self) -> float:
        """How long it may still take."""
        if self._limit_secs is None:
            return float("inf")
        return max(0.0, self._start + self._limit_secs - time.monotonic())


@final
class ChiefWatch:
    """Checks now and then whether the chief is there; the others go on without it for a while.

    While it is away nothing is saved, a server that dies stays empty, and nobody says how the job
    has ended.

    Args:
        status: Asks a server how it sees the chief.
        start_timeout_secs: How long it may take to come.
        absence_secs: How long it may be away afterwards.
    """

    def __init__(
        self, status: Callable[[], TrainerStatus], start_timeout_secs: float, absence_secs: float
    ) -> None:
        self._status = status
        self._start_timeout_secs = start_timeout_secs
        self._absence_secs = absence_secs
        self._next_check = 0.0
        self._has_come = False
        self._away: ReportedWait | None = None
        self._is_checking = False

    def check(self) -> None:
        """Ask a server, if it is time.

        Raises:
            CollectiveError: The chief has been away for too long.
        """
        now = time.monotonic()
        # Asking may have to wait for the server to come back, which checks on the chief again.
        if self._is_checking or now < self._next_check:
            return
        self._next_check = now + min(_CHECK_SECS, self._absence_secs / 4)
        self._is_checking = True
        try:
            chief = self._status()
        finally:
            self._is_checking = False
        if chief.state != "absent" and not self._has_come:
            self._has_come, self._away = True, None
        if chief.state in ("here", "done"):
            if self._away is not None:
                _logger.warning("%s is back.", chief.name)
            self._away = None
        else:
            self._wait_for(chief)

    def _wait_for(self, chief: TrainerStatus) -> None:
        limit_secs = self._absence_secs if self._has_come else self._start_timeout_secs
        if self._away is None:
            self._away = ReportedWait(chief.name, limit_secs)
            if self._has_come:
                _logger.warning(
                    "%s is gone. Training goes on without checkpoints for %g s; then it ends.",
                    chief.name,
                    limit_secs,
                )
        if not self._away.left_secs:
            what = "was lost and has not come back" if self._has_come else "has not come"
            raise CollectiveError(
                f"{chief.name}, the chief, {what} within {limit_secs:g} s; without it nothing is "
                f"saved. Start the job again: it goes on from the last checkpoint"
            )
        self._away.report(f"{chief.name} is not there")
