"""A program that ends closes its communicators: with a goodbye, or with what has ended it.

Without this every end would look like a death to the other ranks, also to those that need nothing
more. `atexit` is used: Python notes the exception that ends the program.

The exit code says whether the fault was another task's. Only `sys.excepthook` can choose it and
still let Python end as always; the hook that was there before is called first.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import traceback
from types import TracebackType
from typing import Final, Protocol

from ..cluster import LOST_PEER
from .errors import ClosedError, CollectiveError, MismatchError

MAX_REASON_CHARACTERS = 500


class Closable(Protocol):
    """What can be closed with a reason, as a `Communicator`."""

    def close(self, reason: str = "") -> None:
        """Leave, and say why if this program gives up."""


_open: set[Closable] = set()

_OWN_FAULTS: Final = (ClosedError, MismatchError)
"""The errors of collectives that a new start does not mend. The others tell of another task."""


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


@functools.cache
def choose_exit_code() -> None:
    """Let a program that ends because another task was lost exit with `LOST_PEER`, not with 1.

    Another task was lost, did not come or did not answer: a `CollectiveError`, uncaught. Call this
    before the process joins others. Only the first call does something: a hook that the user sets
    later stays, and may call ours.
    """
    earlier_hook = sys.excepthook

    def print_and_exit(
        kind: type[BaseException], error: BaseException, trace: TracebackType | None
    ) -> None:
        earlier_hook(kind, error, trace)
        is_lost_peer = isinstance(error, CollectiveError) and not isinstance(error, _OWN_FAULTS)
        if is_lost_peer and not hasattr(sys, "ps1"):  # at a prompt the session goes on
            raise SystemExit(LOST_PEER)  # Python ends in its usual way, with this exit code

    sys.excepthook = print_and_exit


def _close_all(pid: int) -> None:
    if os.getpid() != pid:  # a forked child, which shares the parent's connections
        return
    reason = uncaught_exception()
    for communicator in list(_open):
        communicator.close(reason)
