"""`CheckpointShards`: what a parameter server reads from checkpoints, and writes to them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import final

import numpy as np

from .. import checkpoint


@final
class CheckpointShards:
    """Reads rows of variables, and writes one shard of each checkpoint, under one directory only.

    The paths come from other tasks, over a network: none of them leads anywhere else.

    Args:
        num_writers: How many tasks write a shard: the chief and all parameter servers.
        model_dir: Where all checkpoints are; a directory or a URL.
    """

    def __init__(self, num_writers: int, model_dir: str) -> None:
        self._num_writers = num_writers
        self._model_dir = model_dir

    def read(self, path: str, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of a variable of a checkpoint; a scalar as it is.

        Raises:
            ValueError: It is not there, or damaged, or lies outside of `model_dir`.
        """
        path = confined(path, self._model_dir)
        try:
            is_scalar = checkpoint.load(path).shapes.get(name) == ()
            rows = None if is_scalar else (start, stop)
            return checkpoint.read_slices(path, {name: rows})[name]
        except (checkpoint.CheckpointError, KeyError) as error:
            raise ValueError(f"{name!r} cannot be read from checkpoint {path}: {error}") from error

    def write(
        self,
        path: str,
        shard_index: int,
        slices: Sequence[tuple[str, tuple[int, ...], int, int, np.ndarray]],
    ) -> str:
        """Write this server's shard of an unfinished checkpoint; a report for who commits it.

        Raises:
            ValueError: It lies outside of `model_dir`.
        """
        path = confined(path, self._model_dir)
        arrays: dict[str, list[checkpoint.TensorSlice]] = {}
        for name, shape, start, _, array in slices:
            first = (start, *(0,) * (len(shape) - 1)) if shape else ()
            part = checkpoint.TensorSlice(array, start=first, full_shape=shape)
            arrays.setdefault(name, []).append(part)
        return checkpoint.write_shard(path, shard_index, self._num_writers, arrays)


def confined(path: str, root: str) -> str:
    """A path that lies under a directory or URL, free of symbolic links where it is of this host.

    Raises:
        ValueError: It lies elsewhere, or is the directory itself.
    """
    if "://" in root:
        inside = path.removeprefix(root.rstrip("/") + "/")
        parts = inside.split("/")
        # ":" would begin another URL within this one.
        is_inside = inside != path and ":" not in inside and not {"", ".", ".."} & set(parts)
    else:
        inside, root = os.path.realpath(path), os.path.realpath(root)
        is_inside = "://" not in path and inside != root and _is_under(inside, root)
        path = inside
    if not is_inside:
        raise ValueError(
            f"path must lie under {root}, the model_dir of this parameter server; it is {path}. "
            f"Give all tasks the same model_dir"
        )
    return path


def _is_under(path: str, root: str) -> bool:
    return os.path.commonpath([path, root]) == root
