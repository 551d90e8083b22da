"""Rows of a leaf get sparse gradients; everything else that is read gets a dense one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices, Tensor, backward, distinct_rows


def table(*shape: int) -> Tensor:
    return Tensor(np.arange(float(np.prod(shape))).reshape(shape), requires_grad=True)


ROW_READS = [
    pytest.param(lambda x, rows: np.take(x, rows, axis=0), id="take"),
    pytest.param(lambda x, rows: x[rows], id="getitem"),
]


@pytest.mark.parametrize("read", ROW_READS)
@pytest.mark.parametrize("shape", [(5,), (5, 2), (5, 2, 3)])
@pytest.mark.parametrize("rows", [[1, 3], [[4, 1], [1, 1]], [-1, 0, 4], []])
def test_rows_of_a_leaf_give_indexed_slices(read: Any, shape: tuple[int, ...], rows: Any) -> None:
    x = table(*shape)
    positions = np.array(rows, np.int64)
    y = read(x, positions)
    weights = np.cos(np.arange(float(y.size))).reshape(y.shape)
    gradient = backward(y * weights)[x]
    assert isinstance(gradient, IndexedSlices)
    assert gradient.shape == shape
    assert gradient.values.shape == (positions.size, *shape[1:])
    expected = np.zeros(shape)
    np.add.at(expected, positions, weights)
    np.testing.assert_allclose(gradient.to_dense(), expected)


@pytest.mark.parametrize("read", ROW_READS)
def test_rows_of_a_result_give_a_dense_gradient(read: Any) -> None:
    x = table(4, 2)
    gradient = backward(np.sum(read(x * 1.0, np.array([1, 1]))))[x]
    np.testing.assert_array_equal(gradient, [[0, 0], [2, 2], [0, 0], [0, 0]])


def test_slices_of_several_reads_are_put_together() -> None:
    x = table(5, 2)
    gradient = backward(np.sum(x[np.array([1, 2])]) + 3 * np.sum(x[np.array([2, 0])]))[x]
    assert isinstance(gradient, IndexedSlices)
    np.testing.assert_array_equal(gradient.to_dense()[:, 0], [3, 1, 4, 0, 0])


def test_unique_sums_the_rows_that_occur_more_than_once() -> None:
    slices = IndexedSlices(np.arange(8.0).reshape(4, 2), np.array([3, 1, 3, 0]), (5, 2))
    unique = slices.unique()
    np.testing.assert_array_equal(unique.indices, [0, 1, 3])
    np.testing.assert_array_equal(unique.values, [[6, 7], [2, 3], [4, 6]])
    np.testing.assert_array_equal(unique.to_dense(), slices.to_dense())
    assert unique.values.dtype == slices.dtype


@pytest.mark.parametrize("dtype", [np.int64, np.int32, np.uint64, np.int8])
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [5],
        [3, 1, 3, 0, 1, 3],
        [7] * 9,
        np.random.default_rng(0).integers(0, 90, 1000),
        [2**62, 1, 2**62, 2**63 - 1],
        [-3, 4, -3, -(2**63)],
    ],
    ids=["none", "one", "some", "the same", "many", "huge", "below 0"],
)
def test_distinct_rows_are_what_numpy_finds(rows: Any, dtype: Any) -> None:
    numbers = np.array(rows, np.int64).astype(dtype)
    found = distinct_rows(numbers)
    for ours, theirs in zip(found, np.unique(numbers, return_inverse=True), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


def test_unique_of_nothing_is_nothing() -> None:
    empty = IndexedSlices(np.zeros((0, 2)), np.zeros(0, np.int64), (5, 2))
    assert len(empty.unique().indices) == 0
    assert not empty.to_dense().any()


def test_slices_add_to_a_dense_array_in_place_in_any_memory_order() -> None:
    slices = IndexedSlices(np.ones((3, 2)), np.array([2, 0, 2]), (3, 2))
    for dense in (np.zeros((3, 2)), np.zeros((2, 3)).T, np.zeros((6, 2))[::2]):
        assert slices.add_to(dense) is dense
        np.testing.assert_array_equal(dense, [[1, 1], [0, 0], [2, 2]])


def test_slices_tell_what_they_are() -> None:
    slices = IndexedSlices(np.ones((3, 2), np.float32), np.array([2, 0, 2]), (9, 2))
    assert repr(slices) == "IndexedSlices(3 rows of (9, 2))"
    assert slices.dtype == np.float32


def test_an_index_may_be_a_tensor_of_whole_numbers() -> None:
    x = table(3, 2)
    for y in (x[Tensor(np.array([1]))], np.take(x, Tensor(np.array([1])), axis=0)):
        np.testing.assert_array_equal(y.data, [[2, 3]])


@pytest.mark.parametrize("index", [3, -4, (0, 2), np.array([0, 3]), [3]])
@pytest.mark.host
def test_an_index_out_of_range_is_an_error(index: Any) -> None:
    with pytest.raises(IndexError, match="out of bounds"):
        table(3, 2)[index]


@pytest.mark.parametrize("index", [[], np.zeros((0, 3), np.int64), slice(2, 2), np.zeros(3, bool)])
def test_nothing_can_be_read(index: Any) -> None:
    x = table(3, 2)
    y = x[index]
    assert y.size == 0
    gradient = backward(np.sum(y))[x]
    dense = gradient.to_dense() if isinstance(gradient, IndexedSlices) else gradient
    np.testing.assert_array_equal(dense, np.zeros((3, 2)))


def test_reading_bit_by_bit_costs_one_array() -> None:
    """Each step of a recurrent network reads one slice; their gradients go into one array."""
    x = table(3, 50, 2) * 1.0
    found = backward(sum(np.sum(x[:, t]) * t for t in range(50)), keep=[x])
    np.testing.assert_array_equal(found[x][1, :, 1], np.arange(50.0))
