"""Linear equations, decompositions and norms of matrices: `np.linalg`.

The gradient of eigenvectors and singular vectors divides by differences of their values. Where two
are equal the vectors are any of a common space, and the gradient is "not a number", as PyTorch's;
that of the values alone is right there, too. A gradient with respect to a symmetric matrix is
symmetric, as in PyTorch, although NumPy reads one triangle only.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .arithmetic import unbroadcast
from .creation import identity
from .numerics import narrowed, widened
from .tensor import Tensor, lift_array, operand, record
from .tensor_like import Array, implements


def _swapped(a: Any) -> Any:
    return a.swapaxes(-1, -2)


@implements(np.linalg.solve)
def solve(a: Any, b: Any) -> Tensor:
    """x of a @ x = b; `b` is one vector or a stack of matrices, as in NumPy 2."""
    matrix, right = lift_array(a), lift_array(b)
    matrix_values, right_values = matrix.data, right.data
    x = np.linalg.solve(matrix_values, right_values)

    def vjp(g: Array, outs: Any) -> Any:
        m = operand(g, matrix, matrix_values)
        y = np.linalg.solve(m, operand(g, right, right_values)) if type(g) is Tensor else x
        is_vector = right_values.ndim == 1
        columns = g[..., None] if is_vector else g
        to_right = np.linalg.solve(_swapped(m), columns)
        ga = gb = None
        if matrix.requires_grad:
            ga = to_right @ _swapped(y[..., None] if is_vector else y)
            ga = unbroadcast(-ga, matrix_values.shape)
        if right.requires_grad:
            gb = to_right[..., 0] if is_vector else to_right
            gb = unbroadcast(gb, right_values.shape)
        return ga, gb

    return record(x, (matrix, right), vjp)


@implements(np.linalg.inv)
def inv(a: Any) -> Tensor:
    x = lift_array(a)
    values, y = x.data, np.linalg.inv(x.data)

    def vjp(g: Array, outs: Any) -> Any:
        inverse = np.linalg.inv(operand(g, x, values)) if type(g) is Tensor else y
        back = _swapped(inverse)
        return (-(back @ g @ back),)

    return record(y, (x,), vjp)


@implements(np.linalg.det)
def det(a: Any) -> Tensor:
    """Its gradient is the matrix of cofactors, of a singular matrix too."""
    x = lift_array(a)
    values = x.data

    y = np.linalg.det(values)

    def vjp(g: Array, outs: Any) -> Any:
        m = operand(g, x, values)
        if type(g) is Tensor and not (y == 0).any():
            # By vectors that are not determined where singular values are equal it would be none.
            cofactors = np.linalg.det(m)[..., None, None] * _swapped(np.linalg.inv(m))
        else:
            cofactors = _cofactors(m)
        return (g[..., None, None] * cofactors,)

    return record(y, (x,), vjp)


def _cofactors(a: Any) -> Any:
    # Of U diag(s) Vh they are det(U Vh) U diag(products of all other s) Vh: nothing is divided by.
    u, s, vh = np.linalg.svd(a)
    others = np.where(identity(s.shape[-1], bool, s), 1, s[..., None, :]).prod(axis=-1)
    return np.linalg.det(u @ vh)[..., None, None] * (u * others[..., None, :]) @ vh


class SlogdetResult(NamedTuple):
    """The sign of a determinant, a plain array, and the logarithm of its size, a tensor."""

    sign: Array
    logabsdet: Tensor


@implements(np.linalg.slogdet)
def slogdet(a: Any) -> SlogdetResult:
    x = lift_array(a)
    values = x.data
    sign, logarithm = np.linalg.slogdet(values)

    def vjp(g: Array, outs: Any) -> Any:
        return (g[..., None, None] * _swapped(np.linalg.inv(operand(g, x, values))),)

    return SlogdetResult(sign, record(logarithm, (x,), vjp))


@implements(np.linalg.cholesky)
def cholesky(a: Any, /, *, upper: bool = False) -> Tensor:
    """The triangle whose product with its transpose is `a` (Murray 2016, arXiv:1602.07527)."""
    x = lift_array(a)
    values, lower = x.data, np.linalg.cholesky(x.data)

    def vjp(g: Array, outs: Any) -> Any:
        y = np.linalg.cholesky(operand(g, x, values)) if type(g) is Tensor else lower
        halved = np.tril(_swapped(y) @ g)
        halved = halved * (1 - 0.5 * identity(values.shape[-1], values.dtype, values))
        inverse = np.linalg.inv(y)
        part = _swapped(inverse) @ halved @ inverse
        return (0.5 * (part + _swapped(part)),)

    triangle = record(lower, (x,), vjp)
    return _swapped(triangle) if upper else triangle


class EighResult(NamedTuple):
    """Rising eigenvalues (..., n), and eigenvectors as columns (..., n, n)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


