"""`tf.linalg`: matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..names import NameTable, serve
from .advice import advice
from .arguments import adapt_all, refuse
from .conversion import accept_symbolic, as_tensor, axes, cast, conjugate, convert, operands

_NAMES = {"eye": "compat.tf.arrays.eye", "l2_normalize": "compat.tf.math.l2_normalize"}

__getattr__, __dir__ = serve(NameTable(__name__, renamed=_NAMES, advice=advice))


def matmul(
    a: Any,
    b: Any,
    transpose_a: bool = False,
    transpose_b: bool = False,
    adjoint_a: bool = False,
    adjoint_b: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    output_type: Any = None,
    grad_a: bool = False,
    grad_b: bool = False,
    name: str | None = None,
) -> Any:
    """The product of matrices, also of stacks of them.

    Args:
        a, b: Matrices. An adjoint is the conjugate of a transposed one.
        output_type: The dtype of the product, by default that of the matrices.
        a_is_sparse, b_is_sparse, grad_a, grad_b: Have no effect.

    Raises:
        ValueError: A matrix is to be transposed and to be its adjoint.
    """
    if (transpose_a and adjoint_a) or (transpose_b and adjoint_b):
        raise ValueError("matmul: only one of transpose and adjoint may be True of a matrix")
    a, b = operands(a, b)
    a = _turned(a, transpose_a, adjoint_a)
    b = _turned(b, transpose_b, adjoint_b)
    product = as_tensor(np.matmul(a, b))
    return product if output_type is None else cast(product, output_type)


def _turned(x: Any, transpose: bool, adjoint: bool = False) -> Any:
    x = np.swapaxes(x, -1, -2) if transpose or adjoint else x
    return conjugate(convert(x)) if adjoint else x


def tensordot(a: Any, b: Any, axes: Any, name: str | None = None) -> Any:
    """The sum of products over axes of both."""
    return as_tensor(np.tensordot(convert(a), convert(b), axes=axes))


def einsum(equation: str, *inputs: Any, optimize: Any = "greedy", name: str | None = None) -> Any:
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
    adjoint_a: bool = False,
    a_is_sparse: bool = False,
    b_is_sparse: bool = False,
    name: str | None = None,
) -> Any:
    """The product of matrices and vectors; see `matmul`."""
    column = np.expand_dims(convert(b), -1)
    return np.squeeze(matmul(a, column, transpose_a, adjoint_a=adjoint_a), -1)


def matrix_transpose(a: Any, name: str | None = None, conjugate: bool = False) -> Any:
    """The last two axes the other way round; complex numbers perhaps conjugated."""
    return _turned(convert(a), transpose=True, adjoint=conjugate)


def diag(
    diagonal: Any,
    name: str | None = None,
    k: int = 0,
    num_rows: int = -1,
    num_cols: int = -1,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Any:
    """Square matrices with these on the diagonal, or k above it, and zeros elsewhere.

    Raises:
        ValueError: Several diagonals, another size, or another filling is asked for.
    """
    _require_one_diagonal("diag", k, padding_value)
    refuse(
        "diag",
        ("num_rows", num_rows, -1, "pad the matrices with tf.pad"),
        ("num_cols", num_cols, -1, "pad the matrices with tf.pad"),
    )
    rows = convert(diagonal)
    border = [(0, 0)] * (rows.ndim - 1) + [(max(-k, 0), max(k, 0))]
    rows = np.pad(rows, border) if k else rows
    return np.expand_dims(rows, -1) * np.eye(rows.shape[-1], k=k, dtype=rows.dtype)


def diag_part(
    input: Any,
    name: str | None = None,
    k: int = 0,
    padding_value: Any = 0,
    align: str = "RIGHT_LEFT",
) -> Any:
    """The diagonals of matrices, or what is k above them.

    Raises:
        ValueError: Several diagonals are asked for.
    """
    _require_one_diagonal("diag_part", k, padding_value)
    x = convert(input)
    m, n = x.shape[-2:]
    rows = np.arange(max(-k, 0), max(min(m, n - k), max(-k, 0)))
    return x[..., rows, rows + k]


def _require_one_diagonal(function: str, k: Any, padding_value: Any) -> None:
    if not isinstance(k, int | np.integer):
        raise ValueError(f"{function}: k must be one whole number, got {k!r}; call it for each")
    refuse(function, ("padding_value", padding_value, 0, "use tf.where with a mask"))


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


def cholesky(input: Any, name: str | None = None) -> Any:
    """Lower triangles whose products with their transposes are these matrices."""
    return as_tensor(np.linalg.cholesky(convert(input)))


def det(input: Any, name: str | None = None) -> Any:
    """The determinants of matrices."""
    return as_tensor(np.linalg.det(convert(input)))


def inv(input: Any, adjoint: bool = False, name: str | None = None) -> Any:
    """The inverses of matrices, or of their adjoints."""
    return as_tensor(np.linalg.inv(_turned(convert(input), False, adjoint)))


def solve(matrix: Any, rhs: Any, adjoint: bool = False, name: str | None = None) -> Any:
    """The solutions x of `matrix @ x = rhs`, or with the adjoint of the matrix."""
    return as_tensor(np.linalg.solve(_turned(convert(matrix), False, adjoint), convert(rhs)))


accept_symbolic(globals())
adapt_all(globals(), "tf.linalg")
