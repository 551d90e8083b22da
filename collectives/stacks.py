"""What the threads of this process do, for the log and the errors of a job that stands still."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final

_log = logging.getLogger("paceline")

# Who is asked by several others, or reports several waits, shows them once for all.
_SECS_BETWEEN: Final = 20.0
_MAX_FRAMES: Final = 30
# Threads of this package wait for others by what they are.
_OWN_THREADS: Final = "paceline-"

_PACKAGE: Final = str(Path(__file__).parents[1]) + os.sep
_PYTHON: Final = str(Path(os.__file__).parent) + os.sep

_lock = threading.Lock()
_shown_at = -_SECS_BETWEEN


def show_stacks(why: str) -> bool:
    """Log where each thread of this process is, unless that was done a moment ago.

    Args:
        why: Who wants to know, and what for.

    Returns:
        Whether it was logged now.
    """
    global _shown_at
    with _lock:
        now = time.monotonic()
        if now - _shown_at < _SECS_BETWEEN:
            return False
        _shown_at = now
    _log.warning("%s. The threads here, each with its innermost call first:\n%s", why, _stacks())
    return True


def call_site() -> str:
    """The line outside of this package that is being run in this thread, as "file:line".

    Empty in a thread that runs nothing else, and where nobody can say.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return "" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _is_library(path: str) -> bool:
    """Whether a file is of this package, or of those that come with Python."""
    if path.startswith((_PACKAGE, "<")):
        return True
    return path.startswith(_PYTHON) and "site-packages" not in path


def _stacks() -> str:
    main, frames = threading.main_thread(), sys._current_frames()
    threads = [t for t in threading.enumerate() if not t.name.startswith(_OWN_THREADS)]
    threads.sort(key=lambda thread: thread is not main)
    shown = [(t.name, frames[t.ident]) for t in threads if t.ident in frames]
    return "\n".join(f"  thread {name}:\n{_lines(frame)}" for name, frame in shown)


def _lines(frame: FrameType | None) -> str:
    """The calls of one thread, as `faulthandler` writes them."""
    lines: list[str] = []
    while frame is not None and len(lines) < _MAX_FRAMES:
        code = frame.f_code
        lines.append(f"    {code.co_filename}:{frame.f_lineno} in {code.co_qualname}")
        frame = frame.f_back
    return "\n".join(lines if frame is None else [*lines, "    …"])
