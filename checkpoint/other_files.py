"""The other files of an export, which its manifest lists: written, verified and read."""

from __future__ import annotations

import io
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import numpy as np

from .errors import CheckpointError
from .manifest import FileEntry, Manifest, read_manifest
from .names import directory_of
from .places import store_of

_BLOCK_BYTES: Final = 1 << 20


def write_file(path: str, content: bytes | str | os.PathLike[str]) -> FileEntry:
    """Write a new file, which is the caller's to flush.

    Args:
        path: In a directory of this machine; parents are made where they are missing.
        content: What it holds, or the path of the file that it is a copy of.
    """
    os.makedirs(directory_of(path), exist_ok=True)
    num_bytes = crc32 = 0
    source = io.BytesIO(content) if isinstance(content, bytes) else open(content, "rb")  # noqa: SIM115
    with source, open(path, "wb") as file:
        while block := source.read(_BLOCK_BYTES):
            file.write(block)
            num_bytes, crc32 = num_bytes + len(block), zlib.crc32(block, crc32)
    return FileEntry(size_bytes=num_bytes, crc32=crc32)


def check_files(directory: str, manifest: Manifest) -> None:
    """Refuse files that are missing or differ from what the manifest says of them."""
    for name, entry in manifest.files.items():
        path = os.path.join(directory, name)
        with _damage_named(path):
            _check_size(entry, store_of(path).size(path))
            crc32, block = 0, np.empty(_BLOCK_BYTES, np.uint8)
            with store_of(path).opened(path) as file:
                for offset in range(0, entry.size_bytes, _BLOCK_BYTES):
                    count = file.read_into(block[: entry.size_bytes - offset], offset)
                    crc32 = zlib.crc32(block[:count].data, crc32)
            _check_crc(entry, crc32)


def read_file(export: str | os.PathLike[str], name: str, max_bytes: int) -> bytes:
    """The content of one of an export's other files, verified where the manifest lists it.

    Raises:
        CheckpointError: it is missing, larger than `max_bytes`, damaged, or cannot be read.
    """
    path = os.path.join(os.fspath(export), name)
    entry = read_manifest(os.fspath(export)).files.get(name)
    with _damage_named(path):
        content = store_of(path).read(path, max_bytes)
        if entry is not None:
            _check_size(entry, len(content))
            _check_crc(entry, zlib.crc32(content))
        return content


def _check_size(entry: FileEntry, num_bytes: int) -> None:
    if num_bytes != entry.size_bytes:
        raise ValueError(f"it has {num_bytes} bytes and the manifest says {entry.size_bytes}")


def _check_crc(entry: FileEntry, crc32: int) -> None:
    if crc32 != entry.crc32:
        raise ValueError("it does not fit its checksum in the manifest")


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise CheckpointError(f"cannot read '{path}': it does not exist") from error
    except OSError as error:
        raise CheckpointError(f"cannot read '{path}': {error.strerror or error}") from error
    except ValueError as error:
        raise CheckpointError(f"cannot read '{path}': {error}") from error
