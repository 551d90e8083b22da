"""What a run shows of itself while it runs: log lines and progress."""

from __future__ import annotations

from .growing_file import GrowingFile
from .history import History
from .log import JsonLines, ensure_handler, forget_logged, log_once, logger
from .own_files import open_own, read_own, require_size
from .phases import PHASES, Collective, Span, Stopwatch, phase, wall_clock_offset_ns
from .printable import printable
from .progress import Progress, Rate, RemoteProgress, progress, progress_for_launcher
from .report import write_report
from .run import Run
from .timeline import trace_events, write_timeline
from .tracebacks import short_tracebacks

__all__ = [
    "PHASES",
    "Collective",
    "GrowingFile",
    "History",
    "JsonLines",
    "Progress",
    "Rate",
    "RemoteProgress",
    "Run",
    "Span",
    "Stopwatch",
    "ensure_handler",
    "forget_logged",
    "log_once",
    "logger",
    "open_own",
    "phase",
    "printable",
    "progress",
    "progress_for_launcher",
    "read_own",
    "require_size",
    "short_tracebacks",
    "trace_events",
    "wall_clock_offset_ns",
    "write_report",
    "write_timeline",
]
