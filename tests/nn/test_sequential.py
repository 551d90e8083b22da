"""Sequential: order, creation of weights, and neighbours that are computed together."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import Sequential, layers
from paceline.nn.models.sequential import fuse

IMAGES = np.random.default_rng(0).normal(size=(3, 9, 9, 2)).astype(np.float32)


def names(variables):
    return [v.name for v in variables]


def convolution(**options):
    return layers.Conv2D(4, 3, **{"activation": "relu", **options})


def test_layers_are_called_in_turn():
    model = Sequential([layers.Flatten(), layers.Dense(4), layers.Activation("relu")])
    flat = IMAGES.reshape(3, -1)
    kernel, bias = (model(IMAGES), *model.get_weights())[1:]
    np.testing.assert_allclose(
        model(IMAGES).numpy(), np.maximum(flat @ kernel + bias, 0), rtol=1e-5, atol=1e-6
    )


def test_without_a_shape_weights_come_with_the_first_call(store):
    model = Sequential([layers.Dense(4), layers.Dense(2)])
    assert model.weights == []
    model(np.ones((1, 3)))
    assert names(model.weights) == ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]


@pytest.mark.parametrize(
    "entries",
    [
        lambda: [layers.Dense(4, input_shape=(3,)), layers.Dense(2)],
        lambda: [layers.Input((3,)), layers.Dense(4), layers.Dense(2)],
        lambda: [layers.Input(shape=[3]), layers.Dense(4), layers.Dense(2)],
    ],
)
def test_with_a_shape_weights_are_created_at_once(store, entries):
    Sequential(entries())
    assert {n: v.shape for n, v in store.variables.items()} == {
        "dense/kernel": (3, 4),
        "dense/bias": (4,),
        "dense_1/kernel": (4, 2),
        "dense_1/bias": (2,),
    }


def test_a_model_that_is_built_anew_knows_its_weights_before_the_call(store):
    for _ in range(3):
        with store.building():
            model = Sequential([layers.Dense(4, input_shape=(3,), kernel_regularizer="l2")])
            assert names(model.trainable_variables) == ["dense/kernel", "dense/bias"]
            assert len(model.losses) == 1


def test_the_run_that_creates_weights_is_made_once_in_a_model(store):
    calls = []

    class Counting(layers.Layer):
        def call(self, inputs):
            calls.append(inputs.shape)
            return inputs

    for _ in range(3):
        with store.building():
            Sequential([Counting(input_shape=(3,))])(np.ones((2, 3)))
    assert calls == [(1, 3), (2, 3), (2, 3), (2, 3)]


def test_add_puts_a_layer_at_the_end():
    model = Sequential()
    model.add(layers.Input((9, 9, 2)))
    model.add(convolution())
    model.add(layers.MaxPooling2D())
    assert names(model.weights) == ["conv2d/kernel", "conv2d/bias"]
    assert model(IMAGES).shape == (3, 3, 3, 4)
    with pytest.raises(ValueError, match="Input must come first"):
        model.add(layers.Input((3,)))


def test_models_nest_and_training_reaches_all_layers():
    inner = Sequential([layers.Dropout(0.5, seed=1)])
    model = Sequential([inner, layers.Activation("linear")])
    ones = np.ones((4, 50), np.float32)
    np.testing.assert_array_equal(model(ones).numpy(), ones)
    assert set(np.unique(model(ones, training=True).numpy())) == {0.0, 2.0}


@pytest.mark.parametrize("entry", [np.tanh, "relu", None])
def test_what_is_no_layer_is_refused(entry):
    with pytest.raises(TypeError, match="Sequential takes layers"):
        Sequential([layers.Dense(1), entry])


@pytest.mark.parametrize(
    ("first", "second", "together"),
    [
        (lambda: convolution(), lambda: layers.MaxPooling2D(), True),
        (lambda: convolution(padding="same", strides=2), lambda: layers.MaxPooling2D(), True),
        (lambda: convolution(use_bias=False), lambda: layers.MaxPooling2D((3, 2)), True),
        (lambda: convolution(activation="tanh"), lambda: layers.MaxPooling2D(), False),
        (lambda: convolution(), lambda: layers.MaxPooling2D(3, strides=2), False),
        (lambda: convolution(), lambda: layers.MaxPooling2D(padding="same"), False),
        (lambda: convolution(), lambda: layers.AveragePooling2D(), False),
    ],
)
def test_a_convolution_and_a_maximum_give_the_same_together_and_in_turn(first, second, together):
    convolve, pool = first(), second()
    stage = fuse(convolve, pool)
    assert (stage is not None) == together
    results = []
    for function in (
        Sequential([convolve, pool]),
        lambda x, training: pool(convolve(x, training), training),
    ):
        x = Tensor(IMAGES, requires_grad=True)
        y = function(x, training=True)
        gradients = backward(np.square(y).sum())
        results.append(
            [y.numpy(), gradients[x], *(gradients[v.tensor()] for v in convolve.weights)]
        )
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
