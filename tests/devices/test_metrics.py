"""Metrics of what lies on a GPU count there, and give what they give on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.nn import metrics

from .strict_cupy import counted, to_device

RNG = np.random.default_rng(0)
SCORES = RNG.normal(size=(12, 4)).astype(np.float32)
SHARES = np.exp(SCORES) / np.exp(SCORES).sum(axis=1, keepdims=True)
CLASSES = RNG.integers(0, 4, 12)
ONE_HOT = np.eye(4, dtype=np.float32)[CLASSES]
WEIGHTS = RNG.random(12).astype(np.float32)

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
}


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
@pytest.mark.parametrize("name", CASES)
def test_a_metric_adds_up_on_the_device_and_waits_when_it_is_read(
    name: str, weights: Any, a_card: Any
) -> None:
    make, batch = CASES[name]
    if weights is not None and name == "Mean":
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
