"""Products, sums of products, and what is done with matrices."""

from __future__ import annotations

from typing import Any

import numpy as np

from .case_table import case, constant, spaced

for first, second in [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((2, 2, 3), (3, 4)),
    ((2, 2, 3), (3,)),
    ((3,), (2, 3, 2)),
    ((2, 2, 3), (2, 3, 2)),
    ((2, 1, 2, 3), (3, 3, 2)),
    ((2, 3), (4, 3, 2)),
]:
    case(f"x @ y {first} {second}", lambda x, y: x @ y, first, second)
case("array @ x", lambda x: constant([[1, 2], [3, 4], [0, 1]], x) @ x, (2, 3))
case("x @ array", lambda x: x @ constant([[1, 2], [3, 4], [0, 1]], x), (2, 3))
case("array * x + array", lambda x: constant([1, 2], x) * x + constant([3, 4], x), (2,))
case("dot 1-d", np.dot, (3,), (3,))
case("dot 2-d", np.dot, (2, 3), (3, 2))
case("dot n-d", np.dot, (2, 3), (2, 3, 2))
case("dot scalar", np.dot, (), (3, 2))
case("outer", np.outer, (3,), (2, 2))
case("outer of a number", lambda x: np.outer(x, 2.0), (3,))
case("tensordot", np.tensordot, (2, 3, 4), (3, 4, 2))
case(
    "tensordot axes", lambda x, y: np.tensordot(x, y, axes=([0, -1], [1, 0])), (2, 3, 4), (4, 2, 5)
)
case("tensordot np.int64", lambda x, y: np.tensordot(x, y, np.int64(1)), (2, 3), (3, 2))
case("tensordot none", lambda x, y: np.tensordot(x, y, axes=0), (2,), (3,))

