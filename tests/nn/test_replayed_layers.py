"""Layers that draw nothing, losses and regularizers are done again by their operations."""

import numpy as np
import pytest

from paceline.autodiff import Program, Replay, Trace, backward
from paceline.nn import layers, losses, regularizers

RNG = np.random.default_rng(0)
N = 4
VECTORS = [RNG.normal(size=(N, 8)).astype(np.float32) for _ in range(3)]
STEPS = [RNG.normal(size=(N, 8, 2)).astype(np.float32) for _ in range(3)]
IMAGES = [RNG.normal(size=(N, 6, 6, 2)).astype(np.float32) for _ in range(3)]
VOLUMES = [RNG.normal(size=(N, 4, 4, 4, 2)).astype(np.float32) for _ in range(3)]


def both(layer):
    """A layer of two inputs, on one and the same squared."""
    return lambda x: layer([x, np.square(x)])


LAYERS = {
    VECTORS[0].shape: {
        "elu": lambda: layers.ELU(),
        "activation": lambda: layers.Activation("gelu"),
        "leaky relu": lambda: layers.LeakyReLU(0.1),
        "prelu": lambda: layers.PReLU(),
        "relu": lambda: layers.ReLU(1.0, 0.1, 0.2),
        "softmax": lambda: layers.Softmax(),
        "thresholded relu": lambda: layers.ThresholdedReLU(0.3),
        "dense": lambda: layers.Dense(3, "relu", kernel_regularizer="l2"),
        "batch normalization": lambda: _training(layers.BatchNormalization()),
        "layer normalization": lambda: layers.LayerNormalization(),
        "group normalization": lambda: layers.GroupNormalization(2),
        "unit normalization": lambda: layers.UnitNormalization(),
        "rescaling": lambda: layers.Rescaling(2.0, 1.0),
        "repeat": lambda: layers.RepeatVector(3),
        "reshape": lambda: layers.Reshape((2, 4)),
        "add": lambda: both(layers.Add()),
        "average": lambda: both(layers.Average()),
        "concatenate": lambda: both(layers.Concatenate()),
        "dot": lambda: both(layers.Dot(1, normalize=True)),
        "maximum": lambda: both(layers.Maximum()),
        "minimum": lambda: both(layers.Minimum()),
        "multiply": lambda: both(layers.Multiply()),
        "subtract": lambda: both(layers.Subtract()),
    },
    STEPS[0].shape: {
        "gru": lambda: layers.GRU(3),
        "lstm": lambda: layers.LSTM(3, return_sequences=True),
        "simple rnn": lambda: layers.SimpleRNN(3),
        "cells": lambda: layers.RNN([layers.LSTMCell(2), layers.GRUCell(2)]),
        "both directions": lambda: layers.Bidirectional(layers.GRU(2)),
        "time distributed": lambda: layers.TimeDistributed(layers.Dense(2)),
        "additive attention": lambda: both(layers.AdditiveAttention()),
        "attention": lambda: both(layers.Attention(use_scale=True)),
        "multi-head attention": lambda: lambda x: layers.MultiHeadAttention(2, 2)(x, x),
        "average pooling": lambda: layers.AveragePooling1D(),
        "max pooling": lambda: layers.MaxPooling1D(),
        "global average": lambda: layers.GlobalAveragePooling1D(),
        "global max": lambda: layers.GlobalMaxPooling1D(),
        "convolution": lambda: layers.Conv1D(2, 3),
        "causal convolution": lambda: layers.Conv1D(2, 3, padding="causal"),
        "transposed convolution": lambda: layers.Conv1DTranspose(2, 3),
        "depthwise convolution": lambda: layers.DepthwiseConv1D(3),
        "separable convolution": lambda: layers.SeparableConv1D(3, 3),
        "cropping": lambda: layers.Cropping1D(1),
        "padding": lambda: layers.ZeroPadding1D(1),
        "upsampling": lambda: layers.UpSampling1D(2),
        "permute": lambda: layers.Permute((2, 1)),
        "masking": lambda: layers.Masking(),
    },
    IMAGES[0].shape: {
        "convolution": lambda: layers.Conv2D(3, 3, activation="relu"),
        "transposed convolution": lambda: layers.Conv2DTranspose(2, 3, 2),
        "depthwise convolution": lambda: layers.DepthwiseConv2D(3),
        "separable convolution": lambda: layers.SeparableConv2D(3, 3),
        "average pooling": lambda: layers.AveragePooling2D(),
        "max pooling": lambda: layers.MaxPooling2D(),
        "global average": lambda: layers.GlobalAveragePooling2D(),
        "global max": lambda: layers.GlobalMaxPooling2D(),
        "cropping": lambda: layers.Cropping2D(1),
        "padding": lambda: layers.ZeroPadding2D(1),
        "upsampling": lambda: layers.UpSampling2D(2, interpolation="bilinear"),
        "flatten": lambda: layers.Flatten(),
    },
    VOLUMES[0].shape: {
        "convolution": lambda: layers.Conv3D(2, 2),
        "transposed convolution": lambda: layers.Conv3DTranspose(2, 2),
        "average pooling": lambda: layers.AveragePooling3D(),
        "max pooling": lambda: layers.MaxPooling3D(),
        "global average": lambda: layers.GlobalAveragePooling3D(),
        "cropping": lambda: layers.Cropping3D(1),
        "padding": lambda: layers.ZeroPadding3D(1),
        "upsampling": lambda: layers.UpSampling3D(2),
    },
}
LAYER_CASES = [
    pytest.param(make, batches, id=f"{name} of {batches[0].ndim} axes")
    for batches in (VECTORS, STEPS, IMAGES, VOLUMES)
    for name, make in LAYERS[batches[0].shape].items()
]


