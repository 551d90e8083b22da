"""The steps of `gpu.py` by this package: loops of one's own, on batches that lie on the device."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from gpu_timing import CLASSES, RATE, Sizes, Step, batch_of, resnet_blocks

import paceline as pl
from paceline.nn import Sequential, layers, losses, optimizers

Found = TypeVar("Found")
Measure = Callable[[Step], Found]
"""What is to be found out about a step; it calls the step some times."""


def mlp(sizes: Sizes, measure: Measure[Found]) -> Found:
    """Dense layers with relu between them."""
    make = partial(dense_layers, *sizes.mlp[1:])
    return of_classifier(make, sizes.mlp[:1], sizes.mlp_batch, measure)


def cnn(sizes: Sizes, which: int, measure: Measure[Found]) -> Found:
    """The tutorial's: 3 x 3 convolution, relu, 2 x 2 max-pool, two dense layers."""

    def make() -> Sequential:
        convolution = layers.Conv2D(sizes.filters, 3, activation="relu")
        dense = [layers.Dense(sizes.units, activation="relu"), layers.Dense(CLASSES)]
        return Sequential([convolution, layers.MaxPooling2D(), layers.Flatten(), *dense])

    return of_classifier(make, sizes.image, sizes.cnn_batches[which], measure)


def resnet(sizes: Sizes, measure: Measure[Found]) -> Found:
    """The blocks of ResNet-18 behind one 3 x 3 convolution, as images are small."""

    def make() -> Sequential:
        blocks = [Block(*block) for block in resnet_blocks(sizes.resnet_width)]
        stem = layers.Conv2D(sizes.resnet_width, 3, padding="same", activation="relu")
        ends = [layers.GlobalAveragePooling2D(), layers.Dense(CLASSES)]
        return Sequential([stem, *blocks, *ends])

    return of_classifier(make, sizes.resnet_image, sizes.resnet_batch, measure)


class Block(layers.Layer):
    """Two convolutions around which the input goes, as in ResNet-18."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        normalized = [
            part
            for strides in (stride, 1)
            for part in (
                layers.Conv2D(after, 3, strides=strides, padding="same", use_bias=False),
                layers.BatchNormalization(),
                layers.Activation("relu"),
            )
        ]
        self.convolutions = Sequential(normalized[:-1])
        self.shortcut = layers.Conv2D(after, 1, strides=stride) if before != after else None

    def call(self, inputs: Any, training: bool = False) -> Any:
        kept = inputs if self.shortcut is None else self.shortcut(inputs)
        return np.maximum(kept + self.convolutions(inputs, training=training), 0)


def embedding(sizes: Sizes, measure: Measure[Found]) -> Found:
    """One large table, of which a step reads and changes some rows."""
    indices = np.random.default_rng(0).integers(0, sizes.rows, sizes.ids)
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        table = layers.Embedding(sizes.rows, sizes.width)
        optimizer = optimizers.Adagrad(0.1, sparse="lazy")

    def in_replica() -> Found:
        device_indices = pl.Tensor(indices)

        def step() -> None:
            with pl.GradientTape() as tape:
                loss = np.mean(np.square(np.sum(table(device_indices), axis=1)))
            variables = table.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        return measure(step)

    return strategy.run(in_replica)


def dense_layers(*widths: int) -> Sequential:
    hidden = [layers.Dense(n, activation="relu") for n in widths[:-1]]
    return Sequential([*hidden, layers.Dense(widths[-1])])


def of_classifier(
    make: Callable[[], Any], shape: tuple[int, ...], batch: int, measure: Measure[Found]
) -> Found:
    """A model's step by SGD on GPU:0.

    Args:
        make: Makes the model.
        shape: Of an example.
        batch: How many examples.
        measure: What is found out.
    """
    strategy = pl.OneDeviceStrategy("GPU:0")
    x, y = batch_of(shape, batch)
    with strategy.scope():
        model, optimizer = make(), optimizers.SGD(RATE)

    def in_replica() -> Found:
        device_x, device_y = pl.Tensor(x), pl.Tensor(y)  # uploaded once, and kept
        return measure(lambda: train(model, optimizer, device_x, device_y))

    return strategy.run(in_replica)


def train(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """A step of a classifier, in a replica."""
    with pl.GradientTape() as tape:
        logits = model(x, training=True)
        loss = np.mean(losses.sparse_categorical_crossentropy(y, logits, from_logits=True))
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def shared_card(sizes: Sizes, measure: Measure[dict[str, float]]) -> dict[str, float]:
    """A step of two replicas that share a card, and of a single one with the batches of both."""
    found = {}
    for name, devices in (("one", ["GPU:0"]), ("two", ["GPU:0", "GPU:0:1"])):
        strategy = pl.MirroredStrategy(devices)
        x, y = batch_of(sizes.mlp[:1], 2 * sizes.mlp_batch // len(devices))
        with strategy.scope():
            model, optimizer = dense_layers(*sizes.mlp[1:]), optimizers.SGD(RATE)
        batches = strategy.run(lambda x=x, y=y: (pl.Tensor(x), pl.Tensor(y)))
        step = partial(strategy.run, train, (model, optimizer, *batches))
        for what, ms in measure(step).items():
            found[f"{name}, {what}"] = ms
    return found
