"""One writer a directory: a second job is refused and told who the first one is."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, final

from ._errors import CheckpointError
from ._names import LOCK_FILE
from ._storage import Lock, storage_of

_POLL_SECS: Final = 0.01
_MAX_DESCRIPTION_BYTES: Final = 4096
_log = logging.getLogger("paceline")


@final
class Hold:
    """The right to write to a directory.

    Args:
        model_dir: the directory.
        lock: its lock's file.
        is_alone: whether the file system has locks, so that nobody else is inside.
    """

    def __init__(self, model_dir: str, lock: Lock, is_alone: bool) -> None:
        self._model_dir = model_dir
        self._lock = lock
        self.is_alone = is_alone

    def require(self) -> None:
        """Refuses to write to another directory than the one that was locked.

        A directory that is deleted and made anew under a job has a new lock, which another job may
        hold: the kernel's lock is on the file, and says nothing of what its path leads to now.

        Raises:
            CheckpointError: the path leads elsewhere by now, or nowhere.
        """
        if not self._lock.is_in_place():
            raise CheckpointError(
                f"model_dir '{self._model_dir}' was deleted or replaced (or its {LOCK_FILE} was) "
                f"since this job began to write there: nothing more is saved, since another job "
                f"may be writing there now; start this one again"
            )


@contextmanager
def only_writer(
    model_dir: str, timeout_secs: float = 600.0, *, for_run: bool = False
) -> Iterator[Hold]:
    """Holds the directory's lock: of all threads, processes and hosts one at a time is inside.

    The kernel lets go of the lock when its holder dies, so whoever is inside knows that every
    temporary it finds is left over. The lock's file says who holds it, for people and for the
    error of those who come too late.

    Args:
        model_dir: the directory.
        timeout_secs: how long to wait for others who save once.
        for_run: whether others are to be refused at once, since this will take long.

    Yields:
        The right to write, to be asked again before each step that others see.

    Raises:
        CheckpointError: another one holds it for a run, or has held it for `timeout_secs`.
    """
    lock, held = _acquire(model_dir, timeout_secs)
    try:
        if held:
            _tell_of_takeover(lock, model_dir)
            _describe(lock, for_run)
        else:
            _log.warning(
                "the file system of model_dir '%s' has no locks: nothing keeps a second job out",
                model_dir,
            )
        yield Hold(model_dir, lock, held)
    finally:
        if held:
            lock.write(b"")
        lock.close()


def _acquire(model_dir: str, timeout_secs: float) -> tuple[Lock, bool]:
    deadline = time.monotonic() + timeout_secs
    storage, path = storage_of(model_dir), os.path.join(model_dir, LOCK_FILE)
    while True:
        lock = storage.lock(path, os.O_RDWR | os.O_CREAT)
        try:
            held = lock.try_lock()
            if held is None or (held and lock.is_in_place()):
                return lock, bool(held)
            _refuse(model_dir, _holder(lock), timeout_secs, time.monotonic() >= deadline)
        except BaseException:
            lock.close()
            raise
        lock.close()
        time.sleep(_POLL_SECS)


def _refuse(model_dir: str, holder: dict[str, Any], timeout_secs: float, is_late: bool) -> None:
    if holder.get("for_run") is True:
        raise CheckpointError(
            f"model_dir '{model_dir}' belongs to another job: {_named(holder)} has been writing "
            f"there since {holder.get('since')}; wait for it to end, or choose another model_dir"
        )
    if is_late:
        raise CheckpointError(
            f"cannot save to model_dir '{model_dir}': another process ({_named(holder)}) has been "
            f"saving there for {timeout_secs:g} s; give each job a model_dir of its own"
        )


def _named(holder: dict[str, Any]) -> str:
    return f"pid {holder.get('pid', '?')} on host {holder.get('host', '?')}"


def _holder(lock: Lock) -> dict[str, Any]:
    """Who holds the lock, as far as its file says."""
    try:
        holder = json.loads(lock.read(_MAX_DESCRIPTION_BYTES))
    except (ValueError, RecursionError):  # empty, or being written
        return {}
    return holder if isinstance(holder, dict) else {}


def _describe(lock: Lock, for_run: bool) -> None:
    since = datetime.now(UTC).isoformat(timespec="seconds")
    holder = {"host": socket.gethostname(), "pid": os.getpid(), "since": since, "for_run": for_run}
    lock.write(json.dumps(holder).encode() + b"\n")


def _tell_of_takeover(lock: Lock, model_dir: str) -> None:
    before = _holder(lock)
    if before:
        _log.info(
            "took over model_dir '%s' from %s, which began at %s and died without letting go",
            model_dir,
            _named(before),
            before.get("since"),
        )
