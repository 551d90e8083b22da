"""Writing: beside, flushed, made visible by one rename.

A checkpoint begins as a draft, a directory under a temporary name. Each writer puts its shard into
it and reports what it wrote; one of them, who also made the draft, commits it. A save by one
process is the same with one writer.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import cast

import numpy as np
from pydantic import JsonValue, ValidationError

from ._arguments import Arrays, Piece, pieces_of, plain
from ._background import Background
from ._errors import CheckpointError, explained
from ._manifest import (
    DType,
    Manifest,
    Part,
    ShardEntry,
    SliceEntry,
    TensorEntry,
    first_problem,
    format_manifest,
)
from ._names import checkpoint_name, shard_name
from ._shard import block_crcs, read_header, write_shard_file
from ._storage import storage_of


def write_shard(draft: str | os.PathLike[str], index: int, count: int, arrays: Arrays) -> str:
    """Writes one writer's shard of a checkpoint that several write together. Blocks.

    Args:
        draft: the directory that the committing process was given by its `Saver`; on a file
            system that both see.
        index, count: which writer this is (0 is the one that commits) and of how many.
        arrays: what this writer has: whole tensors, or lists of `TensorSlice`.

    Returns:
        A report, to be sent to the committing process.

    Raises:
        CheckpointError: it cannot be written.
        TypeError, ValueError: an argument that cannot be saved, before anything is written.
    """
    if not 0 <= index < count:
        raise ValueError(f"index must be from 0 to count - 1; got index={index}, count={count}")
    pieces = {key: plain(piece) for key, piece in pieces_of(arrays).items()}
    with explained(os.fspath(draft), "write to"):
        part = write_part(os.fspath(draft), shard_name(index, count), pieces)
    return part.model_dump_json()


def parse_report(report: str) -> Part:
    """Reads what `write_shard` returned, perhaps in another process.

    Raises:
        CheckpointError: it is something else.
    """
    try:
        return Part.model_validate_json(report)
    except ValidationError as error:
        raise CheckpointError(
            f"a report of a written shard is odd: {first_problem(error)}"
        ) from error


def make_draft(root: str, step: int) -> str:
    """A new draft of the checkpoint of `step`; its path."""
    return storage_of(root).make_draft(os.path.join(root, checkpoint_name(step)))


def write_part(draft: str, shard: str, pieces: Mapping[str, Piece]) -> Part:
    """Writes and flushes one shard of row-major, little-endian pieces."""
    storage = storage_of(draft)
    path = storage.shard_path(draft, shard)
    shard = os.path.basename(path)
    arrays = {key: piece.array for key, piece in pieces.items()}
    with storage.scratch(path) as scratch:
        write_shard_file(scratch, arrays)
        header, size_bytes = read_header(scratch), os.path.getsize(scratch)
        # While the disk works the processor is free: no more than one core is taken from the run.
        with Background(lambda: {key: block_crcs(array) for key, array in arrays.items()}) as crcs:
            storage.put(scratch, path)
    entry = ShardEntry(size_bytes=size_bytes, header_crc32=header.crc32)
    tensors: dict[str, TensorEntry] = {}
    for key, piece in pieces.items():
        stored = SliceEntry(
            start=piece.start,
            shape=piece.array.shape,
            shard=shard,
            offset_bytes=header.places[key].offset_bytes,
            crc32=crcs.result()[key],
        )
        dtype = cast(DType, piece.array.dtype.name)
        one = TensorEntry(shape=piece.full_shape, dtype=dtype, slices=(stored,))
        tensors[piece.name] = _merged(piece.name, tensors.get(piece.name), one)
    return Part(shard=shard, entry=entry, tensors=tensors)


def commit(
    root: str,
    step: int,
    draft: str,
    parts: Sequence[Part],
    state: dict[str, JsonValue],
    time_secs: float,
) -> list[str]:
    """Makes a draft visible as the checkpoint of `step`, created at `time_secs` since the epoch.

    Returns:
        The paths of what it replaced, to be removed.

    Raises:
        CheckpointError: the parts do not make up a checkpoint.
    """
    storage = storage_of(draft)
    names = [shard_name(index, len(parts)) for index in range(len(parts))]
    paths = [storage.shard_path(draft, name) for name in names]
    if sorted(part.shard for part in parts) != [os.path.basename(path) for path in paths]:
        raise CheckpointError(
            f"step {step} cannot be committed: its {len(parts)} reports are of the shards "
            f"{', '.join(part.shard for part in parts)}; each writer reports once"
        )
    manifest = _manifest_of(step, parts, state, time_secs)
    for path in paths:
        size_bytes = manifest.shards[os.path.basename(path)].size_bytes
        if not storage.exists(path) or storage.size(path) != size_bytes:
            raise CheckpointError(
                f"shard '{path}' was reported as written with {size_bytes} bytes and is not "
                f"there so; model_dir must be on a file system that all writers share"
            )
    path = os.path.join(root, checkpoint_name(step))
    return storage.commit(draft, path, format_manifest(manifest), list(manifest.shards))


def _manifest_of(
    step: int, parts: Sequence[Part], state: dict[str, JsonValue], time_secs: float
) -> Manifest:
    tensors: dict[str, TensorEntry] = {}
    for part in parts:
        for name, entry in part.tensors.items():
            tensors[name] = _merged(name, tensors.get(name), entry)
    try:
        return Manifest(
            global_step=step,
            created=datetime.fromtimestamp(time_secs, UTC).isoformat(),
            versions=_versions(),
            shards={part.shard: part.entry for part in parts},
            tensors=tensors,
            state=state,
        )
    except ValidationError as error:
        raise CheckpointError(
            f"what was given for step {step} is no whole checkpoint: {first_problem(error)}"
        ) from error


def _merged(name: str, one: TensorEntry | None, other: TensorEntry) -> TensorEntry:
    if one is None:
        return other
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        raise CheckpointError(
            f"tensor '{name}' is given as {one.dtype} of shape {one.shape} and as {other.dtype} of "
            f"shape {other.shape}: its slices must agree"
        )
    return one.model_copy(update={"slices": one.slices + other.slices})


def _versions() -> dict[str, str]:
    import importlib.metadata  # slow to import, and needed by savers only

    try:
        own = importlib.metadata.version("paceline")
    except importlib.metadata.PackageNotFoundError:
        own = "source tree"
    python = ".".join(map(str, sys.version_info[:3]))
    return {"paceline": own, "numpy": np.__version__, "python": python}
