"""Dropout: what is dropped, and that it can be repeated."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.estimator import Estimator, EstimatorSpec, RunConfig
from paceline.inputs import Dataset
from paceline.nn.layers import Dropout
from paceline.nn.optimizers import SGD
from paceline.strategies import (
    MirroredStrategy,
    VariableStore,
    get_or_create_global_step,
    get_replica_context,
    get_variable,
)

ONES = np.ones((200, 50), np.float32)


def drop(rate=0.25, **options):
    return Dropout(rate, **options)(ONES, training=True).numpy()


def test_outside_training_inputs_pass_through():
    np.testing.assert_array_equal(Dropout(0.5)(ONES).numpy(), ONES)
    np.testing.assert_array_equal(Dropout(0.0)(ONES, training=True).numpy(), ONES)


@pytest.mark.parametrize("rate", [0.1, 0.25, 0.5])
def test_a_share_is_dropped_and_the_rest_grows(rate):
    values = drop(rate)
    assert values.dtype == np.float32
    np.testing.assert_allclose(np.unique(values), [0, 1 / (1 - rate)], rtol=1e-6)
    assert (values == 0).mean() == pytest.approx(rate, abs=0.02)


def test_gradients_flow_where_inputs_do():
    x = Tensor(ONES, requires_grad=True)
    y = Dropout(0.5)(x, training=True)
    np.testing.assert_array_equal(backward(y.sum())[x], y.numpy())


def test_a_noise_shape_drops_an_axis_as_a_whole():
    values = drop(noise_shape=(None, 1))
    assert (values == values[:, :1]).all()
    assert (values == 0).any()


@pytest.mark.parametrize("noise_shape", [(20, 1), (20, 5, 1, 1), (20, 2, 10)])
def test_a_noise_shape_that_does_not_broadcast_to_the_inputs_is_refused(noise_shape):
    with pytest.raises(
        ValueError, match=r"does not broadcast to its inputs of shape \(20, 5, 10\)"
    ):
        Dropout(0.5, noise_shape)(np.ones((20, 5, 10)), training=True)


def test_layers_and_calls_drop_differently():
    layer = Dropout(0.5)
    first, second = (layer(ONES, training=True).numpy() for _ in range(2))
    other = drop(0.5)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, other)


def run_of_three_steps(seed):
    store = VariableStore(seed=seed)
    steps = []
    for _ in range(3):
        with store.building():
            steps.append(drop())
    return np.stack(steps)


def test_a_run_can_be_repeated_and_its_steps_differ():
    steps = run_of_three_steps(seed=5)
    np.testing.assert_array_equal(steps, run_of_three_steps(seed=5))
    assert not np.array_equal(steps[0], steps[1])
    assert not np.array_equal(steps[1], steps[2])
    assert not np.array_equal(steps, run_of_three_steps(seed=6))


def masks_of_training(strategy, directory, steps):
    """The mask of each replica at each global step of one call of `train`."""
    masks = {}

    def model_fn(features, labels, mode):
        mask = Dropout(0.5)(ONES, training=True).numpy()
        step = get_or_create_global_step().numpy().item()
        masks[step, get_replica_context().local_index] = mask
        w = get_variable("w", (1,))
        loss = np.mean(np.square(features * w))
        return EstimatorSpec(mode, loss=loss, train_op=SGD(0.1).minimize(loss))

    config = RunConfig(tf_random_seed=5, train_distribute=strategy())
    data = Dataset.from_tensors((np.ones((2, 1)), np.ones((2, 1)))).repeat()
    Estimator(model_fn, directory, config).train(lambda: data, steps=steps)
    return masks


@pytest.mark.parametrize(
    "strategy",
    [lambda: None, lambda: MirroredStrategy(["CPU:0", "CPU:1"])],
    ids=["one replica", "two"],
)
def test_a_resumed_run_drops_what_it_would_have_dropped(strategy, tmp_path):
    whole = masks_of_training(strategy, tmp_path / "whole", steps=4)
    cut = masks_of_training(strategy, tmp_path / "cut", steps=2)
    cut |= masks_of_training(strategy, tmp_path / "cut", steps=2)
    assert cut.keys() == whole.keys()
    for place, mask in whole.items():
        np.testing.assert_array_equal(cut[place], mask)
    assert len({mask.tobytes() for mask in whole.values()}) == len(whole)


def test_workers_that_are_not_in_step_drop_differently(server_job):
    """Each is alone with its replica in step, and all begin with one seed."""
    job = server_job(1, 2)
    masks = []
    for rank in range(2):
        with VariableStore(seed=5).building():
            masks.append(job.strategy(rank).run(lambda: drop(0.5)))
    assert not np.array_equal(*masks)


def test_a_seed_of_its_own_overrides_the_models():
    first, second = (VariableStore(seed=s) for s in (1, 2))
    with first.building():
        one = drop(seed=3)
    with second.building():
        np.testing.assert_array_equal(drop(seed=3), one)


def test_without_any_seed_it_is_random():
    with VariableStore(seed=None).building():
        layer = Dropout(0.5)
        first, second = (layer(ONES, training=True).numpy() for _ in range(2))
    assert not np.array_equal(first, second)


def test_replicas_drop_differently_and_can_be_repeated():
    def both():
        strategy = MirroredStrategy(["CPU:0", "CPU:1"])
        with VariableStore(seed=5).building(), strategy.scope():
            layer = Dropout(0.5)
            return strategy.run(lambda: layer(ONES, training=True).numpy())

    first, again = both(), both()
    assert not np.array_equal(first[0], first[1])
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_copy_has_not_been_called():
    """An Estimator copies its params, and layers may be among them."""
    ones = np.ones((4, 4))
    with VariableStore().building():
        layer = Dropout(0.5, seed=1)
        first, second = (layer(ones, training=True).numpy() for _ in range(2))
    copied = copy.deepcopy(layer)
    with VariableStore().building():
        np.testing.assert_array_equal(copied(ones, training=True).numpy(), first)
    assert (first != second).any()
