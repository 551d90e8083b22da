"""Masks go from layer to layer, as in Keras."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import Input, Model, Sequential, layers
from paceline.nn.masks import mask_of, masked

TEXT = np.array([[3, 1, 0, 0], [2, 0, 4, 0]])
COUNTS = TEXT != 0


class Total(layers.Layer):
    """What a user would write: its `call` takes the mask."""

    def call(self, inputs, mask=None):
        return np.sum(inputs * mask[..., None], axis=1)


@pytest.mark.parametrize(
    "layer",
    [
        lambda: layers.Dense(2, "relu"),
        lambda: layers.Activation("tanh"),
        lambda: layers.Dropout(0.5),
        lambda: layers.LayerNormalization(),
        lambda: layers.ReLU(),
        lambda: layers.Lambda(np.square, mask=lambda inputs, mask: mask),
        lambda: Sequential([layers.Dense(2), layers.Dropout(0.5)]),
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_layers_that_keep_the_steps_apart_hand_the_mask_on(layer, training):
    outputs = layer()(layers.Embedding(5, 3, mask_zero=True)(TEXT), training=training)
    np.testing.assert_array_equal(mask_of(outputs), COUNTS)


def test_masking_marks_steps_of_which_all_features_are_the_value():
    x = np.array([[[1.0, 0], [9, 9], [0, 9]]])
    outputs = layers.Masking(9.0)(x)
    np.testing.assert_array_equal(mask_of(outputs), [[True, False, True]])
    np.testing.assert_array_equal(outputs.numpy(), [[[1, 0], [0, 0], [0, 9]]])


def test_a_layer_whose_call_takes_a_mask_gets_it():
    embedding = layers.Embedding(5, 3, mask_zero=True)
    outputs = Total()(embedding(TEXT))
    table = embedding.embeddings.numpy()
    np.testing.assert_allclose(outputs.numpy(), [table[3] + table[1], table[2] + table[4]])
    assert mask_of(outputs) is None


def test_a_layer_that_knows_no_masks_drops_them_and_says_so(caplog):
    with caplog.at_level(logging.WARNING, "paceline"):
        outputs = layers.Flatten(name="flat")(layers.Embedding(5, 3, mask_zero=True)(TEXT))
    assert mask_of(outputs) is None
    assert "Layer 'flat' was given inputs with a mask" in caplog.text


def test_masks_go_through_a_functional_model():
    inputs = Input((4,), dtype=np.int64)
    both = [layers.Embedding(5, 3, mask_zero=True)(inputs) for _ in range(2)]
    model = Model(inputs, layers.GlobalAveragePooling1D()(layers.Add()(both)))
    tables = [layer.embeddings.numpy() for layer in model.layers if layer.weights]
    sums = tables[0] + tables[1]
    expected = [(sums[3] + sums[1]) / 2, (sums[2] + sums[4]) / 2]
    np.testing.assert_allclose(model(TEXT).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [
        (lambda: layers.Add(), [[True, True, True]]),
        (lambda: layers.Concatenate(axis=1), [[True, False, True, False, True, True]]),
        (lambda: layers.Concatenate(axis=2), [[False, False, True]]),
    ],
)
def test_merged_masks_are_kerass(layer, expected):
    one = masked(np.ones((1, 3, 2)), np.array([[True, False, True]]))
    other = masked(np.ones((1, 3, 2)), np.array([[False, True, True]]))
    np.testing.assert_array_equal(mask_of(layer()([one, other])), expected)


def test_gradients_flow_through_a_tensor_with_a_mask():
    x = Tensor(np.ones((2, 4, 3)), requires_grad=True)
    outputs = layers.GlobalAveragePooling1D()(masked(x, COUNTS))
    expected = np.broadcast_to((COUNTS / 2)[..., None], (2, 4, 3))
    np.testing.assert_allclose(backward(outputs.sum())[x], expected)
