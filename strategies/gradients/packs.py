"""`Pack`: reduced gradients, as they are handed to whoever changes variables along them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import numpy as np

from ...autodiff import Array, IndexedSlices
from ..devices.arrays import cut
from ..variables.variable import Variable

Gradient: TypeAlias = "Array | IndexedSlices"


class Pack(NamedTuple):
    """Gradients of some variables; perhaps in one array, so that one call can go over all.

    Args:
        variables: In the order of the gradients. A pack of the same gradients in a later step has
            the same ones, so that what is to be done with them is planned once.
        gradients: Each of its variable's shape; None where no replica has one.
        joined: One-dimensional, what all gradients are views of, one behind the other; None where
            they are not. Then there is one for each variable.
    """

    variables: tuple[Variable, ...]
    gradients: tuple[Gradient | None, ...]
    joined: Array | None = None

    @classmethod
    def of_one(cls, variable: Variable, gradient: Gradient | None) -> Pack:
        """That of a single variable."""
        return cls((variable,), (gradient,))

    def changed(self, change: Callable[[Gradient], Gradient]) -> Pack:
        """What an elementwise function makes of all gradients."""
        if self.joined is None:
            changed = [None if g is None else change(g) for g in self.gradients]
            return Pack(self.variables, tuple(changed))
        joined = change(self.joined)
        assert not isinstance(joined, IndexedSlices)
        shapes = [variable.shape for variable in self.variables]
        return Pack(self.variables, tuple(cut(joined, shapes)), joined)


def pairs_of(packs: Iterable[Pack]) -> list[tuple[Variable, Gradient | None]]:
    """Each variable with its gradient."""
    return [pair for pack in packs for pair in zip(pack.variables, pack.gradients, strict=True)]


def scaled(gradient: Gradient, factor: float) -> Gradient:
    """A gradient times a number, in new memory; by 1 it stays the same."""
    return with_values(np.multiply, gradient, factor)


def with_values(ufunc: np.ufunc, gradient: Gradient, number: float) -> Gradient:
    """A gradient multiplied or divided; by 1 it stays the same, to the bit."""
    if number == 1:
        return gradient
    if isinstance(gradient, IndexedSlices):
        return gradient.with_values(ufunc(gradient.values, number))
    return ufunc(gradient, number)
