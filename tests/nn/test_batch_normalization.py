"""Batch normalization over replicas (MB-08)."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward, normalize
from paceline.nn import Sequential
from paceline.nn.layers import BatchNormalization, Dense, LayerNormalization
from paceline.nn.losses import SparseCategoricalCrossentropy
from paceline.nn.optimizers import SGD
from paceline.strategies import MirroredStrategy, PerReplica, VariableStore
from paceline.strategies.devices.device import to_host

X = np.random.default_rng(0).normal(2.0, 3.0, size=(12, 4))


def shares(*sizes):
    """X cut into one batch for each replica."""
    return PerReplica(np.split(X, np.cumsum(sizes)[:-1]))


def strategy_of(num_replicas):
    return MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])


def make(strategy, **options):
    with strategy.scope():
        layer = BatchNormalization(
            dtype=np.float64, input_shape=(4,), momentum=0.9, gamma_initializer=gammas, **options
        )
        layer.make_weights()
    return layer


def gammas(shape, dtype, rng):
    return np.arange(1, 1 + shape[0], dtype=dtype)


def test_training_normalizes_the_batch_and_moves_the_means():
    layer = make(strategy_of(1))
    outputs = layer(X, training=True).numpy()
    np.testing.assert_allclose(outputs.mean(axis=0), 0, atol=1e-12)
    scale = np.arange(1, 5) * np.sqrt(X.var(axis=0) / (X.var(axis=0) + 1e-3))
    np.testing.assert_allclose(outputs.std(axis=0), scale, rtol=1e-12)
    np.testing.assert_allclose(layer.weights[2].numpy(), 0.1 * X.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(layer.weights[3].numpy(), 0.9 + 0.1 * X.var(axis=0), rtol=1e-12)


def test_elsewhere_and_when_frozen_the_moving_means_are_used_and_stay():
    layer = make(strategy_of(1))
    expected = X / np.sqrt(1 + 1e-3) * np.arange(1, 5)
    np.testing.assert_allclose(layer(X).numpy(), expected, rtol=1e-12)
    layer.trainable = False
    np.testing.assert_allclose(layer(X, training=True).numpy(), expected, rtol=1e-12)
    np.testing.assert_array_equal(layer.weights[2].numpy(), 0)


def test_center_and_scale_can_be_left_away():
    with strategy_of(1).scope():
        layer = BatchNormalization(center=False, scale=False, input_shape=(4,))
    assert [v.name.split("/")[1] for v in layer.weights] == ["moving_mean", "moving_variance"]


def test_mb_08_replicas_move_their_own_means_and_their_mean_is_read():
    strategy = strategy_of(2)
    layer = make(strategy)
    batches = shares(8, 4)
    outputs = strategy.run(lambda x: layer(x, training=True).numpy(), (batches,))
    for batch, output in zip(batches, outputs, strict=True):
        np.testing.assert_allclose(output.mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(
            output[:, 0], (batch - batch.mean(0))[:, 0] / np.sqrt(batch.var(0)[0] + 1e-3)
        )
    with strategy.scope():
        mean_of_means = np.mean([batch.mean(axis=0) for batch in batches], axis=0)
        np.testing.assert_allclose(layer.weights[2].numpy(), 0.1 * mean_of_means, rtol=1e-12)
        mean_of_variances = np.mean([batch.var(axis=0) for batch in batches], axis=0)
        np.testing.assert_allclose(
            layer.weights[3].numpy(), 0.9 + 0.1 * mean_of_variances, rtol=1e-12
        )


def outputs_and_gradients(sizes, averages_replicas):
    """Training of a synchronized layer; the loss weighs examples unequally.

    Returns:
        The outputs, the gradients of the inputs and of the weights for the loss over all examples,
        and the moving means.
    """
    weight = np.random.default_rng(1).normal(size=X.shape)
    strategy = strategy_of(len(sizes))
    store = VariableStore(averages_replicas=averages_replicas)

    def step(x, weight):
        inputs = Tensor(x, requires_grad=True)
        outputs = layer(inputs, training=True)
        per_example = (np.square(outputs) * weight).sum(axis=1)
        loss = per_example.mean() if averages_replicas else per_example.sum() / len(X)
        gradients = backward(loss)
        share = len(x) / len(X) if averages_replicas else 1.0
        parts = [gradients[inputs], *(gradients[v.tensor()] for v in layer.trainable_weights)]
        return outputs.numpy(), *(to_host(share * part) for part in parts)

    with store.building():
        layer = make(strategy, synchronized=True)
        cuts = np.cumsum(sizes)[:-1]
        batches = (PerReplica(np.split(a, cuts)) for a in (X, weight))
        results = strategy.run(step, tuple(batches))
        outputs, dx, dgamma, dbeta = results if len(sizes) > 1 else ([r] for r in results)
        with strategy.scope():
            moving = [v.numpy() for v in layer.weights[2:]]
    return np.concatenate(list(outputs)), np.concatenate(list(dx)), sum(dgamma), sum(dbeta), *moving


@pytest.mark.parametrize("averages_replicas", [True, False])
@pytest.mark.parametrize("sizes", [(6, 6), (8, 4), (5, 4, 3)])
def test_mb_08_synchronized_replicas_compute_what_one_would(sizes, averages_replicas):
    expected = outputs_and_gradients((12,), averages_replicas)
    got = outputs_and_gradients(sizes, averages_replicas)
    for one, other in zip(got, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)


def trained(sizes):
    """The variables of a small model after some steps with batches of these sizes."""
    strategy = strategy_of(len(sizes))
    store = VariableStore(seed=3, averages_replicas=True)
    labels = np.random.default_rng(2).integers(0, 3, len(X))

    def step(x, y):
        model = Sequential(
            [
                Dense(8, "relu", dtype=np.float64, input_shape=(4,)),
                BatchNormalization(dtype=np.float64, synchronized=True),
                Dense(3, dtype=np.float64),
            ]
        )
        loss = SparseCategoricalCrossentropy(from_logits=True)(y, model(x, training=True))
        SGD(0.1, momentum=0.9).minimize(loss)(num_examples=len(x))

    cuts = np.cumsum(sizes)[:-1]
    for _ in range(5):
        with store.building():
            strategy.run(step, (PerReplica(np.split(X, cuts)), PerReplica(np.split(labels, cuts))))
    with strategy.scope():
        return {name: variable.numpy() for name, variable in store.variables.items()}


@pytest.mark.parametrize("sizes", [(6, 6), (8, 4), (5, 4, 3)])
def test_mb_08_a_synchronized_model_trains_alike_on_any_number_of_replicas(sizes):
    expected, got = trained((12,)), trained(sizes)
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_batch_without_examples_leaves_the_moving_means_alone():
    strategy = strategy_of(1)
    layer = make(strategy)
    strategy.run(lambda x: layer(x, training=True), (shares(12),))
    before = [v.numpy() for v in layer.weights]
    inputs = Tensor(X[:0], requires_grad=True)

    def step():
        gradients = backward(layer(inputs, training=True))
        return [gradients[inputs], *(gradients[v.tensor()] for v in layer.trainable_weights)]

    of_inputs, *of_weights = strategy.run(step)
    assert of_inputs.shape == (0, 4)
    np.testing.assert_array_equal(of_weights, np.zeros((2, 4)))
    np.testing.assert_array_equal([v.numpy() for v in layer.weights], before)


@pytest.mark.parametrize("averages_replicas", [True, False])
@pytest.mark.parametrize("sizes", [(12, 0), (0, 7, 5), (0, 0)])
def test_a_synchronized_replica_without_examples_counts_for_nothing(sizes, averages_replicas):
    strategy, batch = strategy_of(len(sizes)), X[: sum(sizes)]
    store = VariableStore(averages_replicas=averages_replicas)

    def step(x):
        outputs = layer(Tensor(x, requires_grad=True), training=True)
        gradients = backward(np.sum(np.square(outputs)))
        return outputs.numpy(), [gradients[v.tensor()] for v in layer.trainable_weights]

    with store.building():
        layer = make(strategy, synchronized=True)
        batches = np.split(batch, np.cumsum(sizes)[:-1])
        outputs, gradients = strategy.run(step, (PerReplica(batches),))
    for of_replicas in (outputs, *gradients):
        assert all(np.isfinite(array).all() for array in of_replicas.values)
    mean = 0.1 * batch.mean(axis=0) if len(batch) else np.zeros(4)
    variance = 0.9 + 0.1 * batch.var(axis=0) if len(batch) else np.ones(4)
    np.testing.assert_allclose(layer.weights[2].numpy(), mean, rtol=1e-12)
    np.testing.assert_allclose(layer.weights[3].numpy(), variance, rtol=1e-12)


@pytest.mark.parametrize("make_layer", [BatchNormalization, LayerNormalization])
def test_float16_is_normalized_without_overflow(make_layer):
    inputs = (50 * X).astype(np.float16)  # of squares far beyond 65504
    half, double = (make_layer(dtype=dtype) for dtype in (np.float16, np.float64))
    expected = double(inputs.astype(float), training=True).numpy()
    outputs = half(inputs, training=True)
    assert outputs.dtype == np.float16
    np.testing.assert_allclose(outputs.numpy(), expected, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_es15_one_operation_gives_the_numbers_of_its_definition(dtype):
    x, gamma, beta = (X[:n].astype(dtype) for n in (12, 1, 1))
    centered = x - x.mean(axis=0)
    variance = np.square(centered).mean(axis=0)
    factor = 1.0 / np.sqrt(variance + 1e-3) * gamma[0]
    outputs, mean, found = normalize(x, (0,), 1e-3, gamma[0], beta[0])
    np.testing.assert_array_equal(outputs.data, centered * factor + beta[0])
    np.testing.assert_array_equal(mean[0], x.mean(axis=0))
    np.testing.assert_array_equal(found[0], variance)
    assert outputs.dtype == dtype


def test_es15_a_batch_without_examples_is_normalized_to_nothing():
    layer = LayerNormalization()
    assert layer(np.zeros((0, 4), np.float32)).shape == (0, 4)
