"""N replicas give what one gives with the N-fold batch: the tutorial's CNN over 200 steps."""

from functools import cache

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, losses, optimizers

GLOBAL_BATCH = 16
STEPS = 200


@cache
def digits(dtype):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 512)
    stripes = np.eye(28)[labels * 2][:, :, None, None] * np.ones((1, 1, 28, 1))
    return (stripes + 0.1 * rng.normal(size=stripes.shape)).astype(dtype), labels


def model_fn(features, labels, mode, params):
    dtype = params["dtype"]
    model = Sequential(
        [
            layers.Conv2D(32, 3, activation="relu", dtype=dtype),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu", dtype=dtype),
            layers.Dense(10, dtype=dtype),
        ]
    )
    logits = model(features, training=True)
    loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.05).minimize(loss))


@cache
def weights_after_training(replicas, dtype, directory):
    strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    config = pl.RunConfig(train_distribute=strategy, tf_random_seed=3)
    estimator = pl.Estimator(
        model_fn, directory / f"{replicas}-{dtype}", config, params={"dtype": dtype}
    )

    def input_fn():
        dataset = pl.Dataset.from_tensor_slices(digits(dtype))
        return dataset.shuffle(512).repeat().batch(GLOBAL_BATCH // replicas)

    estimator.train(input_fn, steps=STEPS)
    names = [
        n
        for n in estimator.get_variable_names()
        if n.split("/")[0] in ("conv2d", "dense", "dense_1")
    ]
    assert len(names) == 6
    return {name: estimator.get_variable_value(name) for name in names}


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return tmp_path_factory.mktemp("cnn")


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-10), ("float32", 1e-4)])
@pytest.mark.parametrize("replicas", [2, 4])
def test_replicas_equal_one(directory, replicas, dtype, tolerance):
    one = weights_after_training(1, dtype, directory)
    several = weights_after_training(replicas, dtype, directory)
    for name, expected in one.items():
        assert several[name].dtype == dtype
        difference = np.linalg.norm(several[name] - expected) / np.linalg.norm(expected)
        assert difference <= tolerance, name
