"""`Storage`: every way in which a directory of this machine and an object store differ.

A path with `://` in it is a URL that fsspec understands; every other one is a path of the operating
system. Both have parts separated by slashes.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np

from ._errors import CheckpointError
from ._names import step_of

_SHORTENED_URL = re.compile(r"[a-z][a-z0-9+]+:/(?!/)")


class Lock(Protocol):
    """A file that is open, and locked as far as there are locks."""

    def try_lock(self, shared: bool = False) -> bool | None:
        """Whether the lock is held now; None where there are no locks. Does not wait."""

    def is_in_place(self) -> bool:
        """Whether the path still leads to this file."""

    def read(self, num_bytes: int) -> bytes:
        """The begin of the file."""

    def write(self, content: bytes) -> None:
        """Replaces what is in the file."""

    def close(self) -> None:
        """Gives the lock back."""


class OpenFile(Protocol):
    """A file to be read by the byte range, from several threads."""

    @property
    def request_bytes(self) -> int:
        """How much to ask for at a time: where each request takes long, much."""

    def read_into(self, view: np.ndarray, offset: int) -> int:
        """Reads bytes from `offset` on into `view`; how many, 0 at the end of the file."""


class Storage(ABC):
    """Where checkpoints are kept, and how one of them is committed there.

    All raise OSError where something cannot be done, FileNotFoundError where nothing is there.
    """

    @abstractmethod
    def names(self, path: str) -> list[str]:
        """What is in a directory; nothing in one that does not exist."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether there is a file or directory."""

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes."""

    @abstractmethod
    def modified_secs(self, path: str) -> float:
        """When a file was written, seconds since the epoch."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """All of a small file."""

    @abstractmethod
    def opened(self, path: str) -> AbstractContextManager[OpenFile]:
        """A large file."""

    @abstractmethod
    def replace(self, path: str, text: str) -> None:
        """Replaces a small file durably and in one step: readers see the old text or the new."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Removes a file or a directory with all that is in it; what is missing is no error."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Creates a directory where it is missing."""

    @abstractmethod
    def try_to_write(self, path: str) -> None:
        """Raises what a save into that directory would meet."""

    @abstractmethod
    def lock(self, path: str, flags: int) -> Lock:
        """Opens a file, to be locked; `flags` are those of `os.open`."""

    @abstractmethod
    def make_draft(self, path: str) -> str:
        """Begins what is to be the checkpoint at `path`; where its writers put their shards."""

    @abstractmethod
    def shard_path(self, draft: str, shard: str) -> str:
        """Where a shard of a draft goes; the last part of it is its name in the manifest."""

    @abstractmethod
    def scratch(self, shard_path: str) -> AbstractContextManager[str]:
        """The path of the local file to write a shard to before it is `put` at its place."""

    @abstractmethod
    def put(self, scratch: str, shard_path: str) -> None:
        """Blocks until what was written to the local file is durably at its place."""

    @abstractmethod
    def abandon(self, draft: str) -> None:
        """Removes a draft."""

    @abstractmethod
    def commit(self, draft: str, path: str, manifest: str, shards: Sequence[str]) -> list[str]:
        """Makes a draft visible at `path` in one step, with the text of its manifest.

        Args:
            shards: what it is made of.

        Returns:
            The paths of what it replaced, to be removed.
        """

    @abstractmethod
    def is_visible(self, path: str) -> bool:
        """Whether something was committed at `path`, damaged or not."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Takes a checkpoint out of sight in one step, then removes it."""

    @abstractmethod
    def left_overs(self, path: str, before_step: int) -> list[str]:
        """Paths of what interrupted saves of earlier steps left, where committed ones would be."""


def is_url(path: str) -> bool:
    """Whether a path is one that fsspec understands."""
    return "://" in path


def storage_of(path: str) -> Storage:
    """The storage that a path leads into."""
    if _SHORTENED_URL.match(path):
        raise CheckpointError(
            f"'{path}' looks like a URL that pathlib has shortened; pass it as a string"
        )
    if is_url(path):
        from ._remote import REMOTE

        return REMOTE
    from ._local import LOCAL

    return LOCAL


def tidy(path: str | os.PathLike[str]) -> str:
    """A path without needless parts, as a string."""
    text = os.fspath(path)
    return text.rstrip("/") if is_url(text) else os.path.normpath(text)


def steps_in(model_dir: str) -> list[int]:
    """The steps of all directories named like a checkpoint, ascending, whole or not.

    Raises:
        OSError: model_dir cannot be listed (a missing one counts as empty).
    """
    steps = map(step_of, storage_of(model_dir).names(model_dir))
    return sorted(step for step in steps if step is not None)
