"""Metrics count on every replica for itself and are exact over all of them (MB-20, ES-21)."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.autodiff import Tensor
from paceline.nn import initializers, metrics
from paceline.strategies import (
    CentralStorageStrategy,
    MirroredStrategy,
    PerReplica,
    get_replica_context,
)

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 2, 11)
PREDICTIONS = np.clip(RNG.normal(0.3 + 0.4 * LABELS, 0.3), 0, 1)
MAKERS = [
    metrics.BinaryAccuracy,
    metrics.Precision,
    metrics.Recall,
    metrics.AUC,
    metrics.MeanSquaredError,
    metrics.RootMeanSquaredError,
]


def uneven(array, num_replicas):
    """Very different shares, of which the mean of means would be wrong; the last one is empty."""
    cuts = {2: [8], 4: [1, 7, 11]}[num_replicas]
    return PerReplica(np.split(array, cuts))


def alone(make):
    metric = make()
    metric.update_state(LABELS, PREDICTIONS)
    return metric.result()


@pytest.mark.parametrize("num_replicas", [2, 4])
@pytest.mark.parametrize("make", MAKERS)
def test_mb_20_d_17_replicas_together_measure_what_one_does(make, num_replicas):
    strategy = MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    with strategy.scope():
        metric = make()
    batches = uneven(LABELS, num_replicas), uneven(PREDICTIONS, num_replicas)
    strategy.run(metric.update_state, batches)
    expected = pytest.approx(alone(make), rel=1e-14)
    with strategy.scope():
        assert metric.result() == expected
    assert metric.result() == expected


def test_an_update_outside_replicas_could_mean_one_of_them_or_each_and_is_refused():
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        metric = metrics.Sum(name="total")
        with pytest.raises(ValueError, match=r"'total/total' is read as the sum.*in strategy\.run"):
            metric.update_state(1.0)


@pytest.mark.parametrize("make_strategy", [MirroredStrategy, CentralStorageStrategy])
@pytest.mark.parametrize("make", MAKERS)
def test_mb_20_every_replica_can_ask_for_the_result_of_all(make, make_strategy):
    strategy = make_strategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        metric = make()

    def step(labels, predictions):
        metric.update_state(labels, predictions)
        return metric.result()

    results = strategy.run(step, (uneven(LABELS, 2), uneven(PREDICTIONS, 2)))
    assert list(results) == pytest.approx([alone(make)] * 2, rel=1e-14)


@pytest.mark.parametrize("make_strategy", [MirroredStrategy, CentralStorageStrategy])
def test_a_sum_counts_what_replicas_share_once(make_strategy):
    strategy = make_strategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        metric = metrics.Sum()

    def step(value):
        metric.update_state(value)
        return metric.result()

    assert list(strategy.run(step, (PerReplica([1.0, 2.0]),))) == [3.0, 3.0]
    assert metric.result() == 3.0


def test_what_a_replica_collected_counts_when_it_has_no_examples_any_more():
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        metric = metrics.Sum()
    strategy.run(metric.update_state, (PerReplica([1.0, 2.0]),))

    def step(value):
        replica = get_replica_context()
        if replica.local_index == 1:
            replica.stand_in()
        metric.update_state(value)
        return metric.result()

    assert list(strategy.run(step, (PerReplica([10.0, 20.0]),))) == [13.0, 13.0]


def test_reset_and_merge_outside_replicas_concern_all_of_them():
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        metric, other = metrics.Sum(), metrics.Sum()
        strategy.run(metric.update_state, (PerReplica([1.0, 2.0]),))
        strategy.run(other.update_state, (PerReplica([10.0, 20.0]),))
        metric.merge_state(other)
        assert metric.result() == 33.0
        metric.reset_state()
        assert metric.result() == 0.0
        strategy.run(metric.update_state, (PerReplica([1.0, 2.0]),))
        assert metric.result() == 3.0


def test_a_metric_made_outside_the_scope_still_counts_everything():
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    metric = metrics.Mean()

    def step(value):
        metric.update_state(value)
        return metric.result()

    assert list(strategy.run(step, (PerReplica([1.0, 5.0]),))) == [3.0, 3.0]
    assert metric.result() == 3.0


def test_a_metric_that_is_built_anew_in_each_replica_keeps_one_state(store):
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    made = []

    def step(value):
        metric = metrics.Mean()
        metric.update_state(value)
        made.append(metric)

    for values in ([1.0, 2.0], [3.0, 6.0]):
        with store.building():
            strategy.run(step, (PerReplica(values),))
    assert {metric.name for metric in made} == {"mean"}
    with strategy.scope():
        assert made[-1].result() == 3.0


class MeanInKerasManner(metrics.Metric):
    """Reads its variables as they are, and returns one of them or what it computes from two."""

    def __init__(self, name="keras_mean", returns_sum=False, **kwargs):
        super().__init__(name=name, **kwargs)
        self.total_of = self.add_weight(name="total", initializer="zeros")
        self.count = self.add_weight(name="count", initializer="zeros", dtype="int32")
        self.returns_sum = returns_sum

    def update_state(self, y_true, y_pred, sample_weight=None):
        self.total_of.assign_add(np.sum(Tensor(y_pred) - y_true))
        self.count.assign_add(len(y_true))

    def result(self):
        return self.total_of if self.returns_sum else self.total_of / self.count

    def reset_state(self):
        self.total_of.assign(0)
        self.count.assign(0.0)


@pytest.mark.parametrize("size", [(1, 1), (1, 2), (2, 1), (2, 2)])
@pytest.mark.parametrize("returns_sum", [False, True])
def test_mb_20_a_metric_written_for_keras_is_exact_over_replicas_and_workers(
    on_workers, size, returns_sum
):
    num_workers, num_replicas = size
    labels, predictions = np.zeros(7), np.arange(7.0)
    cuts = sorted([1, 4, 7][: num_workers * num_replicas - 1])  # the last of four has none
    parts = [np.split(array, cuts) for array in (labels, predictions)]

    def work(strategy, index):
        with strategy.scope():
            metric = MeanInKerasManner(returns_sum=returns_sum)
        mine = slice(num_replicas * index, num_replicas * (index + 1))
        results = strategy.run(metric, tuple(PerReplica(part[mine]) for part in parts))
        with strategy.scope():
            found = [*getattr(results, "values", [results]), metric.result()]
            metric.reset_state()
            return [*found, [float(v.numpy()) for v in metric.variables]]

    for *found, after in on_workers(*size, work):
        assert set(found) == {21.0 if returns_sum else 3.0}
        assert all(isinstance(value, float) for value in found)
        assert after == [0.0, 0.0]


def test_a_state_that_begins_elsewhere_than_at_zero_would_count_once_for_each_replica():
    for initializer in ("zeros", None, 0, initializers.Zeros()):
        MeanInKerasManner().add_weight("more", (2,), initializer)
    with pytest.raises(ValueError, match=r"mean/best must begin at zero, and initializer='ones'"):
        metrics.Mean().add_weight("best", initializer="ones")
