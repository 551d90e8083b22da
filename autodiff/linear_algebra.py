"""Products of vectors, of matrices, and of stacks of them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .arithmetic import multiply, unbroadcast
from .reductions import sum
from .shapes import moveaxis, ravel, reshape, transpose
from .tensor import Tensor, lift, lift_array, lift_together, operand, record
from .tensor_like import Array, implements


@implements(np.matmul, np.linalg.matmul)
def matmul(x1: Any, x2: Any) -> Tensor:
    x1, x2 = lift_array(x1), lift_array(x2)
    a, b = x1.data, x2.data
    if b.ndim == 2 and a.ndim >= 2:
        return _times_matrix(x1, x2)

    def vjp(g: Array, outs: Any) -> Any:
        u, v = operand(g, x1, a), operand(g, x2, b)
        rows = u[None, :] if a.ndim == 1 else u
        columns = v[:, None] if b.ndim == 1 else v
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
        if type(g) is Tensor:
            v, lines = operand(g, x2, b), as_rows(operand(g, x1, a))
            return (g @ v.T).reshape(a.shape), lines.T @ g
        if x1.requires_grad:
            ga = product_with_transposed(g, b, outs[0] if a.ndim == 2 else None).reshape(a.shape)
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


def product_with_transposed(a: Array, b: Array, out: Array | None = None) -> Array:
    """`a @ b.T`, the gradient of a layer's inputs, straight into `out` if there is one.

    Of a few rows in float32 OpenBLAS computes `b @ a.T` faster, as it need not turn the large
    matrix round (64 rows by 1024 x 1024: in 0.8 of the time, 8 rows in half). Turning the result
    round is a copy of it, which pays where each of its elements is a long sum.
    """
    is_long = len(a) <= 64 and b.shape[1] >= 512 and a.dtype == np.float32
    if not is_long or not isinstance(a, np.ndarray):
        return product(a, b.T, out)
    turned = np.matmul(b, a.T).T
    if out is None:
        return turned.copy()
    out[...] = turned
    return out


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


@implements(np.outer, np.linalg.outer)
def outer(a: Any, b: Any) -> Tensor:
    a, b = lift_together(a, b)
    return multiply(reshape(a, (-1, 1)), ravel(b))


@implements(np.tensordot, np.linalg.tensordot)
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


@implements(np.inner)
def inner(a: Any, b: Any) -> Tensor:
    """The products of the last axis of a with the last of b, whatever is before them."""
    a, b = lift(a), lift(b)
    if np.ndim(a.data) == 0 or np.ndim(b.data) == 0:
        return multiply(a, b)
    return tensordot(a, b, axes=(-1, -1))


@implements(np.vdot)
def vdot(a: Any, b: Any) -> Tensor:
    a, b = lift_together(a, b)
    return matmul(ravel(a), ravel(b))


@implements(np.vecdot, np.linalg.vecdot)
def vecdot(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    a, b = (moveaxis(x, axis, -1) for x in lift_together(x1, x2))
    return sum(a * b, -1)


@implements(np.matvec)
def matvec(x1: Any, x2: Any) -> Tensor:
    return matmul(x1, np.expand_dims(lift_array(x2), -1)).squeeze(-1)


@implements(np.vecmat)
def vecmat(x1: Any, x2: Any) -> Tensor:
    return matmul(np.expand_dims(lift_array(x1), -2), x2).squeeze(-2)


@implements(np.cross)
def cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    """Of vectors in three dimensions."""
    if axis is not None:
        axisa = axisb = axisc = axis
    a, b = lift_together(a, b)
    a, b = moveaxis(a, axisa, -1), moveaxis(b, axisb, -1)
    if (a.shape[-1], b.shape[-1]) != (3, 3):
        raise ValueError(f"np.cross takes vectors of 3 numbers, got {a.shape[-1]}, {b.shape[-1]}")
    ahead = np.roll(a, -1, -1) * np.roll(b, -2, -1)
    return np.moveaxis(ahead - np.roll(a, -2, -1) * np.roll(b, -1, -1), -1, axisc)


@implements(np.linalg.cross)
def linalg_cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Tensor:
    return cross(x1, x2, axis=axis)


@implements(np.kron)
def kron(a: Any, b: Any) -> Tensor:
    a, b = lift_together(a, b)
    ndim = max(a.data.ndim, b.data.ndim)
    a, b = (reshape(x, (1,) * (ndim - x.data.ndim) + x.data.shape) for x in (a, b))
    shape = [m * n for m, n in zip(a.data.shape, b.data.shape, strict=True)]
    a = reshape(a, [n for length in a.data.shape for n in (length, 1)])
    b = reshape(b, [n for length in b.data.shape for n in (1, length)])
    return reshape(multiply(a, b), shape)
