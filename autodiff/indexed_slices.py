"""Gradients of arrays of which only a part was read."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..kernels import compiled_loop
from .creation import filled
from .fusion import fused
from .numerics import is_half, narrowed, widened
from .tensor_like import Array


class IndexedSlices:
    """The gradient of an array of which only rows were read: the rows' numbers and their gradients.

    Args:
        values: (n, ...) the gradient of each row that was read.
        indices: (n,) int from 0, which row of the array each belongs to; a row may occur more than
            once, its gradient is the sum.
        dense_shape: The shape of the whole array.
        distinct: What `distinct_rows` says of `indices`, if that is known already.
    """

    __slots__ = ("_distinct", "_is_unique", "dense_shape", "indices", "values")

    def __init__(
        self,
        values: Array,
        indices: Array,
        dense_shape: tuple[int, ...],
        distinct: tuple[Array, Array] | None = None,
    ) -> None:
        self.values = values
        self.indices = indices
        self.dense_shape = dense_shape
        self._distinct = distinct
        self._is_unique = False

    def __repr__(self) -> str:
        return f"IndexedSlices({len(self.indices)} rows of {self.dense_shape})"

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dense_shape

    def with_values(self, values: Array) -> IndexedSlices:
        """Other values of the same rows."""
        return IndexedSlices(values, self.indices, self.dense_shape, self._distinct)

    def add_to(self, other: Any) -> Any:
        """The sum of this and a dense array (overwritten) or other slices (left as they are)."""
        if isinstance(other, IndexedSlices):
            return IndexedSlices(
                np.concatenate([other.values, self.values]),
                np.concatenate([other.indices, self.indices]),
                self.dense_shape,
            )
        if isinstance(other, np.ndarray):
            _add_rows(other, _on_host(self.indices), _on_host(self.values))
        else:
            _add_rows_by_sorting(other, self.indices, self.values)
        return other

    def unique(self) -> IndexedSlices:
        """The same gradient with every row at most once, in rising order.

        A row's gradients are summed in the order in which they occur.
        """
        if not isinstance(self.indices, np.ndarray):
            return self._unique_by_sorting()
        if bool((self.indices[1:] > self.indices[:-1]).all()):
            return self
        indices, position = self._distinct or distinct_rows(self.indices)
        shape = (len(indices), *self.dense_shape[1:])
        values = np.zeros(shape, self.values.dtype, like=self.values)
        _add_rows(values, position, self.values)
        return IndexedSlices(values, indices, self.dense_shape)

    def _unique_by_sorting(self) -> IndexedSlices:
        """The same on a GPU, where `np.add.at` would add up in any order.

        It waits once for the device, which alone knows how many rows there are.
        """
        if self._is_unique or not len(self.indices):
            return self
        rows, sums, is_last = _sums_of_runs(self.indices, self.values)
        ends = np.flatnonzero(is_last)
        found = IndexedSlices(sums[ends], rows[ends], self.shape)
        found._is_unique = True
        return found

    def repeated(self) -> IndexedSlices:
        """The same for who overwrites rows, on a GPU: a row that occurs twice has its sum twice.

        Both then write the same. How many rows there are is not asked.
        """
        if self._is_unique or not len(self.indices):
            return self
        rows, sums, _ = _sums_of_runs(self.indices, self.values)
        last = np.searchsorted(rows, rows, side="right") - 1
        return IndexedSlices(sums[last], rows, self.shape)

    def to_dense(self) -> Array:
        """The whole array, zero in every row that was not read."""
        dense = np.zeros(self.dense_shape, self.values.dtype, like=self.values)
        return self.add_to(dense)


def distinct_rows(rows: Array) -> tuple[Array, Array]:
    """The different ones of row numbers, rising, and for each of `rows` its position among them.

    What `np.unique` finds, in half the time for some thousands: what is sorted are numbers that
    have the row in front and the position behind, instead of positions by their rows.

    Args:
        rows: (n,) integers of NumPy.
    """
    num_bits = len(rows).bit_length()
    keys = rows.astype(np.int64)
    # A number below 0 is a large one here: neither has room for a position behind it.
    if not len(rows) or int(keys.view(np.uint64).max()) >> (63 - num_bits):
        return np.unique(rows, return_inverse=True)
    keys <<= num_bits
    keys += np.arange(len(rows))
    keys.sort()
    in_order = keys >> num_bits
    is_first = np.ones(len(rows), bool)
    np.not_equal(in_order[1:], in_order[:-1], out=is_first[1:])
    position = np.empty(len(rows), np.int64)
    position[keys & ((1 << num_bits) - 1)] = np.cumsum(is_first) - 1
    return in_order[is_first].astype(rows.dtype, copy=False), position


class Patch:
    """The gradient of `array[index]`, on its way to the gradient of the whole array.

    A vjp returns it where a dense gradient would be nearly all zeros: reading an array bit by bit,
    as a recurrent network does, then costs one pass over it and not one for each bit. `index` is
    anything that NumPy takes between the brackets; it `may_repeat` an element.
    """

    __slots__ = ("index", "may_repeat", "values")

    def __init__(self, values: Array, index: Any, may_repeat: bool = False) -> None:
        self.values = values
        self.index = index
        self.may_repeat = may_repeat

    def add_to(self, dense: Array) -> Array:
        """The sum of this and a dense array, which is overwritten."""
        if not self.may_repeat:
            dense[self.index] += self.values
        elif isinstance(dense, np.ndarray):
            np.add.at(dense, self.index, self.values)
        else:
            numbers = np.arange(dense.size, like=dense).reshape(dense.shape)[self.index]
            values = np.broadcast_to(self.values, numbers.shape)
            flat = dense.reshape(-1)  # a view: dense gradients are contiguous
            _add_rows_by_sorting(flat, numbers.reshape(-1), values.reshape(-1))
        return dense


def _on_host(array: Array) -> np.ndarray:
    """Rows of what the host keeps may have been read on a card, and the rest of it here."""
    return array if isinstance(array, np.ndarray) else array.get()


def _add_rows(dense: Array, rows: Array, values: Array) -> None:
    """Add each of `values` to its row, in order; `np.add.at` is fast in one dimension only."""
    if dense.ndim == 1 or not dense.flags.c_contiguous:
        np.add.at(dense, rows, values)
        return
    # Not `dense[rows] += values`, which adds a row that occurs twice only once.
    width = math.prod(dense.shape[1:])
    table, lines = dense.reshape(len(dense), width), values.reshape(len(rows), width)
    loop = compiled_loop("add_rows", lines, table)
    # The loop checks no bounds; what lies outside, or counts from the end, is left to NumPy.
    if loop is not None and rows.size and rows.min() >= 0 and rows.max() < len(dense):
        loop(lines, table, np.ascontiguousarray(rows, np.int64))
        return
    elements = rows[:, None] * width + np.arange(width, like=rows)
    np.add.at(dense.reshape(-1), elements.reshape(-1), values.reshape(-1))


def _add_rows_by_sorting(dense: Array, rows: Array, values: Array) -> None:
    """The same on a GPU, in one order in all runs, and without waiting for the number of rows.

    Atomic additions come in any order. Here only the last of each row's has a sum to add, and the
    others have zeros.
    """
    if not len(rows):
        return
    rows, sums, is_last = _sums_of_runs(rows, values)
    sums = np.where(is_last.reshape(-1, *(1,) * (sums.ndim - 1)), sums, 0)
    if not is_half(dense):
        np.add.at(dense, rows, sums)
        return
    wide = dense.astype(np.float32)  # there is no atomic addition of float16
    np.add.at(wide, rows, sums.astype(np.float32))
    dense[...] = wide.astype(dense.dtype)


def _sums_of_runs(rows: Array, values: Array) -> tuple[Array, Array, Array]:
    """Rows sorted, for each the sum of its values so far, and where the last of each row is.

    Sums grow by doubling: first each has one before it added, then two, and so on (Hillis and
    Steele, "Data parallel algorithms", 1986), each of these steps one kernel. CuPy's own
    `add.reduceat` subtracts sums over all rows before: small gradients would drown in them, and one
    that is not a number would spoil the rest.
    """
    order = np.argsort(rows, kind="stable")
    rows, values = rows[order], values[order]
    wide = widened(values)
    length = len(rows)
    # In front of the first row lie zeros of no row, as many as the longest step reaches back.
    lead = 1 << (length - 1).bit_length() >> 1
    sums, more = (np.zeros((lead + length, *wide.shape[1:]), wide.dtype, like=wide) for _ in "ab")
    keys = filled((lead + length, *(1,) * (wide.ndim - 1)), -1, rows.dtype, rows)
    keys[lead:] = rows.reshape(keys[lead:].shape)
    sums[lead:] = wide
    distance = 1
    while distance < length:
        before = slice(lead - distance, -distance)
        fused(_add_same, more[lead:], sums[lead:], sums[before], keys[lead:], keys[before])
        sums, more, distance = more, sums, 2 * distance
    is_last = filled(length, True, np.bool_, rows)
    is_last[:-1] = rows[1:] != rows[:-1]
    return rows, narrowed(sums[lead:], values), is_last


def _add_same(more: Array, sums: Array, before: Array, keys: Array, keys_before: Array) -> None:
    more[...] = sums + np.where(keys == keys_before, before, 0)
