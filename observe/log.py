"""Log lines: everything goes through the logger "paceline", and shows without being set up."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, final

_FORMAT = "%(asctime)s %(levelname)-5s %(message)s"
_TIME_FORMAT = "%H:%M:%S"

LOG_VARIABLE: Final = "PACELINE_LOG"
"""What log lines look like: "text", the default, or "json"."""

_attaching = threading.Lock()
_noting = threading.Lock()
_logged: set[tuple[object, ...]] = set()


def logger() -> logging.Logger:
    """The logger of the whole package."""
    return logging.getLogger("paceline")


def log_once(level: int, message: str, *arguments: object) -> None:
    """Log a line, the first time in this process that it is given with these arguments.

    Replicas come here at the same time: whichever is first logs it, the others go on.
    """
    line = (level, message, *arguments)
    with _noting:
        if line in _logged:
            return
        _logged.add(line)
    logger().log(level, message, *arguments)


def forget_logged() -> None:
    """Let `log_once` log every line once more, as in a new process: for tests."""
    with _noting:
        _logged.clear()


def ensure_handler(environ: Mapping[str, str] = os.environ) -> None:
    """Shows log lines of level INFO and above on stderr, unless the user has set up logging.

    To be called when work starts, never at import. Does nothing where the logger or one above it
    has a handler, or when called again. Lines look like `12:03:11 INFO  message`; see `JsonLines`
    for the other form.

    Args:
        environ: Says by PACELINE_LOG which form they have: "text" (the default) or "json".

    Raises:
        ValueError: It says something else.
    """
    log = logger()
    with _attaching:
        if log.hasHandlers():
            return
        log.addHandler(_StderrHandler(_formatter(environ.get(LOG_VARIABLE, "text"))))
        if log.level == logging.NOTSET:
            log.setLevel(logging.INFO)


def _formatter(form: str) -> logging.Formatter:
    if form not in ("text", "json"):
        raise ValueError(f"{LOG_VARIABLE} must be text or json, it is {form!r}")
    return JsonLines() if form == "json" else logging.Formatter(_FORMAT, _TIME_FORMAT)


@final
class JsonLines(logging.Formatter):
    """Each record as one line of JSON, for programs; also for a handler of one's own.

    It has "time" (ISO 8601, UTC), "level", "message", "pid", and where there are any "values",
    what the message tells as numbers and texts by name, and "traceback". A number that is not
    finite is a text, as JSON has none.
    """

    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": when.isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "message": record.getMessage(),
            "pid": record.process,
        }
        values = getattr(record, "values", None)
        if values is not None:
            line["values"] = {str(name): _plain(value) for name, value in values.items()}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line)


def _plain(value: Any) -> Any:
    """A value as JSON takes it; arrays are lists."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | None) else str(value)


@final
class _StderrHandler(logging.Handler):
    """Writes to what is `sys.stderr` at the time: a live progress bar puts itself there.

    Says nothing once the root logger has a handler, so that a user who sets up logging after us
    does not see every line twice.
    """

    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        if logging.getLogger().handlers or sys.stderr is None:
            return
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)
