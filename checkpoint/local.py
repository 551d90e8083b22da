"""Checkpoints in a directory of this machine: written beside, made visible by one rename.

What is written is flushed before the rename that makes it visible, and the directory after it: so
a power cut leaves the old state or the new one. Locks are the kernel's (flock), which end with the
process that holds them, however it ends. A file made with O_EXCL would outlive a killed process,
and whether its process still lives can be guessed at best, on this host alone. On NFS the kernel
makes byte range locks of them, which hold between hosts.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, TextIO, final

import numpy as np

from ..observe import open_own, read_own
from .names import MANIFEST, aside_name, directory_of, temporary_name
from .storage import ByteStore, Committer, Lock, OpenFile

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_NO_EXCHANGE_HERE: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
_NO_LOCKS_HERE: Final = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
_held: set[int] = set()


@final
class LocalFiles(ByteStore):
    """The files of this machine."""

    def names(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def read(self, path: str, max_bytes: int) -> bytes:
        return read_own(path, max_bytes)

    @contextmanager
    def opened(self, path: str) -> Iterator[OpenFile]:
        descriptor = open_own(path, os.O_RDONLY)
        try:
            yield _OpenFile(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, path: str, text: str) -> None:
        directory = directory_of(path)
        temporary, lock = _locked_temporary(directory, os.path.basename(path))
        try:
            with open(lock.descriptor, "w", encoding="utf-8", newline="\n", closefd=False) as file:
                _write_and_flush(file, text)
            os.replace(temporary, path)
        except BaseException:
            self.remove(temporary)
            raise
        finally:
            lock.close()
        _flush(directory)

    def remove(self, path: str) -> None:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path, ignore_errors=True)
        elif os.path.lexists(path):
            os.remove(path)

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = directory_of(os.path.abspath(path))
        self.make_directory(parent)
        try:
            os.mkdir(path)
        except FileExistsError:
            if not os.path.isdir(path):
                raise
        _flush(parent)


@final
class _OpenFile:
    request_bytes = 1 << 20  # what was read is still in the cache when its checksum is computed

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_into(self, view: np.ndarray, offset: int) -> int:
        return os.preadv(self._descriptor, [view.data], offset)


@final
class LocalCommitter(Committer):
    """A draft is a directory beside the checkpoints, and the commit is its renaming."""

    def lock(self, path: str, flags: int) -> Lock:
        return FileLock(path, flags)

    def try_to_write(self, path: str) -> None:
        probe = os.path.join(path, temporary_name("probe"))
        os.mkdir(probe)
        os.rmdir(probe)

    def make_draft(self, path: str) -> str:
        draft = os.path.join(directory_of(path), temporary_name(os.path.basename(path)))
        os.mkdir(draft)
        return draft

    def shard_path(self, draft: str, shard: str) -> str:
        return os.path.join(draft, shard)

    def file_path(self, draft: str, name: str) -> str:
        return os.path.join(draft, name)

    @contextmanager
    def staged(self, shard_path: str) -> Iterator[str]:
        yield shard_path
        _flush(shard_path)

    def commit(self, draft: str, path: str, manifest: str, shards: Sequence[str]) -> list[str]:
        # Shards are on disk by now, and the manifest and the draft's entries are before the rename:
        # else a power cut could leave a name that leads to an empty directory.
        with open(os.path.join(draft, MANIFEST), "x", encoding="utf-8", newline="\n") as file:
            _write_and_flush(file, manifest)
        _flush(draft)
        replaced = _put_in_place(draft, path)
        return [] if replaced is None else [replaced]

    def abandon(self, draft: str) -> None:
        LocalFiles().remove(draft)

    def is_committed(self, path: str) -> bool:
        return os.path.exists(path)

    def delete(self, path: str) -> None:
        hidden = os.path.join(directory_of(path), temporary_name(os.path.basename(path)))
        # A deletion that is killed half-way leaves a temporary, never half a checkpoint.
        os.rename(path, hidden)
        LocalFiles().remove(hidden)


def _flush(path: str) -> None:
    """Blocks until the file or directory at `path` is on disk; a directory means its entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_and_flush(file: TextIO, text: str) -> None:
    file.write(text)
    file.flush()
    os.fsync(file.fileno())


def _locked_temporary(directory: str, name: str) -> tuple[str, FileLock]:
    """A new empty file that is locked; its path.

    Who cleans up removes temporary files that nobody has locked: those of the dead.
    """
    while True:
        path = os.path.join(directory, temporary_name(name))
        lock = FileLock(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        if lock.try_lock() is not False and lock.is_in_place():
            return path, lock
        lock.close()  # who cleans up came between the two, and removes it


def _put_in_place(draft: str, path: str) -> str | None:
    """Makes a finished directory visible at `path`; where what it replaced is now, if anything.

    Where the kernel can exchange two names there is no moment without a whole directory at
    `path`. Elsewhere the old one is set aside first; after a crash in between, the next start and
    the next save bring it back (`clean_up`).
    """
    directory = directory_of(path)
    replaced: str | None = draft
    if not os.path.lexists(path):  # no other writer can come between: we hold the lock
        os.rename(draft, path)
        replaced = None
    elif not exchange(draft, path):
        # Killed between the two, the name by which it was set aside says where it belongs.
        replaced = os.path.join(directory, aside_name(os.path.basename(path)))
        os.rename(path, replaced)
        try:
            os.rename(draft, path)
        except BaseException:
            os.rename(replaced, path)
            raise
    _flush(directory)
    return replaced


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


@final
class FileLock(Lock):
    """A file that is open, and locked as far as the file system has locks.

    In a child forked since it does nothing: the lock stays with its parent. For an exclusive lock
    NFS wants the file open for writing.
    """

    def __init__(self, path: str, flags: int) -> None:
        self.descriptor = open_own(path, flags)
        self._path = path
        _held.add(self.descriptor)

    def try_lock(self, shared: bool = False) -> bool | None:
        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(self.descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _NO_LOCKS_HERE:
                return None
            raise
        return True

    def is_in_place(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def read(self, num_bytes: int) -> bytes:
        return os.pread(self.descriptor, num_bytes, 0)

    def write(self, content: bytes) -> None:
        if self.descriptor in _held:
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, content, 0)

    def close(self) -> None:
        if self.descriptor in _held:
            _held.remove(self.descriptor)
            # A child just forked may share the descriptor: closing ours would not unlock it.
            with suppress(OSError):
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)


def _let_go_in_a_forked_child() -> None:
    # A child that outlives us must not keep our locks. They stay with us: it closes its copies.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_a_forked_child)
