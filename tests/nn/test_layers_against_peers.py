"""Outputs and gradients of layers against PyTorch, whose answers are stored, in float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import Sequential, layers

TORCH = dict(np.load(Path(__file__).parents[1] / "peers" / "torch.npz"))
CLOSE = {"rtol": 1e-9, "atol": 1e-11}
F64 = {"dtype": np.float64}


def check(name, layer, training=False):
    """Compare outputs, and the gradients of a weighted sum of them, with those stored."""
    layer.make_weights()
    for i, weight in enumerate(layer.trainable_weights, start=1):
        weight.assign(TORCH[f"layer/{name}/x{i}"])
    inputs = Tensor(TORCH[f"layer/{name}/x0"], requires_grad=True)
    outputs = layer(inputs, training=training)
    np.testing.assert_allclose(outputs.numpy(), TORCH[f"layer/{name}/y"], **CLOSE)
    found = backward(outputs, np.cos(np.arange(float(outputs.size))).reshape(outputs.shape))
    leaves = [inputs, *[weight.tensor() for weight in layer.trainable_weights]]
    for i, leaf in enumerate(leaves):
        np.testing.assert_allclose(found[leaf], TORCH[f"layer/{name}/g{i}"], **CLOSE)


@pytest.mark.parametrize("activation", [None, "relu", "tanh", "softmax", "gelu"])
def test_mb_04_dense(activation):
    check(f"dense {activation}", layers.Dense(4, activation, input_shape=(3,), **F64))


@pytest.mark.parametrize(
    ("strides", "padding", "activation"),
    [(1, "valid", None), ((1, 1), "valid", "relu"), (2, "valid", "relu"), (1, "same", "sigmoid")],
)
def test_mb_04_conv2d(strides, padding, activation):
    name = f"conv2d {1 if strides == (1, 1) else strides} {padding} {activation}"
    shape = (7, 8, 2)
    check(
        name,
        layers.Conv2D(4, 3, strides, padding, None, 1, 1, activation, input_shape=shape, **F64),
    )


@pytest.mark.parametrize(("size", "strides"), [(2, None), (3, 1), ((3, 2), (2, 2))])
def test_mb_04_pooling(size, strides):
    check(f"max {size} {strides}", layers.MaxPooling2D(size, strides))
    check(f"average {size} {strides}", layers.AveragePooling2D(size, strides))


def test_layer_normalization():
    layer = layers.LayerNormalization(epsilon=1e-5, input_shape=(3, 6), **F64)
    check("layer normalization", layer)


@pytest.mark.parametrize("shape", [(8, 3), (4, 5, 6, 3)])
def test_batch_normalization_in_training(shape):
    layer = layers.BatchNormalization(input_shape=shape[1:], **F64)
    check(f"batch normalization of rank {len(shape)}", layer, training=True)


def test_batch_normalization_elsewhere():
    layer = layers.BatchNormalization(input_shape=(3,), **F64)
    layer.make_weights()
    for weight, name in zip(layer.weights[2:], ("mean", "variance"), strict=True):
        weight.assign(TORCH[f"layer/batch normalization elsewhere/{name}"])
    check("batch normalization elsewhere", layer)


def test_a_whole_model():
    model = Sequential(
        [
            layers.Conv2D(4, 3, activation="relu", input_shape=(9, 9, 2), **F64),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(6, activation="relu", **F64),
            layers.Dense(3, **F64),
        ]
    )
    check("a whole model", model)
