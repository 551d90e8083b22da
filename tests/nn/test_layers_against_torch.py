"""Outputs and gradients of layers against PyTorch, in float64."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import layers

torch = pytest.importorskip("torch")
functional = torch.nn.functional


def data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def check(layer, x, reference, training=False):
    """Compare outputs, and the gradients of a random weighting of them.

    Args:
        reference: A function of the inputs and the layer's trainable weights, as torch tensors.
    """
    layer.make_weights()
    for i, weight in enumerate(layer.trainable_weights):
        weight.assign(data(*weight.shape, seed=i + 1))
    inputs = Tensor(x, requires_grad=True)
    outputs = layer(inputs, training=training)
    seed = data(*outputs.shape, seed=9)
    ours = backward(outputs, seed.copy())

    theirs_in = torch.tensor(x, requires_grad=True)
    theirs_weights = [torch.tensor(w.numpy(), requires_grad=True) for w in layer.trainable_weights]
    theirs = reference(theirs_in, *theirs_weights)
    theirs.backward(torch.tensor(seed))
    close = {"rtol": 1e-9, "atol": 1e-11}
    np.testing.assert_allclose(outputs.numpy(), theirs.detach().numpy(), **close)
    np.testing.assert_allclose(ours[inputs], theirs_in.grad.numpy(), **close)
    for weight, their in zip(layer.trainable_weights, theirs_weights, strict=True):
        np.testing.assert_allclose(ours[weight.tensor()], their.grad.numpy(), **close)


def channels_first(x):
    return x.permute(0, 3, 1, 2)


def channels_last(x):
    return x.permute(0, 2, 3, 1)


F64 = {"dtype": np.float64}


@pytest.mark.parametrize("activation", [None, "relu", "tanh", "softmax", "gelu"])
def test_mb_04_dense(activation):
    layer = layers.Dense(4, activation, input_shape=(3,), **F64)
    after = {
        None: lambda z: z,
        "relu": torch.relu,
        "tanh": torch.tanh,
        "softmax": lambda z: torch.softmax(z, -1),
        "gelu": functional.gelu,
    }[activation]
    check(layer, data(5, 3), lambda x, w, b: after(x @ w + b))


@pytest.mark.parametrize(
    ("strides", "padding", "activation"),
    [(1, "valid", None), ((1, 1), "valid", "relu"), (2, "valid", "relu"), (1, "same", "sigmoid")],
)
def test_mb_04_conv2d(strides, padding, activation):
    layer = layers.Conv2D(
        4, 3, strides, padding, activation=activation, input_shape=(7, 8, 2), **F64
    )
    after = {None: lambda z: z, "relu": torch.relu, "sigmoid": torch.sigmoid}[activation]

    def reference(x, w, b):
        w = w.permute(3, 2, 0, 1)
        y = functional.conv2d(channels_first(x), w, b, stride=strides, padding=padding)
        return after(channels_last(y))

    check(layer, data(3, 7, 8, 2), reference)


@pytest.mark.parametrize(("size", "strides"), [(2, None), (3, 1), ((3, 2), (2, 2))])
def test_mb_04_pooling(size, strides):
    for layer, function in (
        (layers.MaxPooling2D(size, strides), functional.max_pool2d),
        (layers.AveragePooling2D(size, strides), functional.avg_pool2d),
    ):
        check(
            layer,
            data(2, 7, 6, 3),
            lambda x, f=function: channels_last(f(channels_first(x), size, strides)),
        )


def test_layer_normalization():
    layer = layers.LayerNormalization(epsilon=1e-5, input_shape=(3, 6), **F64)
    check(layer, data(4, 3, 6), lambda x, g, b: functional.layer_norm(x, (6,), g, b, eps=1e-5))


@pytest.mark.parametrize("shape", [(8, 3), (4, 5, 6, 3)])
def test_batch_normalization_in_training(shape):
    layer = layers.BatchNormalization(input_shape=shape[1:], **F64)

    def reference(x, g, b):
        flat = x.reshape(-1, shape[-1])
        return functional.batch_norm(flat, None, None, g, b, True, eps=1e-3).reshape(shape)

    check(layer, data(*shape), reference, training=True)


def test_batch_normalization_elsewhere():
    layer = layers.BatchNormalization(input_shape=(3,), **F64)
    layer.make_weights()
    mean, variance = data(3, seed=20), data(3, seed=21) ** 2
    layer.weights[2].assign(mean)
    layer.weights[3].assign(variance)

    def reference(x, g, b):
        stats = torch.tensor(mean), torch.tensor(variance)
        return functional.batch_norm(x, *stats, g, b, False, eps=1e-3)

    check(layer, data(8, 3), reference)


def test_a_whole_model():
    model = layers.Sequential(
        [
            layers.Conv2D(4, 3, activation="relu", input_shape=(9, 9, 2), **F64),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(6, activation="relu", **F64),
            layers.Dense(3, **F64),
        ]
    )

    def reference(x, w0, b0, w1, b1, w2, b2):
        y = torch.relu(functional.conv2d(channels_first(x), w0.permute(3, 2, 0, 1), b0))
        y = channels_last(functional.max_pool2d(y, 2)).flatten(1)
        return torch.relu(y @ w1 + b1) @ w2 + b2

    check(model, data(5, 9, 9, 2), reference)
