"""Metrics of what lies on a GPU count there, and give what they give on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.nn import metrics
from paceline.nn.masks import with_mask

from .strict_cupy import counted, to_device

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(12, 4)).astype(np.float32)
SHARES = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
CLASSES = RNG.integers(0, 4, 12)
ONE_HOT = np.eye(4, dtype=np.float32)[CLASSES]
WEIGHTS = RNG.random(12).astype(np.float32)
TIED = np.round(SHARES * 4) / 4
MASK = np.array([True, False, True] * 4)

CASES = {
    "Mean": (lambda: metrics.Mean(), (SCORES,)),
    "Accuracy": (lambda: metrics.Accuracy(), (CLASSES, np.argmax(SCORES, axis=1))),
    "BinaryAccuracy": (lambda: metrics.BinaryAccuracy(), (ONE_HOT, SHARES)),
    "CategoricalAccuracy": (lambda: metrics.CategoricalAccuracy(), (ONE_HOT, SCORES)),
    "SparseCategoricalAccuracy": (lambda: metrics.SparseCategoricalAccuracy(), (CLASSES, SCORES)),
    "of labels in floats": (
        lambda: metrics.SparseCategoricalAccuracy(),
        (CLASSES.astype(np.float32), SCORES),
    ),
    "TopKCategoricalAccuracy": (lambda: metrics.TopKCategoricalAccuracy(2), (ONE_HOT, SCORES)),
    "SparseTopK": (lambda: metrics.SparseTopKCategoricalAccuracy(2), (CLASSES, SCORES)),
    "MeanSquaredError": (lambda: metrics.MeanSquaredError(), (ONE_HOT, SHARES)),
    "RootMeanSquaredError": (lambda: metrics.RootMeanSquaredError(), (ONE_HOT, SHARES)),
    "CategoricalCrossentropy": (lambda: metrics.CategoricalCrossentropy(), (ONE_HOT, SHARES)),
    "SparseCategoricalCrossentropy": (
        lambda: metrics.SparseCategoricalCrossentropy(),
        (CLASSES, SHARES),
    ),
    "Hinge": (lambda: metrics.Hinge(), (ONE_HOT, SCORES)),
    "Sum": (lambda: metrics.Sum(), (SCORES,)),
    "MeanTensor": (lambda: metrics.MeanTensor(), (SCORES,)),
    "MeanRelativeError": (lambda: metrics.MeanRelativeError(ONE_HOT), (SCORES, SHARES)),
    "TruePositives": (lambda: metrics.TruePositives([0.1, 0.3]), (ONE_HOT, SHARES)),
    "FalseNegatives": (lambda: metrics.FalseNegatives(), (ONE_HOT, SHARES.astype(np.float16))),
    "Precision": (lambda: metrics.Precision(), (ONE_HOT[:, 0], SHARES[:, 0])),
    "Precision of a class": (lambda: metrics.Precision(0.3, class_id=2), (ONE_HOT, SHARES)),
    "Recall of the best": (lambda: metrics.Recall(top_k=2), (ONE_HOT, TIED)),
    "Recall of the best above": (lambda: metrics.Recall(0.2, top_k=2), (ONE_HOT, TIED)),
    "RecallAtPrecision": (lambda: metrics.RecallAtPrecision(0.3), (ONE_HOT, SHARES)),
    "F1Score": (lambda: metrics.F1Score(), (ONE_HOT, SHARES)),
    "FBetaScore": (lambda: metrics.FBetaScore("weighted", 2.0, 0.3), (ONE_HOT, SHARES)),
    "IoU": (lambda: metrics.IoU(4, [0, 2], ignore_class=1), (CLASSES, np.argmax(SCORES, axis=1))),
    "BinaryIoU": (lambda: metrics.BinaryIoU(threshold=0.3), (ONE_HOT, SHARES)),
    "OneHotMeanIoU": (lambda: metrics.OneHotMeanIoU(4), (ONE_HOT, SHARES)),
    "AUC": (lambda: metrics.AUC(), (ONE_HOT, SHARES)),
    "AUC of logits": (lambda: metrics.AUC(curve="PR", from_logits=True), (ONE_HOT, SCORES)),
    "AUC of whole labels": (lambda: metrics.AUC(), (ONE_HOT.astype(int)[:, :1], SHARES[:, :1])),
    "AUC by label": (lambda: metrics.AUC(multi_label=True), (ONE_HOT, SHARES)),
    "AUC of weighted labels": (lambda: metrics.AUC(label_weights=[1, 2, 0, 3]), (ONE_HOT, SHARES)),
}


OF_VALUES = ("Mean", "Sum", "MeanTensor")


UNMASKED = {"R2Score": (lambda: metrics.R2Score(num_regressors=1), (ONE_HOT, SHARES))}


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("name", [*CASES, *UNMASKED])
def test_a_metric_adds_up_on_the_device_and_waits_when_it_is_read(
    name: str, weights: Any, a_card: Any
) -> None:
    make, batch = {**CASES, **UNMASKED}[name]
    if weights is not None and name in OF_VALUES:
        weights = weights[:, np.newaxis]
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = make()
    arrays = [to_device(part) for part in batch]
    given = None if weights is None else to_device(weights)
    for _ in range(2):
        with counted() as counts:
            strategy.run(lambda: on_card.update_state(*arrays, sample_weight=given))
        assert not counts.waits, counts.waits
    on_host = make()
    for _ in range(2):
        on_host.update_state(*batch, sample_weight=weights)
    assert on_card.result() == pytest.approx(on_host.result(), rel=1e-6)


def spoilt(values: np.ndarray) -> np.ndarray:
    """With what nobody may look at where the mask excludes it."""
    found = values.copy()
    found[~MASK] = 99 if values.dtype.kind == "i" else np.nan
    return found


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("name", [n for n in CASES if n not in ("MeanRelativeError", *OF_VALUES)])
def test_what_a_mask_excludes_counts_as_little_on_a_device_as_on_the_host(
    name: str, weights: Any, a_card: Any
) -> None:
    make, (y_true, y_pred) = CASES[name]
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = make()

    def step(*given: Any) -> None:
        labels, scores, mask, *weight = given
        on_card.update_state(labels, with_mask(pl.Tensor(scores), mask), *weight)

    batch = [spoilt(y_true), spoilt(y_pred), MASK, *([] if weights is None else [spoilt(weights)])]
    arrays = [to_device(part) for part in batch]
    with counted() as counts:
        strategy.run(step, arrays)
    assert not counts.waits, counts.waits
    on_host = make()
    labels, scores, mask, *weight = batch
    on_host.update_state(labels, with_mask(pl.Tensor(scores), mask), *weight)
    assert on_card.result() == pytest.approx(on_host.result(), rel=1e-6)
    assert np.all(np.isfinite(on_card.result()))


def test_a_mean_of_masked_values_is_that_of_the_others(a_card: Any) -> None:
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = metrics.Mean()
    values, mask = to_device(spoilt(SCORES)), to_device(MASK)
    with counted() as counts:
        strategy.run(lambda: on_card.update_state(with_mask(pl.Tensor(values), mask)))
    assert not counts.waits
    assert on_card.result() == pytest.approx(SCORES[MASK].mean(dtype=float))


@pytest.mark.parametrize(
    "make",
    [
        metrics.Precision,
        metrics.AUC,
        lambda: metrics.AUC(curve="PR", multi_label=True),
        lambda: metrics.SensitivityAtSpecificity(0.5),
        lambda: metrics.TruePositives([0.2, 0.4]),
    ],
)
@pytest.mark.parametrize("spoil", ["labels", "shares", "nan"])
def test_what_has_no_place_in_a_confusion_is_an_error_on_the_host_and_no_number_on_a_device(
    spoil: str, make: Any, a_card: Any
) -> None:
    labels, shares = ONE_HOT.copy(), SHARES.copy()
    (labels if spoil == "labels" else shares)[3, 1] = np.nan if spoil == "nan" else 2
    with pytest.raises(ValueError, match=r"must be 0 or 1|must be in"):
        make().update_state(labels, shares)
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = make()
    strategy.run(lambda: on_card.update_state(to_device(labels), to_device(shares)))
    assert np.all(np.isnan(on_card.result()))


def test_a_score_of_labels_that_are_none_is_no_number_on_a_device(a_card: Any) -> None:
    with pytest.raises(ValueError, match="must be 0 or 1"):
        metrics.F1Score().update_state(2 * ONE_HOT, SHARES)
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = metrics.F1Score()
    strategy.run(lambda: on_card.update_state(to_device(2 * ONE_HOT), to_device(SHARES)))
    assert np.all(np.isnan(on_card.result()))


@pytest.mark.parametrize("labels", [[0, 4], [-1, 0], [0.5, 1.0], [np.nan, 1.0]])
@pytest.mark.parametrize("ignored", [None, 1])
def test_an_overlap_of_labels_that_are_no_class_is_no_number_on_a_device(
    ignored: int | None, labels: list[float], a_card: Any
) -> None:
    with pytest.raises(ValueError, match="must be"):
        metrics.MeanIoU(4, ignore_class=ignored).update_state(labels, [0, 1])
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = metrics.MeanIoU(4, ignore_class=ignored)
    found = to_device(np.array([0, 1]))
    strategy.run(lambda: on_card.update_state(to_device(np.array(labels)), found))
    assert np.isnan(on_card.result())


@pytest.mark.parametrize("size", [0, 1, 5, 300])
def test_weighted_counts_are_added_up_in_one_order_whatever_the_size(
    size: int, a_card: Any
) -> None:
    shares, weights = RNG.random(size), RNG.random(size)
    labels = RNG.integers(0, 2, size)
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = metrics.AUC(num_thresholds=7)
    strategy.run(lambda: on_card.update_state(*map(to_device, (labels, shares, weights))))
    on_host = metrics.AUC(num_thresholds=7)
    on_host.update_state(labels, shares, weights)
    for one, other in zip(on_card.variables, on_host.variables, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)


def test_weights_and_labels_of_the_host_come_to_predictions_on_a_device(a_card: Any) -> None:
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = metrics.SparseCategoricalAccuracy()
    scores = to_device(SCORES)
    strategy.run(lambda: on_card.update_state(CLASSES, scores, WEIGHTS))
    on_host = metrics.SparseCategoricalAccuracy()
    on_host.update_state(CLASSES, SCORES, WEIGHTS)
    assert on_card.result() == pytest.approx(on_host.result(), rel=1e-6)


@pytest.mark.parametrize("labels", [np.array([0, 4]), np.array([-1, 0]), np.array([0.5, 1.0])])
@pytest.mark.parametrize(
    "make", [metrics.SparseCategoricalAccuracy, lambda: metrics.SparseTopKCategoricalAccuracy(2)]
)
def test_a_label_that_is_no_class_is_an_error_on_the_host_and_no_number_on_a_device(
    labels: np.ndarray, make: Any, a_card: Any
) -> None:
    with pytest.raises(ValueError, match="labels must be"):
        make().update_state(labels, SCORES[:2])
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        on_card = make()
    strategy.run(lambda: on_card.update_state(to_device(labels), to_device(SCORES[:2])))
    assert np.isnan(on_card.result())


def test_a_function_of_a_user_is_given_numpy_arrays(a_card: Any) -> None:
    seen = []

    def distance(y_true: Any, y_pred: Any) -> Any:
        seen.extend([type(y_true), type(y_pred)])
        return np.abs(y_true - y_pred).mean(axis=-1)

    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        metric = metrics.MeanMetricWrapper(distance)
    strategy.run(lambda: metric.update_state(to_device(ONE_HOT), to_device(SHARES)))
    assert seen == [np.ndarray, np.ndarray]
