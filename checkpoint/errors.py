"""The one error of this package, and how operating system errors become it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager

_FIXES = {
    errno.EACCES: "choose a directory that you may write to, or change its permissions",
    errno.EPERM: "choose a directory that you may write to, or change its permissions",
    errno.EROFS: "the file system is read-only: choose a directory on another one",
    errno.EEXIST: "a file is in the way: remove it or choose another directory",
    errno.ENOTDIR: "a file is in the way: remove it or choose another directory",
    errno.ELOOP: "a symbolic link is where paceline keeps a file of its own: remove it",
    errno.EMFILE: "raise the limit (ulimit -n), or keep fewer files and connections open",
    errno.ENFILE: "the whole machine has too many files open: close some, and try again",
    errno.ENOSPC: "the disk is full: free some space or keep fewer checkpoints",
    errno.EFBIG: "the system allows no file so large: raise the limit (ulimit -f)",
    errno.EIO: "the disk or the store has failed: look at it, and try again",
    errno.EDQUOT: "the disk quota is used up: free some space or keep fewer checkpoints",
}


class CheckpointError(Exception):
    """A checkpoint cannot be written, found or trusted; the message names the file and the fix."""


@contextmanager
def explained(path: str, action: str) -> Iterator[None]:
    """Turns an OSError of the block into a CheckpointError that says what cannot be done.

    Args:
        path: The file or directory that the caller was given.
        action: What the block does to it, such as "save to model_dir".
    """
    try:
        yield
    except OSError as error:
        fix = _FIXES.get(error.errno or 0, "check that the path is right, or choose another one")
        place = f" at '{error.filename}'" if error.filename else ""
        raise CheckpointError(
            f"cannot {action} '{path}': {error.strerror or error}{place}; {fix}"
        ) from error
