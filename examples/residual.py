"""Train a small residual network on handwritten digits with an Estimator.

    python examples/residual.py                       # one process, MirroredStrategy
    python examples/residual.py --devices CPU:0 CPU:1 # several devices, or GPU:0 GPU:1
    paceline launch --workers 2 examples/residual.py  # MultiWorkerMirroredStrategy
    mpirun -n 2 python -m mpi4py examples/residual.py

The network has the shape of a ResNet (He et al. 2015, "Deep residual learning for image
recognition") at toy size: blocks of two convolutions whose inputs are added to their outputs,
half as high and wide and twice as deep from one stage to the next. The block is a layer made of
layers. `BatchNormalization(synchronized=True)` takes its means over the batches of all replicas, so
that several compute what one does with their global batch. In 150 steps, some seconds, it reaches
an accuracy of 0.9 on the last 297 of scikit-learn's digits, which others wrote than the first. Run
again with more `--steps`, it goes on.
"""

from __future__ import annotations

import argparse
import os

import numpy as np

import paceline as pl
from paceline.nn import Sequential, layers, losses, metrics, optimizers


class ResidualBlock(layers.Layer):
    """Adds to its input what two convolutions make of it.

    Args:
        depth: Channels of the output.
        strides: 2 halves height and width; the input then takes a convolution of 1×1, too.
    """

    def __init__(self, depth, strides=1, **options):
        super().__init__(**options)
        self.convolutions = Sequential(
            [
                layers.Conv2D(depth, 3, strides=strides, padding="same", use_bias=False),
                layers.BatchNormalization(momentum=0.9, synchronized=True),
                layers.Activation("relu"),
                layers.Conv2D(depth, 3, padding="same", use_bias=False),
                layers.BatchNormalization(momentum=0.9, synchronized=True),
            ]
        )
        self.shortcut = layers.Conv2D(depth, 1, strides=strides) if strides > 1 else None

    def call(self, inputs, training=False):
        kept = inputs if self.shortcut is None else self.shortcut(inputs)
        return np.maximum(kept + self.convolutions(inputs, training=training), 0)


def model_fn(features, labels, mode, params):
    """Logits of the ten digits."""
    training = mode == pl.ModeKeys.TRAIN
    x = layers.Conv2D(params["depth"], 3, padding="same", activation="relu")(features)
    for stage in range(3):
        depth = params["depth"] << stage
        x = ResidualBlock(depth, strides=2 if stage else 1)(x, training=training)
    logits = layers.Dense(10)(np.mean(x, axis=(1, 2)))
    if mode == pl.ModeKeys.PREDICT:
        return pl.EstimatorSpec(mode, predictions={"digit": np.argmax(logits, axis=-1)})

    loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
    if mode == pl.ModeKeys.EVAL:
        accuracy = metrics.SparseCategoricalAccuracy()
        accuracy.update_state(labels, logits)
        return pl.EstimatorSpec(mode, loss=loss, eval_metric_ops={"accuracy": accuracy})

    train_op = optimizers.SGD(params["learning_rate"], momentum=0.9).minimize(loss)
    return pl.EstimatorSpec(mode, loss=loss, train_op=train_op)


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
    parser.add_argument("--model-dir", default="runs/residual", help="where checkpoints go")
    parser.add_argument("--devices", nargs="+", default=["CPU:0"], help="of each worker")
    parser.add_argument("--steps", type=int, default=150, help="the global step to train to")
    parser.add_argument("--batch-size", type=int, default=50, help="examples of all replicas")
    parser.add_argument("--depth", type=int, default=8, help="channels of the first stage")
    args = parser.parse_args()

    strategy = make_strategy(args.devices)
    batch_size = args.batch_size // strategy.num_replicas_in_sync

    def train_input_fn(input_context):
        shard = input_context.num_input_pipelines, input_context.input_pipeline_id
        return load("train").shuffle(1500, seed=1).repeat().shard(*shard).batch(batch_size)

    estimator = pl.Estimator(
        model_fn,
        model_dir=args.model_dir,
        config=pl.RunConfig(train_distribute=strategy, eval_distribute=strategy, tf_random_seed=1),
        params={"depth": args.depth, "learning_rate": 0.05},
    )
    result = pl.train_and_evaluate(
        estimator,
        pl.TrainSpec(train_input_fn, max_steps=args.steps),
        pl.EvalSpec(lambda: load("test").batch(99), steps=None),
    )
    if estimator.config.is_chief:
        print(f"{result.ended}: test accuracy {result.metrics['accuracy']:.4f}")


if __name__ == "__main__":
    main()
