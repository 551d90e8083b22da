"""`Arena`: the values of several variables in one array, which an update changes in a few calls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from ...autodiff import Array, note_change
from ..devices.arrays import cut
from .cell import Cell, RuleStep


@final
class Arena:
    """The values of some variables of one dtype, one behind the other: an array for each copy.

    A leaf's array is a view of it; whatever else is done with a variable is done as before, and
    knows nothing of this. Who assigns to one gives its leaf another array, and who keeps a view
    says so by `share`. Both are found out in front of the next update, by a look at each leaf. Then
    the arena moves: all values go to a new array, and the old one stays to those who hold it. A
    leaf for which that happens in two updates one after the other, as in a model that transposes
    its weights, is *apart* from then on, and copied alone; a new arena of the others is to be made.

    A replica touches its own copies only, so that no lock is needed. An array is made in front of
    the first update: until then a checkpoint, or another model, may hold those that variables were
    created with. Where an update changes a variable by itself, or two arenas have it, each finds
    its place empty, and takes the value as it is.

    Args:
        cells: Where the values are: such as `may_join`, of one dtype, with as many copies each.

    Attributes:
        is_outdated: Whether one of the variables is apart by now. The arena works all the same.
    """

    __slots__ = ("_cells", "_copies", "is_outdated")

    def __init__(self, cells: Sequence[Cell]) -> None:
        self._cells = tuple(cells)
        self._copies = [_Copy(cells, index) for index in range(len(cells[0].leaves))]
        self.is_outdated = False

    def update(
        self, gradient: Array, slots: Sequence[Arena], how: RuleStep, local_index: int
    ) -> None:
        """As `Cell.update`, for all variables at once.

        Args:
            gradient: One-dimensional: those of all, one behind the other.
            slots: Arenas of the variables' slots.
        """
        if local_index and len(self._copies) == 1:
            return
        here = how.on(self._cells[0].device(local_index))
        if here is None:
            return
        values = self._writable(local_index)
        here.change(values, gradient, [slot._writable(local_index) for slot in slots])

    def _writable(self, local_index: int) -> Array:
        """The array of one copy, about to be overwritten."""
        copy = self._copies[local_index]
        if copy.is_whole():
            copy.note_change()
            return copy.array
        for index in copy.settle():
            self._cells[index].is_apart = self.is_outdated = True
        return copy.array


class _Copy:
    """The array of one copy, and the leaves that have places in it."""

    __slots__ = ("_device", "_leaves", "_left", "_places", "array")

    def __init__(self, cells: Sequence[Cell], index: int) -> None:
        self._device = cells[0].device(index)
        self._leaves = [cell.leaves[index] for cell in cells]
        self._places: list[Array] = []
        self._left: frozenset[int] = frozenset()
        self.array: Array

    def is_whole(self) -> bool:
        """Whether all leaves are in their places, and nobody holds one."""
        if not self._places:
            return False
        for leaf, place in zip(self._leaves, self._places):  # noqa: B905 (made alike, and hot)
            if leaf.data is not place or not leaf.is_free:
                return False
        return True

    def note_change(self) -> None:
        """Note that the array, which is whole, is about to be overwritten."""
        note_change(self._leaves)
        self._left = frozenset()

    def settle(self) -> frozenset[int]:
        """Make it whole, for a change; return which leaves had left, or were shared, twice."""
        for leaf in self._leaves:
            leaf.end_loan()
        if not self._places:  # the first time
            self._move()
            return frozenset()
        places = zip(self._leaves, self._places, strict=True)
        left = frozenset(
            i for i, (leaf, place) in enumerate(places) if leaf.data is not place or leaf.is_shared
        )
        if left:
            self._move()
        else:
            note_change(self._leaves)
        again, self._left = self._left & left, left
        return again

    def _move(self) -> None:
        """Let all values lie in a new array; who holds the old ones keeps them."""
        shapes, like = [leaf.data.shape for leaf in self._leaves], self._leaves[0].data
        with self._device.use():
            array = np.empty(sum(map(math.prod, shapes)), like.dtype, like=like)
        places = cut(array, shapes)
        for leaf, place in zip(self._leaves, places, strict=True):
            place[...] = leaf.data
            leaf.move(place)
        self.array, self._places = array, places
