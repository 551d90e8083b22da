"""Reading a safetensors shard against its manifest."""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from ._errors import CheckpointError
from ._manifest import Manifest, TensorEntry

_LENGTH_BYTES = 8  # the format begins with the header's length, a little-endian unsigned integer


def header_crc32(path: str) -> int:
    """CRC-32 of a shard's header, the length before it included.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is shorter than its header.
    """
    with open(path, "rb") as file:
        start = file.read(_LENGTH_BYTES)
        header_bytes = int.from_bytes(start, "little")
        if header_bytes > os.fstat(file.fileno()).st_size - _LENGTH_BYTES:
            raise ValueError(f"it says that its header has {header_bytes} bytes, and is shorter")
        return zlib.crc32(file.read(header_bytes), zlib.crc32(start))


def check_shard_size(directory: str, shard: str, manifest: Manifest) -> None:
    """Refuses a shard that is missing or of another size than the manifest says."""
    path = os.path.join(directory, shard)
    with _damage_named(path):
        found, expected = os.path.getsize(path), manifest.shards[shard].size_bytes
        if found != expected:
            raise ValueError(f"it has {found} bytes and the manifest says {expected}")


def check_shard_header(directory: str, shard: str, manifest: Manifest) -> None:
    """Refuses a shard whose header is damaged or lists other tensors than the manifest."""
    path = os.path.join(directory, shard)
    with _damage_named(path):
        if header_crc32(path) != manifest.shards[shard].header_crc32:
            raise ValueError("its header does not fit the checksum in the manifest")
        with _opened(path) as file:
            found = set(file.keys())
    expected = {name for name, entry in manifest.tensors.items() if entry.shard == shard}
    if found != expected:
        odd = ", ".join(f"'{name}'" for name in sorted(found ^ expected)[:5])
        raise CheckpointError(f"'{path}' and the manifest list different tensors: {odd}")


def read_tensors(
    directory: str, shard: str, entries: Iterable[tuple[str, TensorEntry]]
) -> Iterator[tuple[str, np.ndarray]]:
    """Reads tensors of one shard, each verified; the arrays are new and writable."""
    path = os.path.join(directory, shard)
    with _damage_named(path), _opened(path) as file:
        for name, entry in entries:
            yield name, _read_tensor(file, name, entry)


def _read_tensor(file: Any, name: str, entry: TensorEntry) -> np.ndarray:
    # Asked before memory is taken: the header, not the manifest, decides how much that is.
    shape = tuple(file.get_slice(name).get_shape())
    if shape != entry.shape:
        raise ValueError(f"tensor '{name}' has shape {shape} and the manifest says {entry.shape}")
    array: np.ndarray = file.get_tensor(name)
    if array.dtype.name != entry.dtype:
        raise ValueError(
            f"tensor '{name}' has dtype {array.dtype} and the manifest says {entry.dtype}"
        )
    if zlib.crc32(array.data) != entry.crc32:
        raise ValueError(f"the bytes of tensor '{name}' do not fit its checksum in the manifest")
    return array


def _opened(path: str) -> Any:
    from safetensors import safe_open

    return safe_open(path, framework="numpy")


@contextmanager
def _damage_named(path: str) -> Iterator[None]:
    """Turns what can go wrong with a file into a CheckpointError that names it."""
    from safetensors import SafetensorError

    try:
        yield
    except FileNotFoundError as error:
        raise CheckpointError(f"shard '{path}' is missing") from error
    except OSError as error:
        raise CheckpointError(f"cannot read shard '{path}': {error.strerror or error}") from error
    except (ValueError, SafetensorError) as error:
        raise CheckpointError(f"shard '{path}' is damaged: {error}") from error
