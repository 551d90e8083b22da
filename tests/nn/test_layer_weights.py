"""How a layer's weights are made, begun and held."""

from __future__ import annotations

import numpy as np
import pytest

from paceline import nn
from paceline.autodiff import Tensor
from paceline.nn import constraints, layers, optimizers
from paceline.strategies import MirroredStrategy, VariableStore, current_store, get_variable

TABLE = np.arange(6.0, dtype=np.float32).reshape(3, 2)


class Built(layers.Layer):
    """As Keras's users write it: weights are made in `build`."""

    def __init__(self, units):
        super().__init__()
        self.units = units
        self.num_builds = 0

    def build(self, input_shape):
        self.num_builds += 1
        self.w = self.add_weight("w", (input_shape[-1], self.units), initializer="ones")
        self.b = self.add_weight(name="b", shape=(self.units,), initializer="zeros")
        super().build(input_shape)

    def call(self, inputs):
        return inputs @ self.w + self.b


class Hidden(layers.Layer):
    """A layer whose call says nothing of training to the one in it."""

    def __init__(self):
        super().__init__()
        self.inner = layers.Dropout(0.5)

    def call(self, inputs):
        return self.inner(inputs)


def test_build_runs_once_before_the_first_call():
    layer = Built(2)
    for _ in range(2):
        np.testing.assert_array_equal(layer(np.ones((1, 3))).numpy(), [[3, 3]])
    assert layer.built
    assert layer.num_builds == 1
    assert [w.name for w in layer.weights] == ["built/w", "built/b"]


def test_build_runs_anew_in_each_model(store):
    layer = Built(2)
    layer(np.ones((1, 3)))
    other = VariableStore(seed=1)
    with other.building():
        layer(np.ones((1, 3)))
        assert layer.w is other.variables["built/w"]


def test_replicas_that_share_a_layer_build_it_once():
    class Nested(layers.Layer):
        def build(self, input_shape):
            builds.append(input_shape)
            self.inner = layers.Dense(2)
            super().build(input_shape)

        def call(self, inputs):
            return self.inner(inputs)

    builds = []
    strategy = MirroredStrategy([f"CPU:{i}" for i in range(4)])
    with strategy.scope():
        layer = Nested()
    strategy.run(lambda: layer(np.ones((2, 3), np.float32)).numpy())
    assert builds == [(2, 3)]
    assert [w.shape for w in layer.weights] == [(3, 2), (2,)]


def test_build_by_hand_makes_the_weights():
    layer = layers.Dense(2)
    layer.build((None, 3))
    assert layer.kernel.shape == (3, 2)
    assert layer.bias.shape == (2,)
    assert layer.built
    written = Built(2)
    written.build((None, 3))
    assert written.w.shape == (3, 2)


def test_weights_are_attributes_once_they_are_there():
    layer = layers.Dense(2, use_bias=False)
    with pytest.raises(AttributeError, match="'dense' has no kernel before its first call"):
        _ = layer.kernel
    layer(np.ones((1, 3)))
    assert layer.kernel is layer.weights[0]
    assert layer.bias is None
    norm = layers.BatchNormalization(input_shape=(3,))
    assert norm.gamma.shape == norm.moving_variance.shape == (3,)


def test_weights_begin_with_given_values():
    layer = layers.Embedding(3, 2, weights=[TABLE], trainable=False)
    np.testing.assert_array_equal(layer([2]).numpy(), TABLE[[2]])
    dense = layers.Dense(2, weights=[np.ones((3, 2)), np.array([1, 2])])
    np.testing.assert_array_equal(dense(np.ones((1, 3))).numpy(), [[4, 5]])


def test_training_holds_for_layers_that_are_not_told():
    x = np.ones((1, 1000), np.float32)
    outer = Hidden()
    assert (outer(x, training=True).numpy() == 0).any()
    assert (outer(x).numpy() == 1).all()


@pytest.mark.parametrize(
    ("constraint", "w", "expected"),
    [
        ("max_norm", [[3.0, 0.6], [4.0, 0.8]], [[1.2, 0.6], [1.6, 0.8]]),
        (constraints.MaxNorm(1, axis=1), [[3.0, 4.0]], [[0.6, 0.8]]),
        ("NonNeg", [[-1.0, 2.0]], [[0, 2.0]]),
        ("unit_norm", [[3.0, 0.3], [4.0, 0.4]], [[0.6, 0.6], [0.8, 0.8]]),
        (constraints.MinMaxNorm(2, 3), [[0.6, 6], [0.8, 8]], [[1.2, 1.8], [1.6, 2.4]]),
        (constraints.MinMaxNorm(0, 1, rate=0.5), [[3.0], [4.0]], [[1.8], [2.4]]),
        (constraints.get(None), None, None),
    ],
)
def test_mb_04_constraints(constraint, w, expected):
    if constraint is None:
        return
    got = constraints.get(constraint)(np.array(w))
    np.testing.assert_allclose(got, expected, rtol=1e-6)


@pytest.mark.parametrize("replicas", [1, 2])
def test_each_update_ends_with_the_constraint(replicas):
    strategy = MirroredStrategy([f"CPU:{i}" for i in range(replicas)])
    with strategy.scope():
        layer = layers.Dense(2, kernel_constraint="non_neg", kernel_initializer="ones")
        optimizer = optimizers.SGD(1.0)

    def step():
        loss = np.mean(layer(np.array([[2.0, -1.0]], np.float32)) * np.array([1.0, -1.0]))
        optimizer.minimize(loss)()

    for _ in range(3):
        strategy.run(step)
    kernel = layer.kernel.numpy()
    assert (kernel >= 0).all()
    assert (kernel == 0).any()
    assert (kernel > 1).any()


@pytest.mark.parametrize(
    "initializer",
    [
        lambda shape, dtype: np.full(shape, 2, dtype),
        lambda shape, dtype=None, **kwargs: np.full(shape, 2, dtype),
        lambda shape, dtype, rng: np.full(shape, 2, dtype),
        nn.initializers.Constant(2),
        nn.initializers.Constant,
    ],
)
def test_initializers_are_called_as_keras_or_as_ours(initializer):
    layer = layers.Dense(3, kernel_initializer=initializer, input_shape=(2,))
    value = 0 if initializer is nn.initializers.Constant else 2
    assert (layer.kernel.numpy() == value).all()
    if not isinstance(initializer, type):
        v = get_variable("v", (2,), initializer=initializer)
        assert (v.numpy() == 2).all()
        assert v.dtype == np.float32


def test_initializers_can_be_called_by_hand_as_in_keras():
    made = nn.initializers.RandomNormal(seed=3)
    np.testing.assert_array_equal(made((2, 3)), made(shape=(2, 3), dtype="float32"))
    assert made((2, 3)).dtype == np.float32
    np.testing.assert_array_equal(nn.initializers.get("identity")((2, 2)), np.eye(2))
    assert nn.initializers.get("OrthogonalInitializer") == nn.initializers.Orthogonal()
    with pytest.raises(TypeError, match="use Constant"):
        nn.initializers.get(np.ones(3))


def test_creators_see_the_constraint_of_a_variable():
    layer = layers.Dense(1, kernel_constraint=constraints.NonNeg(), input_shape=(2,))
    assert layer.kernel.constraint == constraints.NonNeg()
    assert layer.bias.constraint is None
    assert current_store().variables["dense/kernel"] is layer.kernel
    assert isinstance(layer.kernel.tensor(), Tensor)
