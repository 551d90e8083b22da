"""Locks on files that end with the process that holds them, however it ends.

They are the kernel's (flock). A file made with O_EXCL would outlive a killed process, and whether
its process still lives can be guessed at best, on this host alone. On NFS the kernel makes byte
range locks of them, which hold between hosts.
"""

from __future__ import annotations

import errno
import fcntl
import os
from contextlib import suppress
from typing import Final, final

_NO_LOCKS_HERE: Final = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)
_held: set[int] = set()


def _let_go_in_a_forked_child() -> None:
    # A child that outlives us must not keep our locks. They stay with us: it closes its copies.
    for descriptor in _held:
        os.close(descriptor)
    _held.clear()


os.register_at_fork(after_in_child=_let_go_in_a_forked_child)


@final
class FileLock:
    """A file that is open, and locked as far as the file system has locks.

    Args:
        path: of the file.
        flags: how to open it. For an exclusive lock NFS wants it open for writing.

    Raises:
        OSError: it cannot be opened.
    """

    def __init__(self, path: str, flags: int) -> None:
        self.descriptor = os.open(path, flags, 0o666)
        self._path = path
        _held.add(self.descriptor)

    def try_lock(self, shared: bool = False) -> bool | None:
        """Whether the lock is held now; None on a file system without locks. Does not wait."""
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
        """Whether the path still leads to this file."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self.descriptor))
        except FileNotFoundError:
            return False

    def read(self, num_bytes: int) -> bytes:
        """The begin of the file."""
        return os.pread(self.descriptor, num_bytes, 0)

    def write(self, content: bytes) -> None:
        """Replaces what is in the file. In a child forked since, it does nothing."""
        if self.descriptor in _held:
            os.ftruncate(self.descriptor, 0)
            os.pwrite(self.descriptor, content, 0)

    def close(self) -> None:
        """Gives the lock back; a second time, or in a child forked since, it does nothing."""
        if self.descriptor in _held:
            _held.remove(self.descriptor)
            # A child just forked may share the descriptor: closing ours would not unlock it.
            with suppress(OSError):
                fcntl.flock(self.descriptor, fcntl.LOCK_UN)
            os.close(self.descriptor)