@implements(np.linalg.eigh)
def eigh(a: Any, UPLO: Any = "L") -> EighResult:  # noqa: N803 (NumPy's name)
    """Compute eigenvalues and eigenvectors of symmetric matrices.

    NumPy reads one triangle and takes the other to be equal. The gradient is that of a symmetric
    matrix, itself symmetric, as PyTorch's: a step along it leaves a symmetric matrix symmetric. It
    is not the derivative by single numbers of the triangle that is read, which is twice as large
    off the diagonal, and 0 in the other triangle.
    """
    x = lift_array(a)
    values, found = x.data, np.linalg.eigh(x.data, UPLO)

    def again(g: Any) -> tuple[Any, Any]:
        return np.linalg.eigh(operand(g, x, values), UPLO) if type(g) is Tensor else found

    def of_values(g: Array, outs: Any) -> Any:
        vectors = again(g)[1]
        return ((vectors * g[..., None, :]) @ _swapped(vectors),)

    def of_vectors(g: Array, outs: Any) -> Any:
        w, vectors = again(g)
        turned = (_swapped(vectors) @ g) * _one_over(w[..., None, :] - w[..., :, None])
        part = vectors @ turned @ _swapped(vectors)
        return (0.5 * (part + _swapped(part)),)

    return EighResult(record(found[0], (x,), of_values), record(found[1], (x,), of_vectors))


@implements(np.linalg.eigvalsh)
def eigvalsh(a: Any, UPLO: Any = "L") -> Tensor:  # noqa: N803 (NumPy's name)
    return eigh(a, UPLO).eigenvalues


def _one_over(differences: Any) -> Any:
    """1 / x off the diagonal, where a 0 gives "not a number"; and 0 on it."""
    is_zero = differences == 0
    diagonal = identity(is_zero.shape[-1], bool, is_zero)
    return np.where(diagonal, 0, np.where(is_zero, np.nan, 1 / np.where(is_zero, 1, differences)))


class SVDResult(NamedTuple):
    """u (..., m, k), falling singular values s (..., k) and vh (..., k, n), k = min(m, n)."""

    U: Tensor
    S: Tensor
    Vh: Tensor


@implements(np.linalg.svd)
def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True) -> Any:
    """Of a matrix that is not square with `full_matrices=False`: the rest is not determined."""
    x = lift_array(a)
    values = x.data
    if not compute_uv:
        return svd(x, full_matrices=False).S
    if full_matrices and values.shape[-1] != values.shape[-2]:
        raise ValueError(
            f"np.linalg.svd of a tensor of shape {values.shape} takes full_matrices=False: the "
            f"further columns of U or rows of Vh are any that fit, and have no gradient"
        )
    found = np.linalg.svd(values, full_matrices=False)

    def again(g: Any) -> tuple[Any, Any, Any]:
        if type(g) is not Tensor:
            return found
        return np.linalg.svd(operand(g, x, values), full_matrices=False)

    def of_u(g: Array, outs: Any) -> Any:
        u, s, vh = again(g)
        return (_to_left_vectors(g, u, s, vh),)

    def of_s(g: Array, outs: Any) -> Any:
        u, _, vh = again(g)
        return ((u * g[..., None, :]) @ vh,)

    def of_vh(g: Array, outs: Any) -> Any:  # the left vectors of the transpose
        u, s, vh = again(g)
        return (_swapped(_to_left_vectors(_swapped(g), _swapped(vh), s, _swapped(u))),)

    return SVDResult(*map(record, found, ((x,),) * 3, (of_u, of_s, of_vh)))


