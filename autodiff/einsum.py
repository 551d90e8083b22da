"""Sums of products by subscripts."""

from __future__ import annotations

import functools
import math
import string
from collections.abc import Sequence
from types import EllipsisType
from typing import Any

import numpy as np

from .arithmetic import unbroadcast
from .diagonals import diagonal
from .numerics import is_half, narrowed, widened
from .tensor import Tensor, lift_together, operand, record
from .tensor_like import Array, implements


@implements(np.einsum)
def einsum(subscripts: Any, /, *operands: Any, optimize: Any = None) -> Tensor:
    """Sums of products by subscripts, such as 'bij,bjk->bik'; '...' stands for any further axes.

    `np.einsum(a, [0, 1], b, [1, 2], [0, 2])` is taken too. `optimize` as in NumPy; by default it is
    used where there is enough to compute.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _in_letters((subscripts, *operands))
    tensors = lift_together(*operands)
    terms, result = _parse(subscripts, tuple([tensor.data.ndim for tensor in tensors]))
    if any(len(set(term)) < len(term) for term in terms):
        terms, tensors = zip(*map(_of_diagonals, terms, tensors), strict=True)
    arrays = [tensor.data for tensor in tensors]

    def vjp(g: Array, outs: Any) -> Any:
        factors = [operand(g, *pair) for pair in zip(tensors, arrays, strict=True)]
        return [
            _gradient_of(i, g, terms, result, factors, optimize) if tensor.requires_grad else None
            for i, tensor in enumerate(tensors)
        ]

    return record(_sum_of_products(terms, result, arrays, optimize), tensors, vjp)


def _in_letters(arguments: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    """Operands that alternate with lists of numbers, as subscripts and operands."""
    pairs = len(arguments) // 2
    lists = [*arguments[1 : 2 * pairs : 2], *arguments[2 * pairs :]]
    if not arguments[1:] or not all(isinstance(numbers, (list, tuple)) for numbers in lists):
        raise TypeError(
            "np.einsum takes subscripts as one string, such as 'ij,jk->ik', followed by the "
            "operands, or each operand followed by a list of its axes' numbers"
        )
    terms = [
        "".join("..." if isinstance(n, EllipsisType) else string.ascii_letters[n] for n in numbers)
        for numbers in lists
    ]
    subscripts = ",".join(terms[:pairs]) + "".join(f"->{term}" for term in terms[pairs:])
    return subscripts, arguments[0 : 2 * pairs : 2]


def _of_diagonals(term: str, tensor: Tensor) -> tuple[str, Tensor]:
    """An operand without letters that occur twice: along them only its diagonal counts."""
    for letter in sorted(set(term)):
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            tensor = diagonal(tensor, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return term, tensor


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
    if any(type(array) is Tensor or not is_half(array) for array in arrays):
        return np.einsum(subscripts, *arrays, optimize=optimize)
    # NumPy would add up along outer axes in float16, and has no bfloat16 here.
    wide = np.einsum(subscripts, *map(widened, arrays), optimize=optimize)
    return narrowed(wide, arrays[0])


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
        part = np.broadcast_to(part, np.broadcast_shapes(part.shape, shape)).copy()
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
    return term.replace("...", ellipsis[len(ellipsis) - num_more :])
