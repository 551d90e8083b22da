"""One linear regression, trained in the three ways that there are: the guide's, side by side.

    python examples/linear_regression.py                       # one process, MirroredStrategy
    python examples/linear_regression.py --devices CPU:0 CPU:1 # several devices, or GPU:0 GPU:1

An Estimator, `Model.fit` and a loop of one's own make the same steps on the same batches: the same
model, loss and optimizer, a rate of 0.1, from the same beginning. So they end with the same
weights, which this prints, beside those that solve the problem exactly.
"""

from __future__ import annotations

import argparse
import tempfile

import numpy as np

import paceline as pl
from paceline import nn
from paceline.nn import Sequential, layers, losses, optimizers

NUM_STEPS, BATCH, RATE = 300, 20, 0.1
SLOPES = np.array([[2.0], [-1.0], [0.5]], np.float32)


def examples():
    """400 points (x, y) on a plane, and a little noise."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 3)).astype(np.float32)
    return x, x @ SLOPES + 1 + rng.normal(0, 0.1, size=(400, 1)).astype(np.float32)


def global_batches():
    return pl.Dataset.from_tensor_slices(examples()).repeat().batch(BATCH)


def make_model():
    dense = layers.Dense(1, kernel_initializer="zeros", name="line", input_shape=(3,))
    return Sequential([dense])


def with_an_estimator(strategy):
    def model_fn(features, labels, mode):
        predictions = layers.Dense(1, kernel_initializer="zeros", name="line")(features)
        loss = np.mean(np.square(predictions - labels))
        train_op = optimizers.SGD(RATE).minimize(loss) if mode == pl.ModeKeys.TRAIN else None
        return pl.EstimatorSpec(mode, predictions, loss, train_op)

    def input_fn():  # gives the batches of one replica, and not global ones
        per_replica = BATCH // strategy.num_replicas_in_sync
        return pl.Dataset.from_tensor_slices(examples()).repeat().batch(per_replica)

    with tempfile.TemporaryDirectory() as model_dir:
        config = pl.RunConfig(model_dir=model_dir, train_distribute=strategy)
        estimator = pl.Estimator(model_fn, config=config)
        estimator.train(input_fn, steps=NUM_STEPS)
        return [estimator.get_variable_value(f"line/{name}") for name in ("kernel", "bias")]


def with_fit(strategy):
    with strategy.scope():
        model = make_model()
        model.compile(optimizers.SGD(RATE), loss="mse")
    model.fit(global_batches(), epochs=1, steps_per_epoch=NUM_STEPS, verbose=0)
    return model.get_weights()


def with_a_loop(strategy):
    with strategy.scope():
        model, optimizer = make_model(), optimizers.SGD(RATE)
    squared_error = losses.MeanSquaredError(reduction=losses.Reduction.NONE)

    def step(x, y):
        with pl.GradientTape() as tape:
            each = squared_error(y, model(x, training=True))
            loss = nn.compute_average_loss(each, global_batch_size=BATCH)
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    batches = iter(strategy.experimental_distribute_dataset(global_batches()))
    for _ in range(NUM_STEPS):
        strategy.run(step, next(batches))
    return model.get_weights()


def exactly():
    x, y = examples()
    with_ones = np.hstack([x, np.ones((len(x), 1), np.float32)])
    solution = np.linalg.lstsq(with_ones, y, rcond=None)[0]
    return solution[:3], solution[3]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", nargs="+", default=["CPU:0"])
    args = parser.parse_args()
    strategy = pl.MirroredStrategy(args.devices)
    ways = {"Estimator": with_an_estimator, "fit": with_fit, "loop": with_a_loop}
    found = {name: way(strategy) for name, way in ways.items()} | {"exactly": exactly()}
    for name, (kernel, bias) in found.items():
        numbers = " ".join(f"{number:9.6f}" for number in (*kernel.ravel(), *np.ravel(bias)))
        print(f"{name:10} {numbers}")


if __name__ == "__main__":
    main()
