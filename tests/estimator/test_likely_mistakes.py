"""What is legal in a model_fn and most likely not meant is warned of, once (ES-07)."""

import itertools
import logging
import threading

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, losses, optimizers

N = 6


@pytest.fixture
def warnings(tmp_path, caplog):
    """`warnings(loss_of, dtype)`: the warnings of two steps with that loss of features, labels."""

    def train(loss_of, dtype=np.float32, labels_shape=(N,), replicas=1):
        def model_fn(features, labels, mode):
            loss = loss_of(features, labels)
            return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD().minimize(loss))

        x, y = np.ones((N, 3), dtype), np.ones(labels_shape, dtype)
        data = pl.Dataset.from_tensor_slices((x, y)).repeat(2 * replicas).batch(N)
        strategy = pl.MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
        config = pl.RunConfig(train_distribute=strategy)
        caplog.set_level(logging.WARNING, logger="paceline")
        pl.Estimator(model_fn, tmp_path, config).train(lambda: data)
        return [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]

    return train


def network(*hidden):
    return Sequential([layers.Dense(4), *hidden, layers.Dense(1)])


def squared(outputs, labels):
    return losses.MeanSquaredError()(labels, outputs)


@pytest.mark.parametrize(
    ("make", "training", "names"),
    [
        (lambda: layers.Dropout(0.5), False, "dropout"),
        (lambda: layers.BatchNormalization(), False, "batch_normalization"),
        (lambda: Sequential([layers.Dropout(0.5)]), False, "dropout"),
        (lambda: layers.Dropout(0.5), True, None),
        (lambda: layers.BatchNormalization(trainable=False), False, None),
        (lambda: layers.LayerNormalization(), False, None),
    ],
)
@pytest.mark.parametrize("replicas", [1, 2])
def test_es_07_a_forgotten_training_is_warned_of(warnings, make, training, names, replicas):
    found = warnings(
        lambda x, y: squared(network(make())(x, training=training), y), replicas=replicas
    )
    assert [line.split(" with ")[0] for line in found] == (
        [f"model_fn trains, but calls {names}"] if names else []
    )


def test_es_07_a_call_that_leaves_training_out_is_warned_of(warnings):
    (line,) = warnings(lambda x, y: squared(network(layers.Dropout(0.5))(x), y))
    assert line.startswith("model_fn trains, but calls dropout with training=False")


def test_evaluation_and_prediction_are_not_asked(tmp_path, caplog):
    def model_fn(features, labels, mode):
        outputs = network(layers.Dropout(0.5))(features)
        return pl.EstimatorSpec(mode, loss=squared(outputs, labels))

    data = pl.Dataset.from_tensor_slices((np.ones((N, 3), "f4"), np.ones(N, "f4"))).batch(N)
    with caplog.at_level(logging.WARNING, logger="paceline"):
        pl.Estimator(model_fn, tmp_path).evaluate(lambda: data)
    assert not [r for r in caplog.records if "training=False" in r.getMessage()]


OUTER = "compares each of them with every other one, in an array of shape (6, 6)"


@pytest.mark.parametrize(
    ("loss_of", "labels_shape", "is_outer"),
    [
        (lambda x, y: np.mean(np.square(network()(x) - y)), (N,), True),
        (lambda x, y: np.mean(np.abs(y - network()(x))), (N,), True),
        (lambda x, y: np.mean(np.square(network()(x)[:, 0] - y)), (N, 1), True),
        (lambda x, y: np.mean(np.square(network()(x) - y)), (N, 1), False),
        (lambda x, y: np.mean(np.square(network()(x)[:, 0] - y)), (N,), False),
        (lambda x, y: squared(network()(x), y), (N,), False),
        # As many features, or classes, as examples.
        (lambda x, y: np.mean(np.square(layers.Dense(N)(x))), (N,), False),
        (lambda x, y: np.mean(layers.Dense(N)(network()(x))), (N,), False),
        (lambda x, y: np.mean(layers.LayerNormalization()(layers.Dense(N)(x))), (N,), False),
        (lambda x, y: squared(layers.Dense(N, activation="softmax")(x), x @ np.ones((3, N), "f4")),
         (N,), False),
        # Each example is meant to be compared with the others.
        (lambda x, y: np.mean(layers.Dense(4)(x) @ layers.Dense(4)(x).T), (N,), False),
    ],
)  # fmt: skip
def test_a_loss_whose_operands_broadcast_over_the_batch_is_warned_of(
    warnings, loss_of, labels_shape, is_outer
):
    found = warnings(loss_of, labels_shape=labels_shape)
    assert [OUTER in line for line in found] == [True] * is_outer


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_loss_wider_than_all_variables_is_warned_of(warnings, dtype):
    """Labels that nobody converted."""
    found = warnings(lambda x, y: np.mean(np.square(network()(x)[:, 0] - y)), dtype)
    assert [line.startswith("The loss is float64") for line in found] == (
        [True] if dtype is np.float64 else []
    )


def test_a_model_in_double_precision_is_meant(warnings):
    def loss_of(x, y):
        return np.mean(np.square(layers.Dense(1, dtype="float64")(x)[:, 0] - y))

    assert warnings(loss_of, np.float64) == []


def test_es_19_metrics_of_a_spec_that_trains_are_left_aside_and_named(tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="paceline")

    def model_fn(features, labels, mode):
        loss = np.mean(np.square(features @ pl.get_variable("w", (1, 1)) - labels))
        mean = pl.nn.metrics.Mean(name="mean")
        mean.update_state(labels)
        return pl.EstimatorSpec(
            mode,
            loss=loss,
            train_op=pl.nn.optimizers.SGD(0.1).minimize(loss),
            eval_metric_ops={"mean label": mean},
        )

    x = np.ones((8, 1), np.float32)
    pl.Estimator(model_fn, tmp_path).train(
        lambda: pl.Dataset.from_tensor_slices((x, x)).batch(2), steps=3
    )
    lines = [r.getMessage() for r in caplog.records if "eval_metric_ops" in r.getMessage()]
    assert len(lines) == 1
    assert "(mean label) is left aside" in lines[0]


@pytest.mark.parametrize("attempt", range(6))  # it went wrong in every third or so
def test_a_model_is_looked_at_while_another_replica_creates_slots(
    tmp_path, threads_alternate, attempt
):
    calls, is_second_ready = itertools.count(1), threading.Event()

    def model_fn(features, labels, mode):
        weights = [pl.get_variable(f"w_{i}", (1,), initializer=0.0) for i in range(500)]
        loss = np.mean(np.square(features @ np.stack(weights) - labels))
        train_op = optimizers.Adam().minimize(loss)
        if next(calls) == 1:  # the call that is looked at
            is_second_ready.wait(timeout=20)
        is_second_ready.set()
        return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)

    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])
    config = pl.RunConfig(model_dir=str(tmp_path), train_distribute=strategy)
    x = np.ones((4, 500), np.float32)
    end = pl.Estimator(model_fn, config=config).train_and_report(
        lambda: pl.Dataset.from_tensor_slices((x, x[:, :1])).batch(2), steps=1
    )
    assert end.global_step == 1
