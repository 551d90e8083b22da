"""Where a path leads: into a directory of this machine, or behind a URL.

A path with `://` in it is a URL that fsspec understands; every other one is a path of the operating
system. Both have parts separated by slashes.
"""

from __future__ import annotations

import os
import re

from .errors import CheckpointError
from .local import LocalCommitter, LocalFiles
from .names import MANIFEST, checkpoint_name, directory_of, step_of
from .remote import RemoteCommitter, RemoteFiles
from .storage import ByteStore, Committer

_SHORTENED_URL = re.compile(r"[a-z][a-z0-9+]+:/(?!/)")
_LOCAL, _LOCAL_COMMITTER = LocalFiles(), LocalCommitter()
_REMOTE, _REMOTE_COMMITTER = RemoteFiles(), RemoteCommitter()


def store_of(path: str) -> ByteStore:
    return _REMOTE if _is_url(path) else _LOCAL


def committer_of(path: str) -> Committer:
    return _REMOTE_COMMITTER if _is_url(path) else _LOCAL_COMMITTER


def _is_url(path: str) -> bool:
    if _SHORTENED_URL.match(path):
        raise CheckpointError(
            f"'{path}' looks like a URL that pathlib has shortened; pass it as a string"
        )
    return "://" in path


def tidy(path: str | os.PathLike[str]) -> str:
    """A path without needless parts, as a string."""
    text = os.fspath(path)
    return text.rstrip("/") if "://" in text else os.path.normpath(text)


def exists(path: str) -> bool:
    """Whether there is a file or directory. An OSError is no "no": that would begin at step 0."""
    try:
        store_of(path).size(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def steps_in(model_dir: str) -> list[int]:
    """The steps of all directories named like a checkpoint, ascending, whole or not."""
    steps = map(step_of, store_of(model_dir).names(model_dir))
    return sorted(step for step in steps if step is not None)


def no_checkpoint(path: str) -> str:
    """What to say of a path at which there is no checkpoint."""
    inside = _names_in(path)
    if inside:
        return (
            f"'{path}' is a directory of checkpoints ({inside}), not a checkpoint: "
            f"pass one of them, or latest_checkpoint('{path}')"
        )
    parent = directory_of(path)
    beside = _names_in(parent) or "no checkpoints"
    reason = f"has no {MANIFEST}" if exists(path) else "does not exist"
    return f"'{path}' is no checkpoint: it {reason}; '{parent}' holds {beside}"


def _names_in(directory: str) -> str:
    try:
        steps = steps_in(directory)
    except OSError:
        return ""
    names = [checkpoint_name(step) for step in steps]
    return ", ".join(names if len(names) <= 6 else [*names[:2], "...", *names[-3:]])
