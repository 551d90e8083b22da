"""`tf.linalg`: matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..names import NameTable, serve
from .advice import advice
from .conversion import accept_symbolic, as_tensor, axes, convert, operands

_NAMES = {"eye": "compat.tf.arrays.eye", "l2_normalize": "compat.tf.math.l2_normalize"}

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    name: str | None = None,
    **hints: Any,
) -> Any:
    """The product of matrices, also of stacks of them."""
    a, b = operands(a, b)
    a = np.swapaxes(a, -1, -2) if transpose_a else a
    b = np.swapaxes(b, -1, -2) if transpose_b else b
    return as_tensor(np.matmul(a, b))


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Any:
    """The sum of products over axes of both."""
    return as_tensor(np.tensordot(convert(a), convert(b), axes=axes))


def einsum(equation: str, *inputs: Any, **hints: Any) -> Any:
    """The sum of products that an equation such as "bij,bjk->bik" tells."""
    return as_tensor(np.einsum(equation, *operands(*inputs)))


def norm(
    tensor: Any,
    ord: Any = "euclidean",
    axis: Any = None,
    keepdims: bool = False,
    name: str | None = None,
) -> Any:
    """The Euclidean norm of all elements or along axes; `ord` 1 or np.inf for these norms."""
    x = convert(tensor)
    if ord in ("euclidean", 2):
        squares = np.sum(np.square(x), axis=axes(axis), keepdims=keepdims)
        return as_tensor(np.sqrt(squares))
    if ord not in (1, np.inf):
        raise ValueError(f"norm: ord must be 'euclidean', 1, 2 or np.inf, it is {ord!r}")
    combine = np.sum if ord == 1 else np.max
    return as_tensor(combine(np.abs(x), axis=axes(axis), keepdims=keepdims))


def clip_by_norm(t: Any, clip_norm: Any, axes: Any = None, name: str | None = None) -> Any:
    """Scaled down so that its norm is at most this."""
    t = convert(t)
    length = norm(t, axis=axes, keepdims=True)
    return t * (clip_norm / np.maximum(length, clip_norm))


def global_norm(t_list: Any, name: str | None = None) -> Any:
    """The norm of all these tensors together."""
    squares = [np.sum(np.square(convert(t))) for t in t_list if t is not None]
    return as_tensor(np.sqrt(np.sum(np.stack(squares))))


def clip_by_global_norm(
    t_list: Any, clip_norm: Any, use_norm: Any = None, name: str | None = None
) -> tuple[list[Any], Any]:
    """The tensors, scaled down so that their norm together is at most this, and that norm."""
    length = global_norm(t_list) if use_norm is None else use_norm
    scale = clip_norm / np.maximum(length, clip_norm)
    return [None if t is None else convert(t) * scale for t in t_list], length


def matvec(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    name: str | None = None,
) -> Any:
    """The product of matrices and vectors."""
    return np.squeeze(matmul(a, np.expand_dims(convert(b), -1), transpose_a), -1)


def matrix_transpose(a: Any, name: str | None = None) -> Any:
    """The last two axes the other way round."""
    return np.swapaxes(convert(a), -1, -2)


def diag(diagonal: Any, name: str | None = None) -> Any:
    """Matrices with these diagonals."""
    rows = convert(diagonal)
    return np.expand_dims(rows, -1) * np.eye(rows.shape[-1], dtype=rows.dtype)


def diag_part(input: Any, name: str | None = None) -> Any:
    """The diagonals of matrices."""
    return np.einsum("...ii->...i", convert(input))


def trace(x: Any, name: str | None = None) -> Any:
    """The sums of the diagonals of matrices."""
    return np.sum(diag_part(x), axis=-1)


def band_part(input: Any, num_lower: int, num_upper: int, name: str | None = None) -> Any:
    """Matrices whose elements outside a band around the diagonal are zero; -1 keeps a side."""
    x = convert(input)
    m, n = x.shape[-2:]
    distance = np.arange(n) - np.arange(m)[:, None]
    kept = ((num_lower < 0) | (-distance <= num_lower)) & (
        (num_upper < 0) | (distance <= num_upper)
    )
    return x * kept.astype(x.dtype)


def _of_numpy(name: str) -> Any:
    function = getattr(np.linalg, name)

    def call(*matrices: Any, name: str | None = None) -> Any:
        return as_tensor(function(*[convert(m) for m in matrices]))

    return call


cholesky, det, inv, solve = (_of_numpy(name) for name in ("cholesky", "det", "inv", "solve"))


accept_symbolic(globals())
