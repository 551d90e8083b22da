"""`CheckpointShards`: what a parameter server reads from checkpoints, and writes to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from .. import checkpoint


@final
class CheckpointShards:
    """Reads rows of variables, and writes one shard of each checkpoint.

    Args:
        num_writers: How many tasks write a shard: the chief and all parameter servers.
    """

    def __init__(self, num_writers: int) -> None:
        self._num_writers = num_writers

    def read(self, path: str, name: str, start: int, stop: int) -> np.ndarray:
        """Rows of a variable of a checkpoint; a scalar as it is.

        Raises:
            ValueError: It is not there, or damaged.
        """
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
        """Write this server's shard of an unfinished checkpoint; a report for who commits it."""
        arrays: dict[str, list[checkpoint.TensorSlice]] = {}
        for name, shape, start, _, array in slices:
            first = (start, *(0,) * (len(shape) - 1)) if shape else ()
            part = checkpoint.TensorSlice(array, start=first, full_shape=shape)
            arrays.setdefault(name, []).append(part)
        return checkpoint.write_shard(path, shard_index, self._num_writers, arrays)
