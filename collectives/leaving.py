"""A program that ends closes its communicators: with a goodbye, or with what has ended it.

Without this every end would look like a death to the other ranks, also to those that need nothing
more. `atexit` is used, and no hook for uncaught exceptions, of which a program can have only one:
Python notes the exception that ends it.
"""

from __future__ import annotations

import atexit
import os
import sys
import traceback
from typing import Protocol

MAX_REASON_CHARACTERS = 500


class Closable(Protocol):
    """What can be closed with a reason, as a `Communicator`."""

    def close(self, reason: str = "") -> None:
        """Leave, and say why if this program gives up."""


_open: set[Closable] = set()


def close_at_exit(communicator: Closable) -> None:
    """See to it that ``communicator`` is closed when this program ends.

    Python calls first what was registered last: this comes before gRPC and MPI end, which have been
    loaded already.
    """
    _open.add(communicator)
    atexit.unregister(_close_all)
    atexit.register(_close_all, os.getpid())


def forget(communicator: Closable) -> None:
    _open.discard(communicator)


def uncaught_exception() -> str:
    """Return the type and the text of what has ended this program; empty if it ends as it should.

    In an interactive session the latest uncaught exception is one of many, and says nothing about
    why the session ends.
    """
    error = getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1"):
        return ""
    text = "".join(traceback.format_exception_only(error)).strip()
    return text if len(text) <= MAX_REASON_CHARACTERS else text[:MAX_REASON_CHARACTERS] + " ..."


def _close_all(pid: int) -> None:
    if os.getpid() != pid:  # a forked child, which shares the parent's connections
        return
    reason = uncaught_exception()
    for communicator in list(_open):
        communicator.close(reason)
