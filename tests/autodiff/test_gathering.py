"""Parts by tables of positions, and what they refuse. Gradients: see the table of cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.autodiff import Tensor, gather, gather_nd, scatter_nd, segment, top_k

X = np.arange(24.0).reshape(2, 3, 4)


def test_gather_takes_a_table_for_each_example() -> None:
    table = np.array([[3, 0], [1, 1]])
    expected = np.stack([np.take(x, rows, axis=1) for x, rows in zip(X, table, strict=True)])
    np.testing.assert_array_equal(gather(X, table, axis=2, batch_dims=1).data, expected)
    of_pairs = np.array([[[3], [0], [1]], [[2], [2], [2]]])
    found = gather(Tensor(X), of_pairs, axis=-1, batch_dims=2)
    np.testing.assert_array_equal(found.data, np.take_along_axis(X, of_pairs, -1))


def test_gather_nd_takes_elements_or_slices() -> None:
    np.testing.assert_array_equal(gather_nd(X, [[0, 1, 2], [1, 2, 3]]).data, [6, 23])
    np.testing.assert_array_equal(gather_nd(X, [[1]]).data, X[[1]])
    np.testing.assert_array_equal(
        gather_nd(X, [[[0, 0]], [[1, 2]]]).data, X[[[0], [1]], [[0], [2]]]
    )


def test_scatter_nd_adds_up_what_meets() -> None:
    found = scatter_nd([[1], [1], [3]], np.array([1.0, 2, 5]), (4,))
    np.testing.assert_array_equal(found.data, [0, 3, 0, 5])
    found = scatter_nd(np.array([[0, 1]]), np.array([[1.0, 2]]), [1, 2, 2])
    np.testing.assert_array_equal(found.data, [[[0, 0], [1, 2]]])


ROWS = np.array([[1.0, -2], [3, 4], [5, -6]])


@pytest.mark.parametrize(
    ("reduction", "expected"),
    [
        ("sum", [[6, -8], [0, 0], [3, 4]]),
        ("mean", [[3, -4], [0, 0], [3, 4]]),
        ("max", [[5, -2], [np.finfo(float).min] * 2, [3, 4]]),
        ("min", [[1, -6], [np.finfo(float).max] * 2, [3, 4]]),
        ("prod", [[5, 12], [1, 1], [3, 4]]),
    ],
)
def test_segments_are_brought_together(reduction: Any, expected: Any) -> None:
    found = segment(ROWS, [0, 2, 0], 3, reduction)
    np.testing.assert_array_equal(found.data, expected)
    np.testing.assert_array_equal(segment(ROWS, [0, 2, 0], reduction=reduction).data, expected)
    left_out = segment(ROWS, np.array([-1, 1, -5]), 2, reduction)
    np.testing.assert_array_equal(left_out.data, [expected[1], ROWS[1]])
    assert segment(ROWS[:0], [], 2, reduction).shape == (2, 2)


def test_the_largest_come_first_and_of_equal_ones_the_first() -> None:
    values, positions = top_k(np.array([[1.0, 3, 3, 2], [0, 0, 0, 0]]), 3)
    np.testing.assert_array_equal(values.data, [[3, 3, 2], [0, 0, 0]])
    np.testing.assert_array_equal(positions, [[1, 2, 3], [0, 1, 2]])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: gather(X, [[0]], 1, 1), ValueError, r"begin with \(2,\); got axis 1.*\(1, 1\)"),
        (lambda: gather(X, [[0], [1]], 0, 1), ValueError, "an axis behind these"),
        (lambda: gather_nd(X, [[0, 0, 0, 0]]), ValueError, "k <= 3"),
        (lambda: gather_nd(X, [[0.5]]), TypeError, "whole numbers for indices, got float64"),
        (lambda: scatter_nd([[0]], np.ones(2), (3,)), ValueError, r"shape \(1,\), got \(2,\)"),
        (lambda: segment(ROWS, [0, 1]), ValueError, r"\(3,\) segment_ids are needed, got \(2,\)"),
        (lambda: segment(ROWS, [0, 1, 5], 3), ValueError, "the number 5 of 3"),
        (lambda: segment(ROWS, [0, 1, 2], 3, "any"), ValueError, "not any"),
        (lambda: top_k(np.ones(2), 3), ValueError, "k=3 must be at most"),
    ],
)
def test_what_does_not_fit_is_refused(call: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        call()
