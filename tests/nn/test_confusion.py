"""Counts at thresholds and the areas under their curves, as pure functions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from paceline.nn.metrics import confusion as c

THRESHOLDS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])
LABELS = np.array([1, 0, 1, 1, 0, 0, 1])
# Several predictions lie exactly on a threshold, which is not above it.
PREDICTIONS = np.array([0.9, 0.5, 0.5, 0.25, 0.0, 0.3, 1.0])


def by_hand(labels, predictions, weights, thresholds):
    rows = []
    for threshold in thresholds:
        above = predictions > threshold
        rows.append(
            [
                weights[(labels == label) & (above == a)].sum()
                for label, a in ((1, True), (0, True), (1, False), (0, False))
            ]
        )
    return np.array(rows).T


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weights", [None, np.arange(1.0, 8.0)])
def test_counts_are_those_of_a_comparison_with_each_threshold(weights, dtype):
    counts = c.histogram("m", LABELS, PREDICTIONS.astype(dtype), THRESHOLDS, weights)
    assert counts.shape == (2, len(THRESHOLDS) + 1)
    ones = np.ones(7) if weights is None else weights
    expected = by_hand(LABELS, PREDICTIONS, ones, THRESHOLDS)
    np.testing.assert_array_equal(np.stack(c.confusion(counts)), expected)


@given(
    arrays(np.int64, 20, elements=st.integers(0, 1)),
    arrays(np.float64, 20, elements=st.floats(0, 1)),
    st.integers(2, 9),
)
def test_counts_are_those_of_a_comparison_for_any_data(labels, predictions, num_thresholds):
    thresholds = c.evenly_spaced(num_thresholds)
    counts = c.histogram("m", labels, predictions, thresholds)
    expected = by_hand(labels, predictions, np.ones(20), thresholds)
    np.testing.assert_array_equal(np.stack(c.confusion(counts)), expected)


def test_a_float32_prediction_on_a_threshold_is_not_above_it():
    counts = c.histogram("m", np.array([1]), np.array([0.3], np.float32), np.array([0.3]))
    assert c.confusion(counts).true_positives.tolist() == [0.0]


def test_the_ends_of_even_thresholds_lie_just_outside_the_range():
    thresholds = c.evenly_spaced(5)
    assert thresholds == pytest.approx([0, 0.25, 0.5, 0.75, 1], abs=1e-6)
    assert thresholds[0] < 0
    assert thresholds[-1] > 1


@pytest.mark.parametrize(
    ("summation", "roc"), [("interpolation", 0.75), ("minoring", 0.5), ("majoring", 1.0)]
)
def test_the_area_under_roc_by_hand(summation, roc):
    counts = c.histogram(
        "m", np.array([0, 0, 1, 1]), np.array([0, 0.5, 0.3, 0.9]), c.evenly_spaced(3)
    )
    # Points (fallout, recall): (1, 1), (0, 0.5), (0, 0).
    assert c.area_under_roc(c.confusion(counts), summation) == pytest.approx(roc)


def test_the_area_under_pr_of_one_jump_is_davis_and_goadrichs_integral():
    # From (5 hits of 10) to (15 hits of 40 positives), out of 20, the example of their paper: true
    # positives grow by 1 for every 3 positives, so the area is the integral of tp / p over recall.
    tp, p = np.array([15.0, 5.0]), np.array([40.0, 10.0])
    counts = c.Confusion(tp, p - tp, 20 - tp, np.zeros(2))
    hits = np.linspace(5, 15, 100_001)
    precision = hits / (10 + 3 * (hits - 5))
    expected = np.trapezoid(precision, hits / 20)
    assert c.area_under_pr(counts) == pytest.approx(expected, rel=1e-9)


def test_areas_under_pr_of_negative_weights_count_nothing():
    """Keras cuts the counts that its fractions divide by to 0."""
    counts = c.histogram("auc", LABELS, PREDICTIONS, THRESHOLDS)
    assert c.area_under_pr(c.confusion(counts)) > 0
    assert c.area_under_pr(c.confusion(-counts)) == 0


def test_the_area_under_roc_is_the_share_of_pairs_in_order_where_thresholds_tell_all_apart():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 300)
    predictions = rng.permutation(300) / 300 * 0.9 + 0.05 * labels
    thresholds = np.unique([-1e-7, *(predictions - 1e-9), 1 + 1e-7])
    counts = c.confusion(c.histogram("m", labels, predictions, thresholds))
    positives, negatives = predictions[labels == 1], predictions[labels == 0]
    expected = np.mean(positives[:, None] > negatives)  # Mann and Whitney's statistic
    assert c.area_under_roc(counts) == pytest.approx(expected, rel=1e-12)
