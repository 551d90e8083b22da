"""Products of matrices and of stacks of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arithmetic import multiply, unbroadcast
from .shapes import ravel, reshape, transpose
from .tensor import Array, Tensor, implements, lift, lift_array, lift_together, record


@implements(np.matmul)
def matmul(x1: Any, x2: Any) -> Tensor:
    x1, x2 = lift_array(x1), lift_array(x2)
    a, b = x1.data, x2.data
    if b.ndim == 2 and a.ndim >= 2:
        return _times_matrix(x1, x2)

    def vjp(g: Array, outs: Any) -> Any:
        rows = a[None, :] if a.ndim == 1 else a
        columns = b[:, None] if b.ndim == 1 else b
        if b.ndim == 1:
            g = g[..., None]
        if a.ndim == 1:
            g = g[..., None, :]
        ga = gb = None
        if x1.requires_grad:
            ga = unbroadcast(product(g, _swapped(columns)), rows.shape).reshape(a.shape)
        if x2.requires_grad:
            gb = unbroadcast(product(_swapped(rows), g), columns.shape).reshape(b.shape)
        return ga, gb

    return record(product(a, b), (x1, x2), vjp)


def _times_matrix(x1: Tensor, x2: Tensor) -> Tensor:
    """The product with one matrix, as a single GEMM however many axes x1 has."""
    a, b = x1.data, x2.data
    rows = as_rows(a)

    def vjp(g: Array, outs: Any) -> Any:
        g = as_rows(g)
        ga = gb = None
        if x1.requires_grad:
            ga = product(g, b.T, outs[0] if a.ndim == 2 else None).reshape(a.shape)
        if x2.requires_grad:
            gb = product(rows.T, g, outs[1])
        return ga, gb

    y = product(rows, b)  # np.matmul of a stack would call GEMM once for each matrix in it
    return record(y if a.ndim == 2 else y.reshape(*a.shape[:-1], b.shape[1]), (x1, x2), vjp)


def as_rows(a: Array) -> Array:
    """The array as a matrix of its last axis by all the others."""
    return a if a.ndim == 2 else a.reshape(math.prod(a.shape[:-1]), a.shape[-1])


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """A matrix product, straight into `out` if there is one."""
    return np.matmul(a, b) if out is None else np.matmul(a, b, out=out)


def _swapped(a: Array) -> Array:
    return a.swapaxes(-1, -2)


@implements(np.dot)
def dot(a: Any, b: Any) -> Tensor:
    a, b = lift(a), lift(b)
    if np.ndim(a.data) == 0 or np.ndim(b.data) == 0:
        return multiply(a, b)
    if b.data.ndim <= 2:
        return matmul(a, b)
    return tensordot(a, b, axes=(-1, -2))


@implements(np.outer)
def outer(a: Any, b: Any) -> Tensor:
    a, b = lift_together(a, b)
    return multiply(reshape(a, (-1, 1)), ravel(b))


@implements(np.tensordot)
def tensordot(a: Any, b: Any, axes: Any = 2) -> Tensor:
    a, b = lift(a), lift(b)
    over_a, over_b = _contracted(axes, a.data.ndim, b.data.ndim)
    free_a = [i for i in range(a.data.ndim) if i not in over_a]
    free_b = [i for i in range(b.data.ndim) if i not in over_b]
    shape_a, shape_b = ([x.data.shape[i] for i in free] for x, free in ((a, free_a), (b, free_b)))
    length = math.prod(a.data.shape[i] for i in over_a)
    left = reshape(transpose(a, (*free_a, *over_a)), (math.prod(shape_a), length))
    right = reshape(transpose(b, (*over_b, *free_b)), (length, math.prod(shape_b)))
    return reshape(matmul(left, right), (*shape_a, *shape_b))


def _contracted(axes: Any, ndim_a: int, ndim_b: int) -> tuple[list[int], list[int]]:
    """The axes that are summed over, as positions from 0."""
    if isinstance(axes, (int, np.integer)):
        return list(range(ndim_a - int(axes), ndim_a)), list(range(int(axes)))
    over_a, over_b = (np.atleast_1d(np.asarray(one, int)).tolist() for one in axes)
    return [i % ndim_a for i in over_a], [i % ndim_b for i in over_b]
