"""Who may do what in a directory of checkpoints: leases for readers, one writer.

A lease is a shared lock on the checkpoint's manifest, and who deletes takes it exclusively. So
there is no file to be left over, and the lease of a killed reader is over at once. The one writer
holds a lock on a file of the directory's own: a second job is refused and told who the first is.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, final

from ..observe import printable
from .errors import CheckpointError
from .names import LOCK_FILE, MANIFEST
from .places import committer_of, no_checkpoint, store_of, tidy
from .storage import Lock

_POLL_SECS: Final = 0.01
_MAX_DESCRIPTION_BYTES: Final = 4096
_DESCRIPTION_BEGINS: Final = b'{"host": '
_log = logging.getLogger("paceline")


@contextmanager
def lease(path: str | os.PathLike[str]) -> Iterator[str]:
    """Keeps the checkpoint at `path` from being deleted during the block, by any process.

    Several may have leases of one checkpoint. Take it before `load`, and hold it until the last
    read. On a file system without locks it does nothing.

    Yields:
        The path as a string.

    Raises:
        CheckpointError: the checkpoint is not there (any more).
    """
    path = os.fspath(path)
    try:
        lock = committer_of(path).lock(os.path.join(path, MANIFEST), os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(no_checkpoint(tidy(path))) from error
    except OSError as error:
        raise CheckpointError(f"cannot read '{path}': {error.strerror or error}") from error
    try:
        if lock.try_lock(shared=True) is False or not lock.is_in_place():
            raise CheckpointError(f"checkpoint '{path}' is being deleted; look for a newer one")
        yield path
    finally:
        lock.close()


def delete_unless_leased(path: str) -> bool:
    """Deletes a checkpoint; False, and nothing done, if somebody reads it."""
    with _unless_locked(path) as is_free:
        if is_free:
            committer_of(path).delete(path)
        return is_free


def remove_unless_leased(path: str) -> bool:
    """Removes what is out of sight; False if somebody has locked it, to read it or to write."""
    with _unless_locked(path) as is_free:
        if is_free:
            store_of(path).remove(path)
        return is_free


@contextmanager
def _unless_locked(path: str) -> Iterator[bool]:
    """Keeps others from locking a checkpoint, or a file; False where somebody has."""
    try:
        lock = _lock_on(path)
    except FileNotFoundError:  # a directory without a manifest: nobody can have a lease of it
        yield True
        return
    try:
        yield lock.try_lock() is not False
    finally:
        lock.close()


def _lock_on(path: str) -> Lock:
    try:
        return _opened_to_lock(os.path.join(path, MANIFEST))
    except NotADirectoryError:
        return _opened_to_lock(path)


def _opened_to_lock(path: str) -> Lock:
    """A file to be locked exclusively, for which NFS wants it open for writing."""
    try:
        return committer_of(path).lock(path, os.O_RDWR)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        return committer_of(path).lock(path, os.O_RDONLY)  # links are not opened for writing


@final
@dataclass(frozen=True)
class Hold:
    """The right to write to a directory; `is_alone` where locks keep all others from having it."""

    model_dir: str
    lock: Lock
    is_alone: bool

    def require(self) -> None:
        """Refuses to write to another directory than the one that was locked.

        A directory that is deleted and made anew under a job has a new lock, which another job may
        hold: the kernel's lock is on the file, and says nothing of what its path leads to now.
        """
        if not self.lock.is_in_place():
            raise CheckpointError(
                f"model_dir '{self.model_dir}' was deleted or replaced (or its {LOCK_FILE} was) "
                f"since this job began to write there: nothing more is saved, since another job "
                f"may be writing there now; start this one again"
            )


@contextmanager
def only_writer(
    model_dir: str, timeout_secs: float = 600.0, *, for_run: bool = False
) -> Iterator[Hold]:
    """Holds the directory's lock: of all threads, processes and hosts one at a time is inside.

    The kernel lets go of the lock when its holder dies, so whoever is inside knows that every
    temporary it finds is left over. The lock's file says who holds it, for people and for the error
    of those who come too late: at once where it is held `for_run`, else after `timeout_secs`.
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
    path = os.path.join(model_dir, LOCK_FILE)
    while True:
        lock = committer_of(path).lock(path, os.O_RDWR | os.O_CREAT)
        try:
            held = lock.try_lock()
            if held is None or (held and lock.is_in_place()):
                _require_ours(lock, model_dir)
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
            f"there since {printable(str(holder.get('since')))}; wait for it to end, or choose "
            f"another model_dir"
        )
    if is_late:
        raise CheckpointError(
            f"cannot save to model_dir '{model_dir}': another process ({_named(holder)}) has been "
            f"saving there for {timeout_secs:g} s; give each job a model_dir of its own"
        )


def _named(holder: dict[str, Any]) -> str:
    return printable(f"pid {holder.get('pid', '?')} on host {holder.get('host', '?')}")


def _holder(lock: Lock) -> dict[str, Any]:
    """Who holds the lock, as far as its file says."""
    try:
        holder = json.loads(lock.read(_MAX_DESCRIPTION_BYTES))
    except (ValueError, RecursionError):  # empty, or being written
        return {}
    return holder if isinstance(holder, dict) else {}


def _require_ours(lock: Lock, model_dir: str) -> None:
    """Refuse to overwrite what no holder of a lock has written.

    Of a holder that was killed while it wrote there may be a part; zeros are left by a power cut.
    """
    content = lock.read(_MAX_DESCRIPTION_BYTES + 1).strip(b"\0")
    is_ours = content.startswith(_DESCRIPTION_BEGINS[: len(content)])
    if not is_ours or len(content) > _MAX_DESCRIPTION_BYTES:
        raise CheckpointError(
            f"'{os.path.join(model_dir, LOCK_FILE)}' was not written by paceline, and is not "
            f"overwritten: remove it, or choose another directory"
        )


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
            printable(str(before.get("since"))),
        )
