"""What a place for checkpoints can do: keep bytes (`ByteStore`), and commit (`Committer`).

A directory of this machine and an object store differ in these two and in nothing else. All
methods raise OSError where something cannot be done, FileNotFoundError where nothing is there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np


class Lock(ABC):
    """A file that is open, and locked as far as there are locks."""

    @abstractmethod
    def try_lock(self, shared: bool = False) -> bool | None:
        """Whether the lock is held now; None where there are no locks. Does not wait."""

    @abstractmethod
    def is_in_place(self) -> bool:
        """Whether the path still leads to this file."""

    @abstractmethod
    def read(self, num_bytes: int) -> bytes:
        """The begin of the file."""

    @abstractmethod
    def write(self, content: bytes) -> None:
        """Replaces what is in the file."""

    @abstractmethod
    def close(self) -> None:
        """Gives the lock back; a second time it does nothing."""


class OpenFile(Protocol):
    """A file to be read by the byte range, from several threads."""

    @property
    def request_bytes(self) -> int:
        """How much to ask for at a time: where each request takes long, much."""

    def read_into(self, view: np.ndarray, offset: int) -> int:
        """Reads bytes from `offset` on into `view`; how many, 0 at the end of the file."""


class ByteStore(ABC):
    """Files by path."""

    @abstractmethod
    def names(self, path: str) -> list[str]:
        """What is in a directory; nothing in one that does not exist."""

    @abstractmethod
    def size(self, path: str) -> int:
        """The size of a file in bytes; of a directory any number."""

    @abstractmethod
    def read(self, path: str, max_bytes: int) -> bytes:
        """All of a small file; a ValueError where it is larger than `max_bytes`."""

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


class Committer(ABC):
    """How shards and a manifest become a checkpoint that readers see whole or not at all."""

    @abstractmethod
    def lock(self, path: str, flags: int) -> Lock:
        """Opens a file, to be locked; `flags` are those of `os.open`."""

    @abstractmethod
    def try_to_write(self, path: str) -> None:
        """Raises what a save into that directory would meet."""

    @abstractmethod
    def make_draft(self, path: str) -> str:
        """Begins what is to be the checkpoint at `path`; where its writers put their shards."""

    @abstractmethod
    def shard_path(self, draft: str, shard: str) -> str:
        """Where a shard of a draft goes; the last part of it is its name in the manifest."""

    @abstractmethod
    def file_path(self, draft: str, name: str) -> str:
        """The path of another file of a draft, which is called `name` in the manifest."""

    @abstractmethod
    def staged(self, shard_path: str) -> AbstractContextManager[str]:
        """The path of a local file to write to; durably at its place after the block."""

    @abstractmethod
    def commit(self, draft: str, path: str, manifest: str, shards: Sequence[str]) -> list[str]:
        """Makes a draft visible at `path` in one step; the paths of what is to be removed now."""

    @abstractmethod
    def abandon(self, draft: str) -> None:
        """Removes a draft."""

    @abstractmethod
    def is_committed(self, path: str) -> bool:
        """Whether something was committed at `path`, damaged or not."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Takes a checkpoint out of sight in one step, then removes it."""
