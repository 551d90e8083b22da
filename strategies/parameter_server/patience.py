"""`Patience`: a wait that says for whom, every so often."""

from __future__ import annotations

import logging
import time
from typing import final

_logger = logging.getLogger("paceline")

_REPORT_SECS = 10.0


@final
class Patience:
    """One wait, which may consist of many short ones.

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
