"""Opening files of paceline's own in directories that others may have prepared.

A `model_dir` may be an unpacked archive or a shared directory. So a file is opened without waiting
(a FIFO would block for ever), it must be a regular file (`/dev/zero` has no end), and its size is
known before memory is taken. Nothing is written through a symbolic link, which may lead to any file
of the user's. Reading through a link is allowed: caches of models keep their files that way.
"""

from __future__ import annotations

import errno
import os
import stat


def open_own(path: str, flags: int) -> int:
    """Open a regular file; a descriptor, which is the caller's to close.

    Args:
        path: The file.
        flags: Those of `os.open`.

    Raises:
        OSError: It is no regular file, or is to be written to and is a symbolic link.
    """
    if flags & os.O_ACCMODE != os.O_RDONLY:
        flags |= os.O_NOFOLLOW
    descriptor = os.open(path, flags | os.O_NONBLOCK, 0o666)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        code = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(code, "it is not a regular file", path)
    return descriptor


def read_own(path: str, max_bytes: int) -> bytes:
    """All that is in a regular file when it is opened.

    Raises:
        OSError: It cannot be read, or is no regular file.
        ValueError: It is larger than `max_bytes`.
    """
    with open(open_own(path, os.O_RDONLY), "rb") as file:
        num_bytes = os.fstat(file.fileno()).st_size
        require_size(num_bytes, max_bytes)
        return file.read(num_bytes)  # and no more, where it grows


def require_size(num_bytes: int, max_bytes: int) -> None:
    """Refuse to read a file as a whole that is larger than any of its kind.

    Raises:
        ValueError: It is.
    """
    if num_bytes > max_bytes:
        raise ValueError(f"it has {num_bytes:,} bytes and may have at most {max_bytes:,}")
