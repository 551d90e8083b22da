"""Log lines: everything goes through the logger "paceline", and shows without being set up."""

from __future__ import annotations

import logging
import sys
import threading
from functools import cache
from typing import final

_FORMAT = "%(asctime)s %(levelname)-5s %(message)s"
_TIME_FORMAT = "%H:%M:%S"

_attaching = threading.Lock()


def logger() -> logging.Logger:
    """The logger of the whole package."""
    return logging.getLogger("paceline")


@cache
def log_once(level: int, message: str, *arguments: object) -> None:
    """Log a line, the first time in this process that it is given with these arguments."""
    logger().log(level, message, *arguments)


def ensure_handler() -> None:
    """Shows log lines of level INFO and above on stderr, unless the user has set up logging.

    To be called when work starts, never at import. Does nothing where the logger or one above it
    has a handler, or when called again. Lines look like `12:03:11 INFO  message`.
    """
    log = logger()
    with _attaching:
        if log.hasHandlers():
            return
        log.addHandler(_StderrHandler())
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)


@final
class _StderrHandler(logging.Handler):
    """Writes to what is `sys.stderr` at the time: a live progress bar puts itself there.

    Says nothing once the root logger has a handler, so that a user who sets up logging after us
    does not see every line twice.
    """

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT, _TIME_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or sys.stderr is None:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)
