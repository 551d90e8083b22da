"""The numbers printed in the documents that define the system, on every strategy that applies."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import LinearRegressor
from paceline.estimator.feature_column import numeric_column
from paceline.nn import Sequential, compute_average_loss, layers, losses, optimizers
from paceline.strategies import set_seed

from ..hooks import Losses


def cpus(n):
    return [f"CPU:{i}" for i in range(n)]


STRATEGIES = {
    "default": pl.get_strategy,
    "one device": lambda: pl.OneDeviceStrategy("CPU:0"),
    "mirrored over 1": lambda: pl.MirroredStrategy(cpus(1)),
    "mirrored over 2": lambda: pl.MirroredStrategy(cpus(2)),
    "mirrored over 4": lambda: pl.MirroredStrategy(cpus(4)),
    "simulated TPU of 2 cores": lambda: pl.TPUStrategy(simulate=2),
    "central storage over 2": lambda: pl.CentralStorageStrategy(cpus(2)),
}


@pytest.fixture(params=STRATEGIES)
def strategy(request):
    return STRATEGIES[request.param]()


@pytest.fixture
def two_replicas():
    return pl.MirroredStrategy(cpus(2))


def feats_input_fn():
    return pl.Dataset.from_tensors(({"feats": [1.0]}, [1.0])).repeat(1000).batch(10)


@pytest.fixture
def regressor(strategy, tmp_path):
    config = pl.RunConfig(
        model_dir=tmp_path,
        train_distribute=strategy,
        eval_distribute=strategy,
        log_step_count_steps=1,
    )
    return LinearRegressor([numeric_column("feats")], optimizer="SGD", config=config)


def test_st_01_g01_linear_regressor_prints_the_guides_losses(regressor):
    """G-01: loss 1.0 at step 0, 2.877698e-13 at the last of ten, to the bit."""
    hook = Losses()
    regressor.train(feats_input_fn, hooks=[hook], steps=10)
    assert len(hook.values) == 10
    assert hook.values[0] == np.float32(1.0)
    assert hook.values[-1] == np.float32(2.877698e-13)


def test_g01_weights_are_those_of_ten_lines_of_numpy(regressor):
    regressor.train(feats_input_fn, steps=10)
    weight = bias = np.float32(0)
    for _ in range(10):
        gradient = np.float32(2) * (weight + bias - np.float32(1))
        weight -= np.float32(0.2) * gradient
        bias -= np.float32(0.2) * gradient
    found = [
        regressor.get_variable_value("linear/linear_model/feats/weights").item(),
        regressor.get_variable_value("linear/linear_model/bias_weights").item(),
    ]
    np.testing.assert_array_max_ulp(
        np.array(found, np.float32), np.array([weight, bias], np.float32), maxulp=2
    )


def test_g02_evaluation_after_g01(regressor):
    """G-02: average_loss = loss = 1.4210855e-14, label/mean 1, prediction/mean 0.99999994."""
    regressor.train(feats_input_fn, steps=10)
    metrics = regressor.evaluate(feats_input_fn, steps=10)
    assert set(metrics) == {"average_loss", "loss", "label/mean", "prediction/mean", "global_step"}
    assert metrics["average_loss"] == metrics["loss"] == np.float32(1.4210855e-14)
    assert metrics["label/mean"] == 1.0
    assert abs(metrics["prediction/mean"] - np.float32(0.99999994)) <= np.spacing(
        np.float32(0.9999)
    )
    assert metrics["global_step"] == 10


def test_es_27_a_model_fn_of_ones_own_learns_what_the_premade_model_learns(
    regressor, strategy, tmp_path
):
    """G-01, written by hand: equal to the bit, and so is the evaluation."""

    def model_fn(features, labels, mode):
        dense = layers.Dense(1, kernel_initializer="zeros", name="dense")
        predictions = dense(np.stack([features["feats"]], axis=1))[:, 0]
        loss = np.mean(np.square(predictions - labels))
        train_op = optimizers.SGD(0.2).minimize(loss) if mode == pl.ModeKeys.TRAIN else None
        return pl.EstimatorSpec(mode, predictions, loss, train_op)

    config = pl.RunConfig(train_distribute=strategy, eval_distribute=strategy)
    by_hand = pl.Estimator(model_fn, tmp_path / "by hand", config)
    losses_of_both = []
    for estimator in (regressor, by_hand):
        hook = Losses()
        estimator.train(feats_input_fn, hooks=[hook], steps=10)
        losses_of_both.append((*hook.values, estimator.evaluate(feats_input_fn, steps=10)["loss"]))
    premade, own = losses_of_both
    assert own == premade


# fmt: off
G05 = [
    0.7598197, 0.75416803, 0.74857247, 0.7430326, 0.7375479, 0.7321177, 0.72674173, 0.72141916,
    0.71614975, 0.71093285, 0.70576787, 0.7006545, 0.69559216, 0.6905803, 0.68561834, 0.68070596,
    0.6758426, 0.67102766, 0.6662608, 0.6615414, 0.65686905, 0.6522432, 0.64766353, 0.64312935,
    0.63864034, 0.63419586, 0.6297957, 0.62543917, 0.62112594, 0.61685556,
]
# fmt: on


def fitted_line(strategy):
    set_seed(1)  # a weight that begins beside its goal has ratios of rounding errors
    with strategy.scope():
        model = Sequential([layers.Dense(1, input_shape=(1,))])
        model.compile(loss="mse", optimizer="sgd")
    return model


def test_g03_fit_has_the_ratios_that_the_guide_prints(strategy):
    """G-03: the loss of epoch 2 is 0.96^20 of that of epoch 1, an evaluation 0.27449 of it."""
    model = fitted_line(strategy)
    dataset = pl.Dataset.from_tensors(([1.0], [1.0])).repeat(100).batch(10)
    first, second = model.fit(dataset, epochs=2, verbose=0).history["loss"]
    assert second / first == pytest.approx(0.44200, abs=1e-4)
    assert model.evaluate(dataset, verbose=0) / first == pytest.approx(0.27449, abs=1e-4)


def test_g04_fit_on_arrays_learns_what_it_learns_from_the_dataset(strategy):
    """G-04: arrays with batch_size=10 are the same global batches."""
    model = fitted_line(strategy)
    inputs, targets = np.ones((100, 1)), np.ones((100, 1))
    first, second = model.fit(inputs, targets, epochs=2, batch_size=10, verbose=0).history["loss"]
    assert second / first == pytest.approx(0.44200, abs=1e-4)


def test_g05_custom_loop_prints_the_guides_thirty_losses(strategy):
    """G-05: `run`, `apply_gradients` and `reduce(SUM)` of losses divided by the global batch."""
    global_batch_size = 20
    z = -np.log(np.expm1(np.float64(G05[0])))  # loss = ln(1 + e^-z) at the first step
    with strategy.scope():
        model = Sequential(
            [layers.Dense(1, input_shape=(1,), kernel_initializer=lambda *_: np.full((1, 1), z))]
        )
        optimizer = optimizers.SGD()
    dataset = pl.Dataset.from_tensors(([1.0], [1.0])).repeat(400).batch(global_batch_size)
    distributed = strategy.experimental_distribute_dataset(dataset)
    loss_object = losses.BinaryCrossentropy(from_logits=True, reduction=losses.Reduction.NONE)

    def train_step(inputs):
        features, labels = inputs
        with pl.GradientTape() as tape:
            predictions = model(features, training=True)
            loss = compute_average_loss(
                loss_object(labels, predictions), global_batch_size=global_batch_size
            )
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        return loss

    def step(inputs):
        per_replica = strategy.run(train_step, args=(inputs,))
        return strategy.reduce(pl.ReduceOp.SUM, per_replica, axis=None)

    found = [step(inputs) for inputs in distributed]  # the guide's 20 of an epoch of 400 examples
    iterator = iter(distributed)
    found += [step(next(iterator)) for _ in range(10)]
    np.testing.assert_allclose(found, G05, atol=2e-7, rtol=0)


def test_g06_global_batches_are_split_over_replicas(two_replicas):
    dataset = two_replicas.experimental_distribute_dataset(pl.Dataset.range(4).batch(2))
    results = [two_replicas.run(lambda x: x * 2, args=(x,)) for x in dataset]
    assert [[v.tolist() for v in r.values] for r in results] == [[[0], [2]], [[4], [6]]]


def test_g07_values_from_a_function(two_replicas):
    def values(value_fn):
        distributed = two_replicas.experimental_distribute_values_from_function(value_fn)
        return two_replicas.experimental_local_results(distributed)

    array = np.array([3.0, 2.0, 1.0])
    assert values(lambda context: 1.0) == (1.0, 1.0)
    assert values(lambda context: array[context.replica_id_in_sync_group]) == (3.0, 2.0)
    assert values(lambda context: context.num_replicas_in_sync) == (2, 2)


def test_g08_gather_of_columns(two_replicas):
    value = two_replicas.experimental_distribute_values_from_function(
        lambda _: np.array([[1], [2]], np.int32)
    )
    gathered = two_replicas.gather(value, axis=0)
    assert gathered.dtype == np.int32
    assert gathered.tolist() == [[1], [2], [1], [2]]


@pytest.mark.parametrize(("axis", "shape"), [(0, (4, 2, 3)), (1, (1, 8, 3)), (2, (1, 2, 12))])
def test_g08_gather_along_each_axis(axis, shape):
    strategy = pl.MirroredStrategy(cpus(4))
    one = np.arange(6).reshape(1, 2, 3)
    value = strategy.experimental_distribute_values_from_function(lambda _: one)
    gathered = strategy.gather(value, axis=axis)
    assert gathered.shape == shape
    np.testing.assert_array_equal(gathered, np.concatenate([one] * 4, axis=axis))


def test_g09_sum_of_replica_ids(strategy):
    n = strategy.num_replicas_in_sync
    total_of_ids = n * (n - 1) // 2

    def step_fn():
        replica = pl.get_replica_context()
        mine = replica.replica_id_in_sync_group
        return mine, replica.all_reduce("sum", mine)

    ids, totals = strategy.run(step_fn)
    assert strategy.reduce("SUM", ids, axis=None) == total_of_ids
    assert all(t == total_of_ids for t in strategy.experimental_local_results(totals))


def test_g09_the_default_strategy_reduces_a_plain_number():
    assert pl.get_strategy().reduce("SUM", 1.0) == 1.0


def test_g10_reduce_of_a_global_batch_of_eight(two_replicas):
    value = pl.PerReplica([np.arange(4), np.arange(4, 8)])
    assert two_replicas.reduce("SUM", value, axis=None).tolist() == [4, 6, 8, 10]
    assert two_replicas.reduce("SUM", value, axis=0) == 28


def test_g10_mean_of_a_last_batch_of_six_divides_by_six(two_replicas):
    value = pl.PerReplica([np.arange(4.0), np.arange(4.0, 6.0)])
    assert two_replicas.reduce("MEAN", value, axis=0) == 15 / 6
    with pytest.raises(ValueError, match="axis=0"):
        two_replicas.reduce("MEAN", value, axis=None)
