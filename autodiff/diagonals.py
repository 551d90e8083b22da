"""Diagonals of matrices, as vectors and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from .indexing import getitem, place
from .reductions import sum
from .shapes import moveaxis, ravel
from .tensor import Tensor, lift
from .tensor_like import Array, implements


@implements(np.diagonal)
def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    x = lift(a)
    if x.data.ndim < 2:
        raise ValueError(f"a diagonal is that of at least two axes, not of shape {x.data.shape}")
    matrices = moveaxis(x, (axis1, axis2), (-2, -1))
    rows, columns = matrices.data.shape[-2:]
    start = max(-offset, 0)
    length = max(min(rows - start, columns - max(offset, 0)), 0)
    return getitem(matrices, (..., *_positions(length, offset, x.data)))


@implements(np.linalg.diagonal)
def linalg_diagonal(x: Any, *, offset: int = 0) -> Tensor:
    return diagonal(x, offset, -2, -1)


@implements(np.diag)
def diag(v: Any, k: int = 0) -> Tensor:
    """The matrix with this diagonal, or of a matrix its diagonal."""
    x = lift(v)
    if x.data.ndim == 2:
        return diagonal(x, k)
    if x.data.ndim != 1:
        raise ValueError(f"np.diag takes a vector or a matrix, not an array of {x.data.shape}")
    length = x.data.shape[0]
    size = length + abs(k)
    return place(x, _positions(length, k, x.data), (size, size))


@implements(np.diagflat)
def diagflat(v: Any, k: int = 0) -> Tensor:
    return diag(ravel(v), k)


@implements(np.trace)
def trace(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Tensor:
    return sum(diagonal(a, offset, axis1, axis2), -1)


@implements(np.linalg.trace)
def linalg_trace(x: Any, *, offset: int = 0) -> Tensor:
    return trace(x, offset, -2, -1)


def _positions(length: int, offset: int, like: Array) -> tuple[Array, Array]:
    """Rows and columns of the elements on a diagonal."""
    along = np.arange(length, like=like)
    return along + max(-offset, 0), along + max(offset, 0)
