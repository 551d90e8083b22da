"""Who divides the loss, and by what (ruling 1; MB-10, MB-11, MB-12)."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import nn
from paceline.autodiff import Tensor
from paceline.nn import losses
from paceline.nn.masks import with_mask
from paceline.strategies import MirroredStrategy, PerReplica, VariableStore

LOSSES = np.array([1.0, 2.0, 3.0, 6.0], np.float32)
TWO = ["CPU:0", "CPU:1"]


def halves(array):
    return PerReplica(np.split(np.asarray(array), 2))


@pytest.mark.parametrize("reduction", ["auto", "sum_over_batch_size"])
def test_mb_10_a_mean_is_refused_in_a_custom_loop_over_replicas(reduction):
    strategy = MirroredStrategy(TWO)
    loss = losses.MeanSquaredError(reduction=reduction)
    with pytest.raises(ValueError, match=r"2 replicas.*Reduction\.NONE.*compute_average_loss"):
        strategy.run(lambda p: loss(np.zeros((2, 1)), p), (halves(np.ones((4, 1))),))


@pytest.mark.parametrize("reduction", ["none", "sum"])
def test_mb_10_other_reductions_are_allowed_there(reduction):
    loss = losses.MeanSquaredError(reduction=reduction)
    MirroredStrategy(TWO).run(lambda p: loss(np.zeros((2, 1)), p), (halves(np.ones((4, 1))),))


def test_mb_10_a_mean_is_allowed_where_replicas_are_averaged():
    loss = losses.MeanSquaredError()
    with VariableStore(averages_replicas=True).building():
        values = MirroredStrategy(TWO).run(
            lambda p: loss(np.zeros((2, 1)), p).item(), (halves(np.ones((4, 1))),)
        )
    assert values.values == (1.0, 1.0)


@pytest.mark.parametrize("cut", [2, 3, 4])
@pytest.mark.parametrize(
    ("reduction", "masked", "weighted"),
    [("mean", True, False), ("mean", True, True), ("mean_with_sample_weight", False, True)],
)
def test_mb_10_a_mean_of_what_is_left_is_that_of_the_global_batch(reduction, masked, weighted, cut):
    """Of two replicas, which weigh as many examples as they have; of none, in the last case."""
    loss = losses.MeanAbsoluteError(reduction=reduction)
    weights = np.array([1.0, 3.0, 0.5, 2.0]) if weighted else np.ones(4)
    counts = np.array([True, False, True, True])

    def step(p, counts, weights):
        p = with_mask(Tensor(p[:, None]), counts) if masked else p[:, None]
        return loss(np.zeros(p.shape), p, weights if weighted else None).item()

    parts = (PerReplica(np.split(x, [cut])) for x in (LOSSES, counts, weights))
    with VariableStore(averages_replicas=True).building():
        first, second = MirroredStrategy(TWO).run(step, tuple(parts)).values
    average = (cut * first + (4 - cut) * second) / 4
    assert average == pytest.approx(step(LOSSES, counts, weights), rel=1e-6)


def test_mb_10_a_mean_is_allowed_with_one_replica_and_without_a_strategy():
    loss = losses.MeanSquaredError()
    step = lambda: loss(np.zeros((2, 1)), np.ones((2, 1))).item()  # noqa: E731
    assert step() == 1.0
    assert MirroredStrategy(["CPU:0"]).run(step) == 1.0


@pytest.mark.parametrize(
    ("weight", "global_batch_size", "expected"),
    [(None, None, 3.0), (None, 8, 1.5), ([1, 0, 0, 1], None, 1.75), ([1, 0, 0, 1], 7, 1.0)],
)
def test_mb_11_two_replicas_average_as_one_does(weight, global_batch_size, expected):
    one = nn.compute_average_loss(LOSSES, weight, global_batch_size)
    assert one.item() == pytest.approx(expected)
    assert one.dtype == np.float32

    def step(part, weight):
        return nn.compute_average_loss(part, weight, global_batch_size).numpy()

    strategy = MirroredStrategy(TWO)
    weights = None if weight is None else halves(weight)
    total = strategy.reduce("SUM", strategy.run(step, (halves(LOSSES), weights)), axis=None)
    assert total == pytest.approx(expected)


def test_mb_11_a_replica_without_examples_adds_nothing():
    assert nn.compute_average_loss(np.zeros(0, np.float32)).item() == 0.0


def test_mb_11_what_cannot_be_averaged_is_refused():
    with pytest.raises(ValueError, match=r"one loss for each example.*Reduction\.NONE"):
        nn.compute_average_loss(np.float32(3.0))
    with pytest.raises(ValueError, match="global_batch_size must be positive, it is 0"):
        nn.compute_average_loss(LOSSES, global_batch_size=0)
    strategy = MirroredStrategy(TWO)
    with strategy.scope(), pytest.raises(RuntimeError, match=r"cross-replica.*strategy\.run"):
        nn.compute_average_loss(LOSSES)


def test_mb_12_a_penalty_is_divided_by_the_number_of_replicas():
    assert nn.scale_regularization_loss(3.0).item() == 3.0
    assert nn.scale_regularization_loss(LOSSES).item() == 12.0
    strategy = MirroredStrategy(TWO)
    shares = strategy.run(lambda: nn.scale_regularization_loss(LOSSES).numpy())
    assert strategy.reduce("SUM", shares, axis=None) == 12.0
