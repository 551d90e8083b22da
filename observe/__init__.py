"""What a run shows of itself while it runs: log lines and progress."""

from __future__ import annotations

from .growing_file import GrowingFile
from .log import ensure_handler, log_once, logger
from .progress import Progress, Rate, RemoteProgress, progress
from .tracebacks import short_tracebacks

__all__ = [
    "GrowingFile",
    "Progress",
    "Rate",
    "RemoteProgress",
    "ensure_handler",
    "log_once",
    "logger",
    "progress",
    "short_tracebacks",
]
