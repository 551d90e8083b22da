"""Functions of tensors give what TensorFlow gives: values, shapes and dtypes."""

import json
from pathlib import Path

import numpy as np
import pytest

import paceline.compat.tf as tf

from .cases import CASES

STORED = json.loads((Path(__file__).parent / "tensorflow.json").read_text())["values"]


def require_equal(found, stored):
    if stored and isinstance(stored[0], str):
        dtype, shape, values = stored
        assert (str(np.asarray(found).dtype), np.shape(found)) == (dtype, tuple(shape))
        expected = np.array(values, dtype).reshape(shape)
        np.testing.assert_allclose(np.asarray(found), expected, rtol=2e-6, atol=2e-6)
        return
    assert len(found) == len(stored)
    for part, of_it in zip(found, stored, strict=True):
        require_equal(part, of_it)


@pytest.mark.parametrize("case", CASES)
def test_mb_24_functions_of_tensors_give_what_tensorflow_gives(case):
    found = eval(case, {"tf": tf})
    require_equal(found, STORED[case])
    if not case.startswith("tf.nest."):
        assert all(tf.is_tensor(leaf) for leaf in tf.nest.flatten(found))


def test_mb_24_gradients_flow_through_the_functions():
    x = tf.Variable([[1.0, -2.0], [0.5, 4.0]])
    with tf.GradientTape() as tape:
        y = tf.concat([tf.nn.relu(x), tf.square(tf.transpose(x))], axis=1)
        loss = tf.reduce_mean(tf.gather(y, [0, 2, 3], axis=1)) + tf.norm(x)
    gradient = tape.gradient(loss, x)
    norm = np.sqrt(1 + 4 + 0.25 + 16)
    by_hand = np.array([[1, 0], [1, 0]]) + 2 * np.array([[1.0, -2.0], [0.5, 4.0]])
    expected = by_hand / 6 + x.numpy() / norm
    np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-6)


def test_mb_05_the_functions_make_functional_models():
    inputs = tf.keras.Input(shape=(3,))
    x = tf.nn.relu(tf.matmul(inputs, tf.ones([3, 2])))
    outputs = tf.concat([x, tf.reduce_sum(inputs, axis=1, keepdims=True)], axis=-1)
    model = tf.keras.Model(inputs, tf.keras.layers.Dense(1, kernel_initializer="ones")(outputs))
    np.testing.assert_allclose(model(np.float32([[1, 2, -4]])).numpy(), [[-1.0]])
