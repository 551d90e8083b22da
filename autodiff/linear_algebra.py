"""Products of matrices, of stacks of them, and sums of products by subscripts."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from .arithmetic import multiply, unbroadcast
from .shapes import ravel, reshape, transpose
from .tensor import Array, Tensor, implements, lift, lift_array, record


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


def lift_together(*values: Any) -> tuple[Tensor, ...]:
    """Operands of one operation as tensors: numbers become arrays beside the first array."""
    tensors = tuple(lift(value) for value in values)
    like = next((t.data for t in tensors if hasattr(t.data, "dtype")), np.empty(0))
    return tuple(
        tensor
        if hasattr(tensor.data, "dtype")
        else Tensor(np.asarray(tensor.data, np.result_type(tensor.data, like.dtype), like=like))
        for tensor in tensors
    )


@implements(np.einsum)
def einsum(subscripts: str, *operands: Any, optimize: Any = None) -> Tensor:
    """Sums of products by subscripts, such as 'bij,bjk->bik'; '...' stands for any further axes.

    A letter twice in one operand (a diagonal) is refused. `optimize` as in NumPy; by default it is
    used where there is enough to compute.
    """
    if not isinstance(subscripts, str):
        raise TypeError(
            "np.einsum of a tensor takes its subscripts as one string, such as 'ij,jk->ik', "
            "followed by the operands"
        )
    tensors = lift_together(*operands)
    arrays = [tensor.data for tensor in tensors]
    terms, result = _parse(subscripts, tuple([array.ndim for array in arrays]))

    def vjp(g: Array, outs: Any) -> Any:
        return [
            _gradient_of(i, g, terms, result, arrays, optimize) if tensor.requires_grad else None
            for i, tensor in enumerate(tensors)
        ]

    return record(_sum_of_products(terms, result, arrays, optimize), tensors, vjp)


def _sum_of_products(
    terms: Sequence[str], result: str, arrays: list[Array], optimize: Any
) -> Array:
    """`np.einsum`; its planning takes 30 µs, in which a plain loop adds 50000 products."""
    if optimize is None:
        sizes: dict[str, int] = {}
        for term, array in zip(terms, arrays, strict=True):
            sizes.update(zip(term, array.shape, strict=True))
        optimize = len(arrays) > 1 and math.prod(sizes.values()) > 50_000
    subscripts = f"{','.join(terms)}->{result}"
    if any(array.dtype != np.float16 for array in arrays):
        return np.einsum(subscripts, *arrays, optimize=optimize)
    # NumPy would add up along outer axes in float16.
    return np.einsum(subscripts, *arrays, optimize=optimize, dtype=np.float32).astype(np.float16)


def _gradient_of(
    i: int, g: Array, terms: Sequence[str], result: str, arrays: list[Array], optimize: Any
) -> Array:
    """The sum of products of g and all other operands, with operand i's letters for a result."""
    others = [term for j, term in enumerate(terms) if j != i]
    known = set(result).union(*others)
    reached = "".join(letter for letter in terms[i] if letter in known)
    factors = [array for j, array in enumerate(arrays) if j != i]
    part = _sum_of_products([result, *others], reached, [g, *factors], optimize)
    shape = arrays[i].shape
    sizes = dict(zip(reached, part.shape, strict=True))
    part = part.reshape([sizes.get(letter, 1) for letter in terms[i]])
    if any(n == 1 != size for n, size in zip(part.shape, shape, strict=True)):
        # The elements along a letter get the same that is its own, or of length 1 elsewhere.
        full = np.empty(np.broadcast_shapes(part.shape, shape), g.dtype, like=g)
        full[...] = part
        part = full
    return unbroadcast(part, shape)


@functools.lru_cache(maxsize=256)
def _parse(subscripts: str, ndims: tuple[int, ...]) -> tuple[tuple[str, ...], str]:
    """The letters of each operand and of the result, with letters in place of the ellipses."""
    inputs, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(ndims):
        raise ValueError(
            f"np.einsum: '{subscripts}' names {len(terms)} operands, but {len(ndims)} were given"
        )
    unused = [letter for letter in string.ascii_letters if letter not in subscripts]
    most = max(ndim - len(term.replace("...", "")) for term, ndim in zip(terms, ndims, strict=True))
    ellipsis = "".join(unused[: max(most, 0)])
    named = tuple(
        _expanded(term, ndim, ellipsis, subscripts) for term, ndim in zip(terms, ndims, strict=True)
    )
    if arrow and "..." in inputs and "..." not in result:
        raise ValueError(f"np.einsum: '{subscripts}' has '...' in an operand but not in the result")
    if not arrow:
        once = [letter for letter in sorted(set(inputs) - set(",.")) if inputs.count(letter) == 1]
        result = ("..." if "..." in inputs else "") + "".join(once)
    return named, result.replace("...", ellipsis)


def _expanded(term: str, ndim: int, ellipsis: str, subscripts: str) -> str:
    """One operand's letters; its ellipsis takes as many of the last letters as it has axes."""
    num_more = ndim - len(term.replace("...", ""))
    if num_more < 0 or (num_more > 0 and "..." not in term):
        raise ValueError(
            f"np.einsum: the term '{term}' of '{subscripts}' does not fit an operand of {ndim} axes"
        )
    letters = term.replace("...", ellipsis[len(ellipsis) - num_more :])
    if len(set(letters)) < len(letters):
        raise ValueError(
            f"np.einsum: the term '{term}' of '{subscripts}' has a letter twice, which is not "
            f"differentiable here; index the diagonal first: x[np.arange(n), np.arange(n)]"
        )
    return letters
