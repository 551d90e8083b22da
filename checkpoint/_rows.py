"""Rows of tensors, for who holds only a part of a model: a parameter server, say."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping

import numpy as np

from ._lease import lease
from ._read import load


def read_slices(
    path: str | os.PathLike[str], rows: Mapping[str, tuple[int, int] | None]
) -> dict[str, np.ndarray]:
    """Reads of each tensor the rows that are asked for, and little else, under a lease.

    It does not matter how many writers saved it, and in which slices.

    Args:
        path: of a checkpoint.
        rows: tensor name to (start, stop) along its first axis; None is the whole tensor.

    Returns:
        Name to a new, writable array.

    Raises:
        CheckpointError: a tensor is not there, or damaged.
        ValueError: rows that a tensor does not have.
    """
    with lease(path) as leased:
        reader = load(leased)
        shapes = {name: reader.shape_of(name) for name in rows}
        regions = {name: _region(name, given, shapes[name]) for name, given in rows.items()}
        return {name: reader.read(name, region) for name, region in regions.items()}


def _region(
    name: str, rows: tuple[int, int] | None, shape: tuple[int, ...]
) -> slice | tuple[slice, ...]:
    if rows is None:
        return ()
    start, stop = map(operator.index, rows)
    if not shape or not 0 <= start <= stop <= shape[0]:
        raise ValueError(
            f"rows {start} to {stop} of tensor '{name}' are asked for, whose shape is {shape}"
        )
    return slice(start, stop)
