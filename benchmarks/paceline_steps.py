"""The training steps of paceline: from bare parts, by the Estimator, by `Model.fit`.

Each takes the name of a workload and its data and returns a loop; see workloads.py.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from workloads import LEARNING_RATE, WORKLOADS, Data, Loop, loop_of

import paceline as pl
from paceline.nn import Sequential, callbacks, layers, losses, optimizers


def build(name: str) -> Sequential:
    """The model as a user would write it."""
    if name == "cnn":
        return Sequential(
            [
                layers.Conv2D(32, 3, activation="relu"),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
    hidden = [layers.Dense(n, activation="relu") for n in WORKLOADS[name].sizes[1:-1]]
    return Sequential([*hidden, layers.Dense(10)])


def mean_loss(labels: np.ndarray, logits: pl.Tensor) -> pl.Tensor:
    return losses.SparseCategoricalCrossentropy(from_logits=True)(labels, logits)


def dataset(name: str, data: Data) -> pl.Dataset:
    """Shuffled batches without end; an Estimator gives each replica one of them."""
    examples = pl.Dataset.from_tensor_slices((data.x, data.y))
    return examples.shuffle(len(data.x)).repeat().batch(WORKLOADS[name].batch)


def parts(name: str, data: Data) -> Loop:
    """Layers, loss and optimizer in a loop of one's own."""
    network = build(name)
    optimizer = optimizers.SGD(LEARNING_RATE)

    def step(x: np.ndarray, y: np.ndarray) -> float:
        loss = mean_loss(y, network(x, training=True))
        optimizer.minimize(loss, global_step=optimizer.iterations)()
        return loss.item()

    return loop_of(step, data)


def model_fn(name: str) -> Callable[..., pl.EstimatorSpec]:
    """What an Estimator trains, as a user would write it."""

    def call(features, labels, mode):
        loss = mean_loss(labels, build(name)(features, training=True))
        optimizer = optimizers.SGD(LEARNING_RATE)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizer.minimize(loss))

    return call


class AfterStep(pl.estimator.SessionRunHook):
    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call

    def after_run(self, run_context, run_values):
        self._call()


def estimator(
    name: str,
    data: Data,
    model_dir: Path | None = None,
    config: pl.RunConfig | None = None,
) -> Loop:
    """`Estimator.train` with the dataset as its input."""
    if model_dir is None:
        model_dir = Path(tempfile.mkdtemp())
        atexit.register(shutil.rmtree, model_dir)
    subject = pl.Estimator(model_fn(name), model_dir, config)

    def input_fn(input_context):  # of several workers each has data of its own
        return dataset(name, data)

    def loop(num_steps: int, after_step: Callable[[], object]) -> None:
        subject.train(input_fn, hooks=[AfterStep(after_step)], steps=num_steps)

    return loop


def replayed(name: str, data: Data) -> Loop:
    """The same without calls of `model_fn`."""
    return estimator(name, data, config=pl.RunConfig(replay_steps=True))


def replicas(name: str, data: Data, **options: bool) -> Loop:
    """The Estimator on two replicas of this process, each with a batch of the usual size."""
    strategy = pl.MirroredStrategy(["CPU:0", "CPU:1"])
    config = pl.RunConfig(train_distribute=strategy, **options)
    return estimator(name, data, config=config)


def replayed_replicas(name: str, data: Data) -> Loop:
    return replicas(name, data, replay_steps=True)


class AfterBatch(callbacks.Callback):
    def __init__(self, call: Callable[[], object], reads_logs: bool) -> None:
        super().__init__()
        self._call = call
        self._reads_logs = reads_logs

    def may_want_batch_logs(self) -> bool:
        return self._reads_logs

    def on_train_batch_end(self, batch, logs=None):
        self._call()


def fit(name: str, data: Data, reads_logs: bool = False) -> Loop:
    """`Model.fit` with the dataset as its input, and no metrics."""
    network = build(name)
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)
    network.compile(optimizers.SGD(LEARNING_RATE), loss)
    examples = dataset(name, data)

    def loop(num_steps: int, after_step: Callable[[], object]) -> None:
        told = AfterBatch(after_step, reads_logs)
        network.fit(examples, steps_per_epoch=num_steps, callbacks=[told], verbose=0)

    return loop


def fit_with_logs(name: str, data: Data) -> Loop:
    """The same with a callback that reads the logs of each batch."""
    return fit(name, data, reads_logs=True)
