"""Saving: written beside, flushed, made visible by one rename."""

from __future__ import annotations

import logging
import os
import time
import zlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import SupportsIndex, cast

import numpy as np
from pydantic import JsonValue

from ._arguments import checked_step, plain_arrays, plain_state
from ._directory import clean_up, history_of
from ._errors import CheckpointError, explained
from ._files import delete, flush, make_directory, only_writer, put_in_place, remove, write_durably
from ._manifest import DType, Manifest, ShardEntry, TensorEntry, format_manifest
from ._names import MANIFEST, checkpoint_name, shard_name, temporary_name
from ._retention import Saved, checkpoints_to_delete
from ._shard import header_crc32
from ._state_file import write_state

_log = logging.getLogger("paceline")


def save(
    model_dir: str | os.PathLike[str],
    step: SupportsIndex,
    arrays: Mapping[str, np.ndarray | np.generic],
    *,
    state: Mapping[str, object] | None = None,
    keep_max: int | None = 5,
) -> str:
    """Saves a checkpoint `model.ckpt-<step>` and deletes the oldest ones beyond `keep_max`.

    Whoever looks sees the directory as it was before or as it is after, also if the process is
    killed at any instant. Blocks until all is on disk; a second save into the same directory
    (from any thread or process) waits for the first. Saving a step again replaces it.

    Args:
        model_dir: directory of the checkpoints; created if missing.
        step: global step, at least 0.
        arrays: name to array of dtype bool, (u)int8-64 or float16-64, any shape and layout.
            They must not change during the call. Names may hold slashes.
        state: small JSON to keep with the arrays: input iterators, random generators.
        keep_max: how many checkpoints remain, this one included; None or 0 keeps all.

    Returns:
        The path of the checkpoint.

    Raises:
        CheckpointError: the directory cannot be written; what was there before is untouched.
        TypeError, ValueError: an argument that cannot be saved, before anything is written.
    """
    step, root = checked_step(step), os.fspath(model_dir)
    tensors, plain = plain_arrays(arrays), plain_state(state or {})
    checkpoints_to_delete((), keep_max)
    with explained(root, "save to"):
        make_directory(root)
        with only_writer(root) as alone:
            if alone:
                clean_up(root)
            path = _commit(root, step, tensors, plain)
            _keep(root, step, keep_max)
    return path


def _commit(
    root: str, step: int, arrays: Mapping[str, np.ndarray], state: dict[str, JsonValue]
) -> str:
    """Writes a whole checkpoint under a temporary name, then makes it visible."""
    name = checkpoint_name(step)
    path, temporary = os.path.join(root, name), os.path.join(root, temporary_name(name))
    os.mkdir(temporary)
    try:
        shard, tensors = _write_shard(temporary, shard_name(0, 1), arrays)
        manifest = Manifest(
            global_step=step,
            created=datetime.now(UTC).isoformat(),
            versions=_versions(),
            shards={shard_name(0, 1): shard},
            tensors=tensors,
            state=state,
        )
        write_durably(os.path.join(temporary, MANIFEST), format_manifest(manifest))
        flush(temporary)
        put_in_place(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    return path


def _write_shard(
    directory: str, shard: str, arrays: Mapping[str, np.ndarray]
) -> tuple[ShardEntry, dict[str, TensorEntry]]:
    """Writes and flushes one shard; its entry and those of its tensors for the manifest."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    path = os.path.join(directory, shard)
    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise CheckpointError(f"cannot write shard '{path}': {error}") from error
    # The library leaves the file readable for its owner alone and unflushed.
    os.chmod(path, os.stat(directory).st_mode & 0o666)
    flush(path)
    entries = {name: _entry(array, shard) for name, array in arrays.items()}
    return ShardEntry(size_bytes=os.path.getsize(path), header_crc32=header_crc32(path)), entries


def _entry(array: np.ndarray, shard: str) -> TensorEntry:
    dtype = cast(DType, array.dtype.name)
    return TensorEntry(shape=array.shape, dtype=dtype, shard=shard, crc32=zlib.crc32(array.data))


def _versions() -> dict[str, str]:
    import importlib.metadata  # slow to import, and needed by savers only

    try:
        own = importlib.metadata.version("paceline")
    except importlib.metadata.PackageNotFoundError:
        own = "source tree"
    return {"paceline": own, "numpy": np.__version__}


def _keep(root: str, step: int, keep_max: int | None) -> None:
    """Lists the survivors in the state file, then deletes the others.

    In this order nobody is ever sent to a checkpoint that is gone; what a kill leaves undeleted
    is found in the directory and deleted by the next save.
    """
    others = [saved for saved in history_of(root) if saved.step != step]
    # A clock that went back must not make the newest look old.
    now = max([time.time(), *(saved.time_secs for saved in others)])
    history = [*others, Saved(step, now)]
    doomed = checkpoints_to_delete(history, keep_max)
    write_state(root, history[len(doomed) :])
    for saved in doomed:
        path = os.path.join(root, checkpoint_name(saved.step))
        try:
            delete(path)
        except OSError as error:
            _log.warning("cannot delete the old checkpoint '%s': %s", path, error)
