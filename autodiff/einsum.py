"""Einstein summation."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from .arithmetic import unbroadcast
from .tensor import Array, Tensor, implements, lift_together, record


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
            _gradient(i, g, terms, result, arrays, optimize) if tensor.requires_grad else None
            for i, tensor in enumerate(tensors)
        ]

    return record(_contracted(terms, result, arrays, optimize), tensors, vjp)


def _contracted(terms: Sequence[str], result: str, arrays: list[Array], optimize: Any) -> Array:
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


def _gradient(
    i: int, g: Array, terms: Sequence[str], result: str, arrays: list[Array], optimize: Any
) -> Array:
    """The sum of products of g and all other operands, with operand i's letters for a result."""
    others = [term for j, term in enumerate(terms) if j != i]
    known = set(result).union(*others)
    reached = "".join(letter for letter in terms[i] if letter in known)
    factors = [array for j, array in enumerate(arrays) if j != i]
    part = _contracted([result, *others], reached, [g, *factors], optimize)
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