@implements(np.linalg.svdvals)
def svdvals(x: Any, /) -> Tensor:
    return svd(x, compute_uv=False)


def _to_left_vectors(g: Any, u: Any, s: Any, vh: Any) -> Any:
    """The gradient for A = U diag(s) Vh of a gradient `g` of U alone."""
    inner = _swapped(u) @ g
    differences = s[..., None, :] ** 2 - s[..., :, None] ** 2
    turned = (inner - _swapped(inner)) * _one_over(differences) * s[..., None, :]
    part = u @ turned @ vh
    if u.shape[-2] > u.shape[-1]:
        is_zero = s == 0
        inverse = np.where(is_zero, np.nan, 1 / np.where(is_zero, 1, s))
        part = part + ((g - u @ inner) * inverse[..., None, :]) @ vh
    return part


@implements(np.linalg.norm)
def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Tensor:
    """The gradient of a norm is 0 where the norm is 0, as in PyTorch."""
    x = lift_array(x)
    ndim = x.data.ndim
    if axis is None and ord is None:
        return _vector_norm(x, 2, tuple(range(ndim)), keepdims)
    axes = tuple(range(ndim)) if axis is None else axis
    axes = (axes,) if isinstance(axes, (int, np.integer)) else tuple(axes)
    if len(axes) == 1:
        return _vector_norm(x, 2 if ord is None else ord, axes, keepdims)
    if len(axes) == 2:
        return _matrix_norm(x, "fro" if ord is None else ord, axes, keepdims)
    raise ValueError(f"np.linalg.norm is along one or two axes, got {axes}; give `axis`")


@implements(np.linalg.vector_norm)
def vector_norm(
    x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: int | float = 2
) -> Tensor:
    x = lift_array(x)
    axes = tuple(range(x.data.ndim)) if axis is None else axis
    return _vector_norm(x, ord, axes, keepdims)


@implements(np.linalg.matrix_norm)
def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Tensor:
    return _matrix_norm(lift_array(x), ord, (-2, -1), keepdims)


def _vector_norm(x: Any, ord: Any, axis: Any, keepdims: bool) -> Any:
    options = {"axis": axis, "keepdims": keepdims}
    if ord == np.inf:
        return np.max(np.abs(x), **options)
    if ord == -np.inf:
        return np.min(np.abs(x), **options)
    wide = widened(x)  # float16 ends at 256²
    if ord == 2:
        return narrowed(_root(np.sum(np.square(wide), **options), 2), x)
    if ord == 1:
        return np.sum(np.abs(x), **options)
    if ord == 0:
        return np.sum((x != 0).astype(x.dtype), **options)
    if isinstance(ord, str):
        raise ValueError(f"ord {ord!r} is one of matrices; that of vectors is a number")
    return narrowed(_root(np.sum(np.abs(wide) ** ord, **options), ord), x)


def _root(sums: Any, degree: float) -> Any:
    is_zero = sums == 0
    safe = np.where(is_zero, 1, sums)
    return np.where(is_zero, 0, np.sqrt(safe) if degree == 2 else safe ** (1 / degree))


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    if ord == "fro":
        return _vector_norm(x, 2, axes, keepdims)
    matrices = np.moveaxis(x, axes, (-2, -1))
    if ord in (1, -1, np.inf, -np.inf):
        sums = np.sum(np.abs(matrices), axis=-2 if abs(ord) == 1 else -1)
    elif ord in (2, -2, "nuc"):
        sums = svd(matrices, compute_uv=False)
    else:
        raise ValueError(f"the order of a matrix norm is 'fro', 'nuc', ±1, ±2 or ±inf, got {ord!r}")
    extremum = np.sum if ord == "nuc" else np.max if ord > 0 else np.min
    y = extremum(sums, axis=-1)
    kept = tuple(axis % x.ndim for axis in axes)
    return np.expand_dims(y, kept) if keepdims else y
