"""Checkpoints in a directory of this machine: written beside, made visible by one rename."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, final

import numpy as np

from . import _files as files
from ._locks import FileLock
from ._names import MANIFEST, temporary_name
from ._storage import Lock, OpenFile, Storage


@final
class _OpenFile:
    request_bytes = 1 << 20  # what was read is still in the cache when its checksum is computed

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_into(self, view: np.ndarray, offset: int) -> int:
        return os.preadv(self._descriptor, [view.data], offset)


@final
class _LocalStorage(Storage):
    def names(self, path: str) -> list[str]:
        try:
            return os.listdir(path)
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def size(self, path: str) -> int:
        return os.path.getsize(path)

    def modified_secs(self, path: str) -> float:
        return os.path.getmtime(path)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    @contextmanager
    def opened(self, path: str) -> Iterator[OpenFile]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            yield _OpenFile(descriptor)
        finally:
            os.close(descriptor)

    def replace(self, path: str, text: str) -> None:
        files.replace_durably(path, text)

    def remove(self, path: str) -> None:
        files.remove(path)

    def make_directory(self, path: str) -> None:
        files.make_directory(path)

    def try_to_write(self, path: str) -> None:
        probe = os.path.join(path, temporary_name("probe"))
        os.mkdir(probe)
        os.rmdir(probe)

    def lock(self, path: str, flags: int) -> Lock:
        return FileLock(path, flags)

    def make_draft(self, path: str) -> str:
        directory, name = os.path.split(path)
        draft = os.path.join(directory, temporary_name(name))
        os.mkdir(draft)
        return draft

    def shard_path(self, draft: str, shard: str) -> str:
        return os.path.join(draft, shard)

    @contextmanager
    def scratch(self, shard_path: str) -> Iterator[str]:
        yield shard_path

    def put(self, scratch: str, shard_path: str) -> None:
        files.flush(scratch)

    def abandon(self, draft: str) -> None:
        files.remove(draft)

    def commit(self, draft: str, path: str, manifest: str, shards: Sequence[str]) -> list[str]:
        files.write_durably(os.path.join(draft, MANIFEST), manifest)
        files.flush(draft)
        replaced = files.put_in_place(draft, path)
        return [] if replaced is None else [replaced]

    def is_visible(self, path: str) -> bool:
        return os.path.exists(path)

    def delete(self, path: str) -> None:
        files.delete(path)

    def left_overs(self, path: str, before_step: int) -> list[str]:
        return []


LOCAL: Final = _LocalStorage()
