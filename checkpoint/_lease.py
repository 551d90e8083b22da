"""Leases: while somebody reads a checkpoint, nobody deletes it.

A lease is a shared lock on the checkpoint's manifest, and who deletes takes it exclusively. So
there is no file to be left over, and the lease of a killed reader is over at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ._errors import CheckpointError
from ._names import MANIFEST
from ._read import no_checkpoint
from ._storage import Lock, storage_of, tidy


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
        lock = storage_of(path).lock(os.path.join(path, MANIFEST), os.O_RDONLY)
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
    """Deletes a checkpoint; False, and nothing done, if somebody reads it.

    Raises:
        OSError: it cannot be deleted.
    """
    return _unless_leased(path, storage_of(path).delete)


def remove_unless_leased(path: str) -> bool:
    """Removes a file or directory that is out of sight.

    Returns:
        False if somebody has locked it: a checkpoint that is read, a file that is written.
    """
    return _unless_leased(path, storage_of(path).remove)


def _unless_leased(path: str, act: Callable[[str], None]) -> bool:
    try:
        lock = _lock_on(path)
    except FileNotFoundError:
        act(path)
        return True
    try:
        if lock.try_lock() is False:
            return False
        act(path)
        return True
    finally:
        lock.close()


def _lock_on(path: str) -> Lock:
    try:
        return storage_of(path).lock(os.path.join(path, MANIFEST), os.O_RDWR)
    except NotADirectoryError:
        return storage_of(path).lock(path, os.O_RDWR)
