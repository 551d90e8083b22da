"""The digits are learned as well on parameter servers as without them."""

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, losses, metrics, optimizers

NUM_STEPS = {0: 400, 2: 800, None: 1200}
"""By staleness: a step in step is one of both workers; how stale others are chance decides."""

LEAST_ACCURACY = {0: 0.97, 2: 0.95, None: 0.95}
"""Of 360 digits about six are mistaken, in step always the same ones. Where chance decides how
stale a gradient is, eleven were seen. Gradients that are lost, or count twice, cost far more."""


def model_fn(features, labels, mode):
    """The network of examples/digits.py with half of its filters."""
    model = Sequential(
        [
            layers.Conv2D(16, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(10),
        ]
    )
    logits = model(features, training=mode == pl.ModeKeys.TRAIN)
    loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    if mode == pl.ModeKeys.EVAL:
        accuracy = metrics.SparseCategoricalAccuracy()
        accuracy.update_state(labels, logits)
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(3e-3).minimize(loss))


@pytest.fixture(scope="module")
def digits():
    """(train, test), each (images, labels)."""
    found = pytest.importorskip("sklearn.datasets").load_digits()
    images = (found.data / 16).reshape(-1, 8, 8, 1).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(images))
    parts = np.split(order, [len(images) * 4 // 5])
    return [(images[part], found.target[part].astype(np.int64)) for part in parts]


@pytest.mark.parametrize("max_staleness", NUM_STEPS)
@pytest.mark.parametrize("num_servers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_two_workers_learn_the_digits(servers, digits, tmp_path, num_servers, max_staleness):
    train, test = digits
    job = servers(num_servers, 2, max_staleness)

    def train_input_fn(input_context):
        count, index = input_context.num_input_pipelines, input_context.input_pipeline_id
        dataset = pl.Dataset.from_tensor_slices(train).shard(count, index)
        return dataset.shuffle(len(train[0]), seed=1).repeat().batch(32)

    def train_there(strategy, rank):
        config = pl.RunConfig(
            model_dir=tmp_path,
            train_distribute=strategy,
            tf_random_seed=1,
            save_checkpoints_steps=10_000,
        )
        estimator = pl.Estimator(model_fn, config=config)
        estimator.train_and_report(train_input_fn, max_steps=NUM_STEPS[max_staleness])

    job.train(train_there)
    evaluator = pl.Estimator(model_fn, model_dir=tmp_path)
    found = evaluator.evaluate(lambda: pl.Dataset.from_tensor_slices(test).batch(256))
    assert found["accuracy"] >= LEAST_ACCURACY[max_staleness]
