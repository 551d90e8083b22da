"""File operations that survive a power cut, each as small as the operating system lets it be."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import sys

from ._locks import FileLock
from ._names import aside_name, temporary_name

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2
_NO_EXCHANGE_HERE = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def flush(path: str) -> None:
    """Blocks until the file or directory at `path` is on disk; a directory means its entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directory(path: str) -> None:
    """Creates the directory and its parents where missing, and flushes their entries."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(os.path.abspath(path))
    make_directory(parent)
    try:
        os.mkdir(path)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    flush(parent)


def write_durably(path: str, text: str) -> None:
    """Writes a new UTF-8 file and flushes it (its directory entry is the caller's to flush)."""
    with open(path, "x", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def replace_durably(path: str, text: str) -> None:
    """Replaces the file at `path` in one step: readers see the old text or the new one.

    Who cleans up removes temporary files that nobody has locked: those of the dead.
    """
    directory, name = os.path.split(path)
    temporary, lock = _locked_temporary(directory, name)
    try:
        with open(lock.descriptor, "w", encoding="utf-8", newline="\n", closefd=False) as file:
            file.write(text)
            file.flush()
            os.fsync(lock.descriptor)
        os.replace(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    finally:
        lock.close()
    flush(directory)


def _locked_temporary(directory: str, name: str) -> tuple[str, FileLock]:
    """A new empty file that is locked; its path."""
    while True:
        path = os.path.join(directory, temporary_name(name))
        lock = FileLock(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        if lock.try_lock() is not False and lock.is_in_place():
            return path, lock
        lock.close()  # who cleans up was faster, and removes it


def remove(path: str) -> None:
    """Removes a file or a directory tree as far as possible; what is missing is no error."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.remove(path)


def delete(path: str) -> None:
    """Takes a directory out of sight in one step, then removes it."""
    directory, name = os.path.split(path)
    hidden = os.path.join(directory, temporary_name(name))
    os.rename(path, hidden)
    remove(hidden)


def put_in_place(temporary: str, path: str) -> str | None:
    """Makes a finished directory visible at `path`; where what it replaced is now, if anything.

    Where the kernel can exchange two names there is no moment without a whole directory at
    `path`. Elsewhere the old one is set aside first; after a crash in between,
    the next start and the next save bring it back.
    """
    directory, name = os.path.split(path)
    replaced: str | None = temporary
    if not os.path.lexists(path):
        os.rename(temporary, path)
        replaced = None
    elif not exchange(temporary, path):
        replaced = os.path.join(directory, aside_name(name))
        _replace_by_two_renames(temporary, path, replaced)
    flush(directory)
    return replaced


def _replace_by_two_renames(temporary: str, path: str, aside: str) -> None:
    os.rename(path, aside)
    try:
        os.rename(temporary, path)
    except BaseException:
        os.rename(aside, path)
        raise


def exchange(one: str, other: str) -> bool:
    """Swaps two names in one step (Linux, renameat2); False where that cannot be done."""
    if sys.platform != "linux":
        return False
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        return False
    names = os.fsencode(one), os.fsencode(other)
    if renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _NO_EXCHANGE_HERE:
        return False
    raise OSError(code, os.strerror(code), one, None, other)