for subscripts, *shapes in [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ba", (2, 3)),
    ("bhqd,bhkd->bhqk", (2, 2, 3, 2), (2, 2, 2, 2)),
    ("i,i->", (3,), (3,)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("ij->ji", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("ij,j->i", (2, 3), (3,)),
    ("ij,k->k", (2, 3), (2,)),
    ("ij,jk,kl->il", (2, 3), (3, 2), (2, 2)),
    ("i,ij,j->", (2,), (2, 3), (3,)),
    ("...i,ij->...j", (2, 2, 3), (3, 2)),
    ("...ij,...jk->...ik", (2, 1, 2, 3), (3, 3, 2)),
    ("...i,...i", (2, 3), (2, 3)),
    ("...ij->...", (2, 2, 3)),
]:
    case(
        f"einsum {subscripts}",
        lambda *operands, subscripts=subscripts: np.einsum(subscripts, *operands),
        *shapes,
    )
case("einsum of length 1", lambda x, y: np.einsum("ij,ij->i", x, y), (2, 3), (2, 1))
case("einsum with a number", lambda x: np.einsum("ij,->ij", x, 2.0), (2, 3))
case("einsum of one twice", lambda x: np.einsum("ij,kj->ik", x, x), (2, 3))

case("diag of a vector", lambda x: np.diag(x, 1), (3,))
case("diag of a matrix", lambda x: np.diag(x, -1), (3, 4))
case("diagonal", lambda x: np.diagonal(x, 1, 2, 0), (2, 3, 4))
case("diagonal of linalg", np.linalg.diagonal, (2, 3, 4))
case("diagflat", np.diagflat, (2, 2))
case("trace", lambda x: np.trace(x) + np.linalg.trace(x) * x.trace(1), (3, 3))
case("einsum of a diagonal", lambda x: np.einsum("ii->i", x), (3, 3))
case("einsum of a trace", lambda x, y: np.einsum("ii,j->j", x, y), (3, 3), (2,))
case("einsum of stacked diagonals", lambda x: np.einsum("...iji->...j", x), (2, 3, 4, 3))
case("einsum of a letter three times", lambda x: np.einsum("iii", x), (2, 2, 2))
case("einsum by lists", lambda x, y: np.einsum(x, [0, 1], y, [1, 2], [2, 0]), (2, 3), (3, 2))
case("einsum by lists alone", lambda x, y: np.einsum(x, [..., 1], y, [1]), (2, 3), (3,))

case("inner", np.inner, (2, 3), (4, 3))
case("inner of vectors", np.inner, (3,), (3,))
case("inner of a number", np.inner, (), (2, 3))
case("vdot", np.vdot, (2, 3), (3, 2))
case("vecdot", lambda x, y: np.vecdot(x, y, axis=0), (3, 2), (3, 2))
case("vecdot of linalg", np.linalg.vecdot, (2, 3), (3,))
case("matvec", np.matvec, (2, 2, 3), (3,))
case("vecmat", np.vecmat, (2,), (2, 2, 3))
case("matmul of linalg", np.linalg.matmul, (2, 3), (3, 2))
case("outer of linalg", np.linalg.outer, (2,), (3,))
case("tensordot of linalg", lambda x, y: np.linalg.tensordot(x, y, axes=1), (2, 3), (3, 2))
case("cross", np.cross, (2, 3), (3,))
case("cross along", lambda x, y: np.cross(x, y, axis=0), (3, 2), (3, 2))
case("cross of linalg", lambda x, y: np.linalg.cross(x, y, axis=0), (3, 2), (3, 2))
case("kron", np.kron, (2, 2), (3, 1))
case("kron of ranks", np.kron, (2,), (2, 3))


def thin_svd(x: Any) -> Any:
    return np.linalg.svd(x, full_matrices=False)


REGULAR = np.array([[2.0, 0.3, -0.4], [0.5, -1.5, 0.2], [0.1, 0.6, 1.2]])
STACK = np.stack([REGULAR, REGULAR.T + np.eye(3)])


def symmetric(x: Any) -> Any:
    return x + np.matrix_transpose(x)


case("linalg.solve", np.linalg.solve, STACK, (3, 2))
case("linalg.solve of a vector", np.linalg.solve, REGULAR, (3,))
case("linalg.solve of vectors", lambda x, y: np.linalg.solve(x, y), STACK, (2, 3, 1))
case("linalg.inv", np.linalg.inv, STACK)
case("linalg.det", np.linalg.det, STACK)
case("linalg.det of 0", np.linalg.det, np.array([[1.0, 2, 3], [2, 4, 6], [1, 1, 1]]))
case("linalg.slogdet", lambda x: np.linalg.slogdet(x)[1], STACK)
case("linalg.svdvals", np.linalg.svdvals, STACK)
case("linalg.cholesky", lambda x: np.linalg.cholesky(x @ np.matrix_transpose(x)), STACK)
case("linalg.cholesky upper", lambda x: np.linalg.cholesky(x @ x.T, upper=True), REGULAR)
case("linalg.eigvalsh", lambda x: np.linalg.eigvalsh(symmetric(x)), STACK)
case("linalg.eigh", lambda x: np.square(np.linalg.eigh(symmetric(x))[1]), STACK)
for name, shape in {
    "linalg.svd": (3, 3),
    "linalg.svd high": (4, 2),
    "linalg.svd wide": (2, 4),
}.items():
    case(f"{name} values", lambda x: np.linalg.svd(x, compute_uv=False), spaced(*shape))
    case(
        name,
        lambda x: (lambda u, s, vh: (np.abs(u) * s) @ np.abs(vh))(*thin_svd(x)),
        spaced(*shape),
    )
for ord in (None, "fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf):
    case(
        f"linalg.norm {ord}" if ord in (2, -2, "nuc") else f"norm {ord}",
        lambda x, ord=ord: np.linalg.norm(x, ord),
        REGULAR,
    )
for ord in (None, 0.5, 1, 2, 3, np.inf, -np.inf):
    case(
        f"norm {ord} of vectors",
        lambda x, ord=ord: np.linalg.norm(x, ord, axis=1, keepdims=True),
        spaced(2, 3),
    )
case("norm of stacks", lambda x: np.linalg.norm(x, 1, (2, 0), True), spaced(2, 2, 3))
case("norm of all", np.linalg.norm, (2, 2, 2))
case("vector_norm", np.linalg.vector_norm, (2, 3))
case("matrix_norm", np.linalg.matrix_norm, (2, 2, 3))
