"""tf.contrib.layers gives what the functions of tf.layers and tf.feature_column give."""

import numpy as np
import pytest

import paceline.compat.tf as tf
from paceline.compat.tf.contrib import layers

IMAGES = np.arange(32, dtype=np.float32).reshape(1, 4, 4, 2) - 10
ROWS = np.float32([[1, -2], [3, 4]])


@pytest.mark.parametrize(
    ("contrib", "expected"),
    [
        (lambda: layers.flatten(IMAGES), lambda: IMAGES.reshape(1, 32)),
        (
            lambda: layers.fully_connected(ROWS, 3, weights_initializer=tf.ones_initializer()),
            lambda: np.maximum(ROWS.sum(1, keepdims=True), 0).repeat(3, 1),
        ),
        (
            lambda: layers.fully_connected(
                ROWS, 3, activation_fn=None, weights_initializer=tf.ones_initializer()
            ),
            lambda: ROWS.sum(1, keepdims=True).repeat(3, 1),
        ),
        (
            lambda: layers.conv2d(IMAGES, 3, 2, weights_initializer=tf.ones_initializer()),
            lambda: tf.nn.relu(tf.nn.conv2d(IMAGES, np.ones((2, 2, 2, 3)), 1, "SAME")),
        ),
        (
            lambda: layers.max_pool2d(IMAGES, 2),
            lambda: tf.nn.max_pool2d(IMAGES, 2, 2, "VALID"),
        ),
        (lambda: layers.dropout(ROWS, is_training=False), lambda: ROWS),
        (lambda: layers.l2_regularizer(0.5)(ROWS), lambda: 0.25 * np.sum(ROWS**2)),
        (lambda: layers.l1_regularizer(0.5)(ROWS), lambda: 5.0),
    ],
)
def test_mb_24_contrib_layers_compute(contrib, expected):
    found, known = (tf.stop_gradient(value()) for value in (contrib, expected))
    np.testing.assert_allclose(found, known, rtol=1e-6)


def test_mb_24_contrib_columns_are_feature_columns():
    age = layers.real_valued_column("age")
    kind = layers.sparse_column_with_keys("kind", ["a", "b"])
    columns = [
        age,
        layers.one_hot_column(kind),
        layers.one_hot_column(layers.bucketized_column(age, [2.0])),
        layers.one_hot_column(layers.sparse_column_with_integerized_feature("number", 2)),
    ]
    features = {
        "age": np.float32([[1], [3]]),
        "kind": np.array(["b", "a"]),
        "number": np.array([1, 0]),
    }
    found = tf.feature_column.input_layer(features, columns)
    np.testing.assert_array_equal(found, [[1, 1, 0, 0, 1, 0, 1], [3, 0, 1, 1, 0, 1, 0]])
    crossed = layers.crossed_column([kind, "number"], 10)
    assert layers.embedding_column(crossed, 4).num_elements == 4


def test_mb_24_contrib_refuses_what_would_be_lost():
    with pytest.raises(ValueError, match="weights_regularizer must be None"):
        layers.fully_connected(ROWS, 3, weights_regularizer=layers.l2_regularizer(0.1))
    with pytest.raises(AttributeError, match="minimize"):
        _ = layers.optimize_loss


@pytest.mark.parametrize(
    ("name", "shape", "arguments", "expected"),
    [
        ("average_pooling3d", (1, 2, 2, 2, 1), (2, 2), np.full((1, 1, 1, 1, 1), 3.5)),
        ("max_pooling3d", (1, 2, 2, 2, 1), (2, 2), np.full((1, 1, 1, 1, 1), 7.0)),
        ("separable_conv1d", (1, 3, 1), (1, 2), [[[1.0], [3.0]]]),
        ("separable_conv2d", (1, 2, 2, 1), (1, 2), [[[[6.0]]]]),
    ],
)
def test_mb_24_further_functions_of_tf_layers(name, shape, arguments, expected):
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    ones = tf.ones_initializer()
    is_conv = name.startswith("separable")
    options = {"depthwise_initializer": ones, "pointwise_initializer": ones} if is_conv else {}
    found = tf.stop_gradient(getattr(tf.layers, name)(x, *arguments, **options))
    np.testing.assert_allclose(found, expected)
