"""Fit, a custom loop and the Estimator make the same weights, to the bit, wherever they run."""

import numpy as np
import pytest

import paceline as pl
from paceline import checkpoint
from paceline.estimator.saving import CheckpointShards
from paceline.nn import Sequential, layers, optimizers
from paceline.strategies import DEFAULT_STRATEGY, VariableStore

from .test_fit_on_workers import on_servers

STEPS, BATCH, SEED = 100, 8, 5
RNG = np.random.default_rng(1)
X = RNG.normal(size=(STEPS * BATCH, 3)).astype(np.float32)
Y = np.tanh(X @ [[1.0], [-2.0], [0.5]]).astype(np.float32)


def network():
    return Sequential([layers.Dense(4, "tanh", input_shape=(3,)), layers.Dense(1)])


def adam():
    return optimizers.Adam(0.01)


def by_fit(strategy, _):
    with VariableStore(seed=SEED).building():
        with strategy.scope():
            model = network()
            model.compile(adam(), "mse")
        model.fit(X, Y, BATCH, shuffle=False, verbose=0)
        return model.get_weights()


def by_loop(strategy, _):
    with VariableStore(seed=SEED).building():
        with strategy.scope():
            model, optimizer = network(), adam()

        def step(x, y):
            with pl.GradientTape() as tape:
                loss = np.square(model(x, training=True) - y).sum() / BATCH
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

        dataset = pl.Dataset.from_tensor_slices((X, Y)).batch(BATCH)
        for batch in strategy.experimental_distribute_dataset(dataset):
            strategy.run(step, batch)
        return model.get_weights()


def by_estimator(strategy, directory):
    def model_fn(features, labels, mode):
        loss = np.mean(np.square(network()(features, training=True) - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=adam().minimize(loss))

    def input_fn(input_context):
        count, index = input_context.num_input_pipelines, input_context.input_pipeline_id
        dataset = pl.Dataset.from_tensor_slices((X, Y))
        return dataset.batch(BATCH // strategy.num_replicas_in_sync).shard(count, index)

    config = pl.RunConfig(directory, tf_random_seed=SEED, train_distribute=strategy)
    estimator = pl.Estimator(model_fn, config=config)
    assert estimator.train_and_report(input_fn).global_step == STEPS
    strategy.extended.workers.number_from_chief(0, "it was saved")
    values = checkpoint.load(checkpoint.latest_checkpoint(directory)).arrays()
    return [values[name] for name in NAMES]


NAMES = ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
WAYS = [by_fit, by_loop, by_estimator]


@pytest.fixture(scope="module")
def of_one(tmp_path_factory):
    """What one process has learned by fit."""
    return by_fit(DEFAULT_STRATEGY, tmp_path_factory.mktemp("one"))


def require_same(found, expected):
    """All ways the same, to the bit; and to rounding what one process has learned."""
    for way in found:
        for part, like in zip(way, found[0], strict=True):
            np.testing.assert_array_equal(part, like)
    for part, like in zip(found[0], expected, strict=True):
        np.testing.assert_allclose(part, like, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("num_replicas", [1, 2, 4])
def test_three_ways_on_replicas_make_the_same_weights(tmp_path, of_one, num_replicas):
    devices = [f"CPU:{i}" for i in range(num_replicas)]
    found = [way(pl.MirroredStrategy(devices), str(tmp_path)) for way in WAYS]
    require_same(found, of_one)


def test_three_ways_on_two_workers_make_the_same_weights(tmp_path, on_workers, of_one):
    def train(strategy, _):
        return [way(strategy, str(tmp_path)) for way in WAYS]

    for found in on_workers(2, 1, train):
        require_same(found, of_one)


def test_three_ways_on_a_parameter_server_make_the_same_weights(tmp_path, server_job, of_one):
    found = []
    for way in WAYS:
        job = server_job(1, 1, storage=CheckpointShards(2, str(tmp_path)))
        found += on_servers(job, lambda strategy, _, way=way: way(strategy, str(tmp_path)))
    require_same(found, of_one)
