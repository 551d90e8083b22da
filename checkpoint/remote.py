"""Checkpoints behind a URL: what is uploaded becomes a checkpoint when its manifest is there.

Object stores have no directories, no renames and no locks, but they replace one object in one
step. So the manifest is uploaded last, and its presence is the commit. The names of shards are
never used twice: a checkpoint that replaces one of the same step is uploaded beside it, and the new
manifest names the new shards.
"""

from __future__ import annotations

import errno
import os
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, final

import numpy as np

from ..observe import require_size
from .errors import CheckpointError
from .names import MANIFEST, directory_of, temporary_name
from .storage import ByteStore, Committer, Lock, OpenFile


@final
class _NoLock(Lock):
    """Where a lock would be; object stores have none."""

    def try_lock(self, shared: bool = False) -> None:
        return None

    def is_in_place(self) -> bool:
        return True

    def read(self, num_bytes: int) -> bytes:
        return b""

    def write(self, content: bytes) -> None: ...

    def close(self) -> None:
        """Nothing is open."""


@final
class _OpenFile:
    request_bytes = 64 << 20

    def __init__(self, path: str) -> None:
        self._path = path

    def read_into(self, view: np.ndarray, offset: int) -> int:
        with _at(self._path) as (fs, inside):
            found = fs.cat_file(inside, start=offset, end=offset + len(view))
        view[: len(found)] = np.frombuffer(found, np.uint8)
        return len(found)


@contextmanager
def _at(url: str) -> Iterator[tuple[Any, str]]:
    """The fsspec file system that a URL leads into, and the path in it.

    Whatever the protocol's own package raises becomes an OSError: many have errors of their own,
    which nobody else knows.
    """
    try:
        from fsspec.core import url_to_fs

        fs, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise CheckpointError(
            f"cannot reach '{url}': {error}; pip install 'paceline[remote]' brings fsspec, and "
            f"most protocols want a package of their own (s3fs, gcsfs, adlfs)"
        ) from error
    except Exception as error:
        raise _as_os_error(error, url) from error
    try:
        fs.invalidate_cache()  # what others have written is to be seen
        yield fs, path
    except OSError:
        raise
    except Exception as error:
        raise _as_os_error(error, url) from error


def _as_os_error(error: Exception, url: str) -> OSError:
    return OSError(errno.EIO, f"{type(error).__name__}: {error}", url)


@final
class RemoteFiles(ByteStore):
    """The objects behind URLs."""

    def names(self, path: str) -> list[str]:
        try:
            with _at(path) as (fs, inside):
                found = fs.ls(inside, detail=False)
        except FileNotFoundError:
            return []
        return [posixpath.basename(name.rstrip("/")) for name in found]

    def size(self, path: str) -> int:
        with _at(path) as (fs, inside):
            return int(fs.info(inside)["size"] or 0)

    def read(self, path: str, max_bytes: int) -> bytes:
        with _at(path) as (fs, inside):
            content = bytes(fs.cat_file(inside, start=0, end=max_bytes + 1))
        require_size(len(content), max_bytes)
        return content

    @contextmanager
    def opened(self, path: str) -> Iterator[OpenFile]:
        yield _OpenFile(path)

    def replace(self, path: str, text: str) -> None:
        with _at(path) as (fs, inside):
            fs.pipe_file(inside, text.encode())

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError), _at(path) as (fs, inside):
            fs.rm(inside, recursive=True)

    def make_directory(self, path: str) -> None:
        with _at(path) as (fs, inside):
            fs.makedirs(inside, exist_ok=True)


_FILES = RemoteFiles()


@final
class RemoteCommitter(Committer):
    """A draft is the checkpoint's own directory and a nonce, which is in its shards' names."""

    def lock(self, path: str, flags: int) -> Lock:
        if not flags & os.O_CREAT:
            _FILES.size(path)  # raises FileNotFoundError, as opening it would
        return _NoLock()

    def try_to_write(self, path: str) -> None:
        probe = posixpath.join(path, temporary_name("probe"))
        _FILES.replace(probe, "")
        _FILES.remove(probe)

    def make_draft(self, path: str) -> str:
        _FILES.make_directory(path)
        return posixpath.join(path, os.urandom(4).hex())

    def shard_path(self, draft: str, shard: str) -> str:
        path, nonce = posixpath.split(draft)
        stem, suffix = posixpath.splitext(shard)
        return posixpath.join(path, f"{stem}-{nonce}{suffix}")

    def file_path(self, draft: str, name: str) -> str:
        return posixpath.join(directory_of(draft), name)

    @contextmanager
    def staged(self, shard_path: str) -> Iterator[str]:
        with tempfile.TemporaryDirectory(prefix="paceline-upload-") as directory:
            scratch = os.path.join(directory, posixpath.basename(shard_path))
            yield scratch
            with _at(shard_path) as (fs, inside):
                fs.put_file(scratch, inside)

    def commit(self, draft: str, path: str, manifest: str, shards: Sequence[str]) -> list[str]:
        # This one request is the commit: the shards are there, and the old manifest names others.
        _FILES.replace(posixpath.join(path, MANIFEST), manifest)
        kept = (MANIFEST, *shards)
        return [posixpath.join(path, name) for name in _FILES.names(path) if name not in kept]

    def abandon(self, draft: str) -> None:
        path, nonce = posixpath.split(draft)
        for name in _FILES.names(path):
            if f"-{nonce}." in name:
                _FILES.remove(posixpath.join(path, name))

    def is_committed(self, path: str) -> bool:
        # Not fs.exists(): that takes whatever goes wrong for an answer, and it is "no".
        try:
            _FILES.size(posixpath.join(path, MANIFEST))
        except FileNotFoundError:
            return False
        return True

    def delete(self, path: str) -> None:
        # Without its manifest it is no checkpoint; what a kill leaves of it goes with a later save.
        _FILES.remove(posixpath.join(path, MANIFEST))
        _FILES.remove(path)