def _training(layer):
    return lambda x: layer(x, training=True)


def assert_done_again(store, loss_of, batches):
    """A loss, and the gradients of all variables, of a batch that was not followed."""

    def called(*arrays):
        with store.building():
            return loss_of(*arrays)

    programs = []
    called(*batches[0])
    for arrays in batches[:2]:
        trace = Trace(arrays)
        with trace.following():
            trace.outputs = (called(*trace.inputs),)
        programs.append(Program(trace))
    with store.building():
        (found,) = Replay(*programs)(batches[2])
    expected = called(*batches[2])
    np.testing.assert_array_equal(found.numpy(), expected.numpy())
    assert found.requires_grad == expected.requires_grad
    if expected.requires_grad:
        gradients = [list(backward(loss).values()) for loss in (found, expected)]
        for one, other in zip(*gradients, strict=True):
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(("make", "batches"), LAYER_CASES)
def test_each_layer(store, make, batches):
    def loss_of(x):
        layer = make()
        outputs = layer(x)
        penalties = getattr(layer, "losses", [])
        return np.mean(np.square(outputs)) + sum(penalties)

    assert_done_again(store, loss_of, [(batch,) for batch in batches])


CLASSES = [RNG.integers(0, 8, N) for _ in range(3)]
SHARES = [np.abs(batch) / np.abs(batch).sum(1, keepdims=True) for batch in VECTORS]
TARGETS = [(batch > 0).astype(np.float32) for batch in VECTORS]
LOSSES = {
    losses.SparseCategoricalCrossentropy(from_logits=True): CLASSES,
    losses.SparseCategoricalCrossentropy(): CLASSES,
    losses.CategoricalCrossentropy(from_logits=True, label_smoothing=0.1): SHARES,
    losses.CategoricalCrossentropy(): SHARES,
    losses.CategoricalFocalCrossentropy(from_logits=True): SHARES,
    losses.BinaryCrossentropy(from_logits=True): TARGETS,
    losses.BinaryCrossentropy(label_smoothing=0.1): TARGETS,
    losses.BinaryFocalCrossentropy(from_logits=True, apply_class_balancing=True): TARGETS,
    losses.KLDivergence(): SHARES,
    losses.Dice(axis=1): TARGETS,
    losses.Tversky(axis=1): TARGETS,
    losses.Hinge(): TARGETS,
    losses.SquaredHinge(): TARGETS,
    losses.CategoricalHinge(): TARGETS,
    losses.CosineSimilarity(): TARGETS,
    losses.Huber(): TARGETS,
    losses.LogCosh(): TARGETS,
    losses.MeanAbsoluteError(): TARGETS,
    losses.MeanAbsolutePercentageError(): TARGETS,
    losses.MeanSquaredError(): TARGETS,
    losses.MeanSquaredLogarithmicError(): TARGETS,
    losses.Poisson(): TARGETS,
}


@pytest.mark.parametrize(
    ("loss", "labels"), LOSSES.items(), ids=[f"{i} {loss.name}" for i, loss in enumerate(LOSSES)]
)
def test_each_loss(store, loss, labels):
    def loss_of(x, y):
        scores = layers.Dense(8, None if "logits" in str(loss.get_config()) else "softmax")(x)
        return loss(y, scores, sample_weight=np.arange(N, dtype=np.float32))

    assert_done_again(store, loss_of, list(zip(VECTORS, labels, strict=True)))


@pytest.mark.parametrize(
    "regularizer",
    [regularizers.L1(0.1), regularizers.L2(0.1), regularizers.L1L2(0.1, 0.2)],
    ids=lambda regularizer: type(regularizer).__name__,
)
def test_each_regularizer(store, regularizer):
    def loss_of(x):
        layer = layers.Dense(3, kernel_regularizer=regularizer)
        return np.mean(layer(x)) + sum(layer.losses)

    assert_done_again(store, loss_of, [(batch,) for batch in VECTORS])
