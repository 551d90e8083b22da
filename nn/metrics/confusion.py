"""Counts of right and wrong predictions at thresholds, and the areas under their curves.

What is counted is a histogram: between which two thresholds a prediction lies, for the positive
examples and for the negative ones. It is additive, and one pass over a batch whatever the number of
thresholds; true and false positives and negatives at every threshold are sums over it.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import numpy as np

from ...autodiff import Array, IndexedSlices
from ..shapes import like_predictions, like_values


class Confusion(NamedTuple):
    """Weighted counts, each an array with one entry for each threshold."""

    true_positives: np.ndarray
    false_positives: np.ndarray
    false_negatives: np.ndarray
    true_negatives: np.ndarray


def histogram(
    name: str,
    y_true: Array,
    y_pred: Array,
    thresholds: np.ndarray,
    sample_weight: Array | None = None,
    by_label: bool = False,
) -> Array:
    """Weighted counts of examples by label and by the number of thresholds below the prediction.

    On a GPU, which is not waited for to look at values, all counts are "not a number" where labels
    or predictions are refused on the host.

    Args:
        name: Of the metric, for messages.
        y_true: Labels 0 or 1.
        y_pred: Predictions in [0, 1], of the labels' shape.
        thresholds: (k,) float64, rising.
        sample_weight: One for each example or each prediction.
        by_label: Whether each column of (n, labels) predictions has counts of its own.

    Returns:
        (2, k + 1) float64: negatives, positives. Bin i: predictions above exactly i thresholds. By
        label (2, labels, k + 1).
    """
    labels = like_predictions(name, y_true, y_pred)
    is_positive = labels == 1
    are_labels = (is_positive | (labels == 0)).all()
    are_shares = ((y_pred >= 0) & (y_pred <= 1)).all()
    on_host = isinstance(y_pred, np.ndarray)
    if on_host and not are_labels:
        raise ValueError(f"{name}: labels must be 0 or 1, y_true holds others")
    if on_host and not are_shares:
        raise ValueError(
            f"{name}: predictions must be in [0, 1], y_pred holds others; "
            f"pass probabilities, such as sigmoid(logits)"
        )
    num_bins = len(thresholds) + 1
    num_labels = y_pred.shape[1] if by_label else 1
    # In the predictions' own dtype: a float32 prediction of 0.3 is not above the threshold 0.3.
    dtype = y_pred.dtype if y_pred.dtype.kind == "f" else thresholds.dtype
    wide = np.result_type(dtype, np.float32)  # CuPy searches no halves
    limits = np.asarray(thresholds.astype(dtype), wide, like=y_pred)
    bins = np.searchsorted(limits, y_pred.reshape(-1).astype(wide, copy=False), side="left")
    # One histogram for all: behind the bins of a label's negative examples are the positive ones.
    bins += num_bins * is_positive.reshape(-1)
    if by_label:
        bins += 2 * num_bins * (np.arange(y_pred.size, like=bins) % num_labels)
    weight = None
    if sample_weight is not None:
        weight = like_values(name, sample_weight, y_pred).astype(np.float64, copy=False)
        weight = np.broadcast_to(weight, y_pred.shape).reshape(-1)
    counts = added_up(bins, weight, 2 * num_bins * num_labels)
    if not on_host:
        counts = np.where(are_labels & are_shares, counts, np.nan)
    counts = counts.reshape(num_labels, 2, num_bins)
    return counts.swapaxes(0, 1) if by_label else counts[0]


def added_up(bins: Array, weight: Array | None, num_bins: int) -> Array:
    """The sum of the weights of each bin, in float64; each counts 1 where none are given."""
    if isinstance(bins, np.ndarray):
        return np.bincount(bins, weight, num_bins).astype(np.float64, copy=False)
    # CuPy's `bincount` waits, to know of the largest bin.
    each = np.ones_like(bins, dtype=np.float64) if weight is None else weight
    return IndexedSlices(each, bins, (num_bins,)).to_dense()


def confusion(counts: np.ndarray) -> Confusion:
    """The four counts at each threshold, where a prediction above the threshold is a positive."""
    # Bin i is above thresholds 0 … i - 1: sums from the right count what is above a threshold, sums
    # from the left what is not.
    above = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1][:, 1:]
    below = np.cumsum(counts, axis=1)[:, :-1]
    return Confusion(above[1], above[0], below[1], below[0])


def precision(c: Confusion) -> np.ndarray:
    """The share of positive examples among those predicted positive."""
    return ratio(c.true_positives, c.true_positives + c.false_positives)


def sensitivity(c: Confusion) -> np.ndarray:
    """The share of those predicted positive among positive examples: recall."""
    return ratio(c.true_positives, c.true_positives + c.false_negatives)


def specificity(c: Confusion) -> np.ndarray:
    """The share of those not predicted positive among negative examples."""
    return ratio(c.true_negatives, c.true_negatives + c.false_positives)


def ratio(part: Array, whole: Array) -> Array:
    """`part / whole`, and 0 where the whole is 0."""
    is_none = whole == 0
    return np.where(is_none, 0.0, part / np.where(is_none, 1.0, whole))


@cache
def evenly_spaced(num_thresholds: int) -> np.ndarray:
    """Thresholds from just below 0 to just above 1, as Keras spaces them; not to be written to."""
    inner = [i / (num_thresholds - 1) for i in range(1, num_thresholds - 1)]
    return np.array([-1e-7, *inner, 1 + 1e-7])


def area_under_roc(c: Confusion, summation: str = "interpolation") -> float:
    """The area under the curve of recall over the share of false positives, at rising thresholds.

    "interpolation" joins the points by lines, "minoring" and "majoring" take the lower and the
    higher end of each interval.
    """
    fallout = ratio(c.false_positives, c.false_positives + c.true_negatives)
    return _area(fallout, sensitivity(c), summation)


def area_under_pr(c: Confusion, summation: str = "interpolation") -> float:
    """The area under the curve of precision over recall.

    Between two thresholds precision is no line in recall; "interpolation" goes along the curve that
    Davis and Goadrich (2006) derive, where true positives are linear in all positives.
    """
    positives = c.true_positives + c.false_positives
    labelled = c.true_positives + c.false_negatives
    if summation != "interpolation":
        return _area(sensitivity(c), precision(c), summation)
    gained_hits = c.true_positives[:-1] - c.true_positives[1:]
    # Counts of negative weights are cut to 0, as Keras does.
    slope = ratio(gained_hits, np.maximum(positives[:-1] - positives[1:], 0))
    offset = c.true_positives[1:] - slope * positives[1:]
    both = (positives[:-1] > 0) & (positives[1:] > 0)
    growth = np.where(both, ratio(positives[:-1], positives[1:]), 1.0)
    pieces = slope * (gained_hits + offset * np.log(growth))
    return float(np.sum(ratio(pieces, np.maximum(labelled[1:], 0))))


def _area(x: np.ndarray, y: np.ndarray, summation: str) -> float:
    """The area under points whose x falls with the threshold."""
    if summation == "minoring":
        heights = np.minimum(y[:-1], y[1:])
    elif summation == "majoring":
        heights = np.maximum(y[:-1], y[1:])
    else:
        heights = (y[:-1] + y[1:]) / 2
    return float(np.sum((x[:-1] - x[1:]) * heights))
