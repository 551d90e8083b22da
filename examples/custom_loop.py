"""Train on handwritten digits in a loop of one's own, without an Estimator.

    python examples/custom_loop.py                       # one process, MirroredStrategy
    python examples/custom_loop.py --devices CPU:0 CPU:1 # several devices, or GPU:0 GPU:1
    paceline launch --workers 2 examples/custom_loop.py  # MultiWorkerMirroredStrategy
    mpirun -n 2 python -m mpi4py examples/custom_loop.py

`strategy.run` makes one step on every replica; the loop around it is plain Python. The result is
the same, up to rounding, on however many replicas, because batches are global ones, and each
replica's loss is divided by the global batch. In ten epochs, a few seconds, it reaches
an accuracy of 0.9 on the last 297 of scikit-learn's digits, which others wrote than the first.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import paceline as pl
from paceline import nn
from paceline.nn import Sequential, layers, losses, metrics, optimizers


def load(split):
    """(image float32 in [0, 1], label) pairs, in memory."""
    digits = pl.inputs.load("digits", split=split, as_supervised=True)
    return digits.map(lambda image, label: (image / np.float32(16), label)).cache()


def make_strategy(devices):
    """That of one process, or of the workers that a launcher has started."""
    num_workers = pl.cluster.resolve(os.environ).cluster_spec().num_tasks("worker")
    kind = pl.MultiWorkerMirroredStrategy if num_workers > 1 else pl.MirroredStrategy
    return kind(devices=devices)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--devices", nargs="+", default=["CPU:0"], help="of each worker")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch-size", type=int, default=50, help="examples of all replicas")
    args = parser.parse_args()

    pl.set_seed(1)  # on every worker: initial values, and the order of the data
    strategy = make_strategy(args.devices)
    with strategy.scope():
        model = Sequential(
            [
                layers.Conv2D(32, 3, activation="relu", input_shape=(8, 8, 1)),
                layers.MaxPooling2D(),
                layers.Flatten(),
                layers.Dense(64, activation="relu"),
                layers.Dense(10),
            ]
        )
        optimizer = optimizers.Adam(0.003)
        accuracy = metrics.SparseCategoricalAccuracy()
    loss_of = losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction=losses.Reduction.NONE
    )

    def train_step(images, labels):
        with pl.GradientTape() as tape:
            each = loss_of(labels, model(images, training=True))
            loss = nn.compute_average_loss(each, global_batch_size=args.batch_size)
        variables = model.trainable_variables
        gradients = tape.gradient(loss, variables)
        optimizer.apply_gradients(zip(gradients, variables, strict=True))
        return loss

    def test_step(images, labels):
        accuracy.update_state(labels, model(images, training=False))

    train, test = load("train"), load("test")
    batches = strategy.experimental_distribute_dataset(train.shuffle(1500).batch(args.batch_size))
    test_batches = strategy.experimental_distribute_dataset(test.batch(args.batch_size))
    is_chief = strategy.extended.job.is_chief
    for epoch in range(args.epochs):
        step_losses = [strategy.reduce("SUM", strategy.run(train_step, b)) for b in batches]
        accuracy.reset_state()
        for batch in test_batches:
            strategy.run(test_step, batch)
        result = accuracy.result()  # adds up what all workers have counted, so all call it
        if is_chief:
            print(f"epoch {epoch + 1}: loss {np.mean(step_losses):.4f}, test accuracy {result:.4f}")


if __name__ == "__main__":
    main()
