"""A small model whose every step can be computed by hand, and what trains it."""

import logging

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import CheckpointWriter
from paceline.nn import metrics, optimizers


@pytest.fixture
def linear_model_fn():
    """y = x @ w with w from zero, mean squared error, SGD with rate 0.1."""

    def model_fn(features, labels, mode):
        w = pl.get_variable(
            "w", (3, 1), initializer=lambda shape, dtype, rng: np.zeros(shape, dtype)
        )
        outputs = features @ w
        if mode == pl.ModeKeys.PREDICT:
            return pl.EstimatorSpec(mode, predictions={"y": outputs, "twice": outputs * 2})
        loss = np.mean(np.square(outputs - labels))
        if mode == pl.ModeKeys.EVAL:
            mean = metrics.Mean(name="mean_label")
            mean.update_state(labels)
            return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"mean_label": mean})
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))

    return model_fn


@pytest.fixture
def examples():
    """48 examples of an exactly linear function."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(48, 3)).astype(np.float32)
    return x, x @ np.array([[1.0], [-2.0], [0.5]], np.float32)


@pytest.fixture
def input_fn(examples):
    return lambda: pl.Dataset.from_tensor_slices(examples).repeat().batch(8)


@pytest.fixture
def one_pass(examples):
    return lambda: pl.Dataset.from_tensor_slices(examples).batch(8)


@pytest.fixture
def two_replicas():
    return pl.MirroredStrategy(["CPU:0", "CPU:1"])


@pytest.fixture
def lines(caplog):
    """The log lines of the package so far."""
    caplog.set_level(logging.INFO, logger="paceline")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.fixture
def estimator(linear_model_fn, tmp_path):
    return pl.Estimator(linear_model_fn, model_dir=tmp_path / "model")


class NotingWriter(CheckpointWriter):
    """Writes nothing but the names of what it is asked for, into `calls`."""

    def __init__(self):
        self.calls = []

    def prepare(self):
        self.calls.append("prepare")

    def save(self, step, arrays, state):
        self.calls.append("save")
        return {}

    def check(self):
        self.calls.append("check")

    def wait(self):
        self.calls.append("wait")


@pytest.fixture
def writer():
    """A `CheckpointWriter` that notes its `calls`."""
    return NotingWriter()
