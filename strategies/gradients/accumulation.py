"""The gradients of several batches that one step is made of, added up where they are computed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

from ...autodiff import Tensor
from ..devices.arrays import add_up
from .packs import Gradient, scaled


@final
class Accumulation:
    """One replica's gradients so far, each times its batch's number of examples.

    Numbers of examples are relative to those of the first batch: the gradients of equal batches are
    added up as they are.
    """

    __slots__ = ("_first", "_sums", "_weight")

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Forget what was added."""
        self._first = self._weight = 0.0
        self._sums: dict[Tensor, Gradient] = {}

    def add(self, found: Mapping[Tensor, Gradient], num_examples: float) -> None:
        """Add those of one batch; without examples it counts for nothing."""
        if not num_examples:
            return
        self._first = self._first or num_examples
        weight = num_examples / self._first
        self._weight += weight
        for leaf, gradient in found.items():
            part = scaled(gradient, weight)
            before = self._sums.get(leaf)
            self._sums[leaf] = part if before is None else add_up([before, part])

    def take(self) -> dict[Tensor, Gradient]:
        """The means over all examples, by the tensors that stand for variables; begins anew."""
        factor = 1 / self._weight
        means = {leaf: scaled(total, factor) for leaf, total in self._sums.items()}
        self.begin()
        return means
