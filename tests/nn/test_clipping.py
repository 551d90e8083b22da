"""Gradient clipping, dense and sparse."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices
from paceline.nn.optimizers import clip_by_global_norm, clip_by_norm, clip_by_value, global_norm


def slices():
    """Row 1 occurs twice: as a dense gradient it is [[0, 0], [3, 0], [0, 0], [0, 4]]."""
    values = np.array([[1.0, 1.0], [0.0, 4.0], [2.0, -1.0]])
    return IndexedSlices(values, np.array([1, 3, 1]), (4, 2))


def dense(gradient):
    return gradient.to_dense() if isinstance(gradient, IndexedSlices) else gradient


BOTH = pytest.mark.parametrize("form", [lambda: slices(), lambda: slices().to_dense()])


def test_clip_by_value_cuts_each_element():
    clipped = clip_by_value(np.array([-3.0, 0.5, 2.0]), -1, 1)
    np.testing.assert_array_equal(clipped, [-1, 0.5, 1])


@BOTH
def test_clip_by_value_cuts_the_sum_of_a_row_that_occurs_twice(form):
    clipped = dense(clip_by_value(form(), -2, 2))
    np.testing.assert_array_equal(clipped, [[0, 0], [2, 0], [0, 0], [0, 2]])


def test_clip_by_value_refuses_bounds_that_make_no_sense():
    with pytest.raises(ValueError, match="clip_value_min must not be above"):
        clip_by_value(np.zeros(2), 1, -1)
    with pytest.raises(ValueError, match="zero is not between 1 and 2"):
        clip_by_value(slices(), 1, 2)


@BOTH
@pytest.mark.parametrize(("limit", "scale"), [(10.0, 1.0), (5.0, 1.0), (2.5, 0.5)])
def test_clip_by_norm_scales_down_and_never_up(form, limit, scale):
    np.testing.assert_allclose(
        dense(clip_by_norm(form(), limit)), scale * slices().to_dense(), rtol=1e-15
    )


@BOTH
def test_clip_by_global_norm_scales_all_by_one_factor(form):
    gradients = [form(), None, np.array([12.0])]
    clipped, norm = clip_by_global_norm(gradients, 6.5)
    assert norm == 13.0
    np.testing.assert_allclose(dense(clipped[0]), 0.5 * slices().to_dense())
    assert clipped[1] is None
    np.testing.assert_allclose(clipped[2], [6.0])


def test_a_known_norm_is_used():
    clipped, norm = clip_by_global_norm([np.array([1.0])], 1.0, use_norm=4.0)
    assert norm == 4.0
    np.testing.assert_array_equal(clipped[0], [0.25])


def test_a_norm_that_is_not_finite_spoils_all_gradients():
    clipped, norm = clip_by_global_norm([np.array([math.inf]), np.array([1.0])], 1.0)
    assert math.isinf(norm)
    assert all(np.isnan(g).all() for g in clipped)


def test_the_norm_is_added_up_in_float64():
    values = np.full(10_000, 1e-3, np.float32)
    assert global_norm([values]) == pytest.approx(float(np.float32(1e-3)) * 100, rel=1e-12)


def test_gradients_stay_as_they_are_and_keep_their_dtype():
    gradient = np.array([3.0, 4.0], np.float32)
    clipped = clip_by_norm(gradient, 1.0)
    assert clipped.dtype == np.float32
    np.testing.assert_array_equal(gradient, [3, 4])


def test_a_norm_of_zero_is_refused():
    with pytest.raises(ValueError, match="clip_norm must be positive, it is 0"):
        clip_by_norm(np.zeros(1), 0)
