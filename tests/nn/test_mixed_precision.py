"""MB-19: layers compute in half precision, weights and losses are float32, losses are scaled."""

import sys

import numpy as np
import pytest

from paceline.nn import Model, Sequential, layers, losses, mixed_precision, optimizers
from paceline.nn.mixed_precision import LossScaleOptimizer, Policy
from paceline.strategies import Variable, VariableStore

HALF = ["mixed_float16", "mixed_bfloat16"]


@pytest.fixture(autouse=True)
def policy_as_before():
    yield
    mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize(
    ("name", "compute", "variable"),
    [
        ("float32", "float32", "float32"),
        ("float64", "float64", "float64"),
        ("float16", "float16", "float16"),
        ("mixed_float16", "float16", "float32"),
        ("mixed_bfloat16", "bfloat16", "float32"),
    ],
)
def test_mb_19_a_policy_says_in_which_dtypes_layers_compute_and_keep(name, compute, variable):
    for layer in (layers.Dense(2, dtype=name), layers.Dense(2, dtype=Policy(name))):
        assert layer.dtype_policy == Policy(name)
        assert layer.compute_dtype.name == compute
        assert layer.variable_dtype.name == layer.dtype.name == variable
        assert layer(np.ones((1, 3), np.float32)).dtype.name == compute
        assert {weight.dtype.name for weight in layer.weights} == {variable}


def test_the_global_policy_is_that_of_layers_made_after_it():
    before = layers.Dense(2)
    mixed_precision.set_global_policy("mixed_float16")
    assert mixed_precision.global_policy().name == "mixed_float16"
    assert layers.Dense(2).compute_dtype == "float16"
    assert before.compute_dtype == layers.Dense(2, dtype="float32").compute_dtype == "float32"


def test_a_policy_that_cannot_be_is_refused(monkeypatch):
    with pytest.raises(TypeError, match="use the policy 'mixed_bfloat16'"):
        Policy("bfloat16")
    with pytest.raises(TypeError, match="mixed_float8"):
        Policy("mixed_float8")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ImportError, match=r"install paceline\[bfloat16\]"):
        Policy("mixed_bfloat16")


IMAGES, ROWS = (2, 8, 8, 3), (4, 6)
LAYERS = {
    "dense": (lambda: layers.Dense(5, activation="gelu"), ROWS),
    "conv2d": (lambda: layers.Conv2D(4, 3, activation="relu"), IMAGES),
    "max pooling": (lambda: layers.MaxPooling2D(), IMAGES),
    "average pooling": (lambda: layers.AveragePooling2D(), IMAGES),
    "batch normalization": (lambda: layers.BatchNormalization(), IMAGES),
    "layer normalization": (lambda: layers.LayerNormalization(), ROWS),
    "dropout": (lambda: layers.Dropout(0.5, seed=3), ROWS),
    "flatten": (lambda: layers.Flatten(), IMAGES),
    "lstm": (lambda: layers.LSTM(3), (2, 4, 6)),
    "gru": (lambda: layers.GRU(3), (2, 4, 6)),
    "attention": (lambda: layers.MultiHeadAttention(2, 4), (2, 4, 6)),
    "depthwise": (lambda: layers.DepthwiseConv2D(3), IMAGES),
    "global pooling": (lambda: layers.GlobalAveragePooling2D(), IMAGES),
    "activation": (lambda: layers.Activation("softmax"), ROWS),
}


@pytest.mark.parametrize("policy", HALF)
@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_in_half_precision_about_what_it_gives(name, policy):
    make, shape = LAYERS[name]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    found = {}
    for each in ("float32", policy):
        mixed_precision.set_global_policy(each)
        with VariableStore(seed=1).building():
            leaf, layer = Variable(x, name="x"), make()
            inputs = leaf.tensor() * 1
            more = {"value": inputs} if name == "attention" else {}
            outputs = layer(inputs, training=True, **more)
            assert outputs.dtype == layer.compute_dtype
            assert {weight.dtype.name for weight in layer.weights} <= {"float32"}
            loss = np.sum(np.square(outputs.astype(np.float32)))
            pairs = optimizers.SGD().compute_gradients(loss, [leaf, *layer.trainable_weights])
            found[each] = [outputs.numpy(), *[g for g, _ in pairs]]
    for half, single in zip(found[policy], found["float32"], strict=True):
        scale = max(1.0, float(np.abs(single).max()))
        difference = np.abs(half.astype(np.float64) - single).max()
        assert difference <= (0.01 if policy == "mixed_float16" else 0.1) * scale


def test_gradients_of_float32_weights_are_float32_and_an_embedding_s_are_rows():
    mixed_precision.set_global_policy("mixed_float16")
    table = layers.Embedding(5, 3)
    rows = table(np.array([1, 1, 3]))
    assert rows.dtype == "float16"
    ((gradient, weight),) = optimizers.SGD().compute_gradients(np.sum(rows), table.weights)
    assert gradient.values.dtype == weight.dtype == np.float32
    np.testing.assert_array_equal(gradient.to_dense()[1], 2)


def test_an_embedding_takes_its_indices_as_they_are():
    mixed_precision.set_global_policy("mixed_float16")
    table = layers.Embedding(3000, 1, embeddings_initializer="ones")
    row = np.array([2999.0], np.float32)  # 3000 in float16
    (gradient, _), *_ = optimizers.SGD().compute_gradients(np.sum(table(row)), table.weights)
    assert gradient.indices.tolist() == [2999]


def test_a_last_layer_of_float32_gives_float32_and_a_model_leaves_it_so():
    mixed_precision.set_global_policy("mixed_float16")
    model = Sequential([layers.Dense(4), layers.Activation("softmax", dtype="float32")])
    assert model(np.ones((2, 3), np.float32)).dtype == np.float32

    class Own(Model):
        def __init__(self):
            super().__init__()
            self.dense = layers.Dense(1, dtype="float32")

        def call(self, inputs):
            assert inputs.dtype == "float16"
            return self.dense(inputs)

    assert Own()(np.ones((2, 3), np.float32)).dtype == np.float32


@pytest.mark.parametrize("policy", HALF)
def test_losses_of_half_precision_are_float32(policy):
    predictions = layers.Dense(1, dtype=policy)(np.full((4, 1), 300.0, np.float32))
    loss = losses.MeanSquaredError()(np.zeros((4, 1)), predictions * 100)
    assert loss.dtype == np.float32
    assert np.isfinite(loss.item())


def test_a_policy_goes_into_the_configuration_of_a_layer():
    layer = layers.Dense(2, dtype=Policy("mixed_float16"))
    assert layers.Dense.from_config(layer.get_config()).dtype_policy == Policy("mixed_float16")


def variable():
    return Variable(np.ones(2, np.float32), name="w")


def test_a_dynamic_scale_halves_where_a_gradient_is_not_finite_and_grows_after_good_steps():
    w = variable()
    optimizer = LossScaleOptimizer(optimizers.SGD(0.5), initial_scale=8.0, dynamic_growth_steps=2)
    scales = []
    for gradient in (1.0, 1.0, np.inf, np.nan, 1.0, 1.0):
        optimizer.apply_gradients([(np.full(2, gradient, np.float32), w)])
        scales.append(optimizer.loss_scale)
    assert scales == [8.0, 16.0, 8.0, 4.0, 4.0, 8.0]
    assert int(optimizer.iterations) == 4
    np.testing.assert_array_equal(w.numpy(), 1 - 4 * 0.5)
    assert {v.name for v in optimizer.variables} == {
        "sgd/iterations",
        "sgd/loss_scale",
        "sgd/good_steps",
    }


def test_a_scale_grows_at_once_where_more_good_steps_are_behind_it_than_it_now_takes():
    store, scales = VariableStore(), []
    for steps in (5, 5, 5, 2):
        with store.building():
            optimizer = LossScaleOptimizer(optimizers.SGD(0.5), True, 8.0, steps)
            optimizer.apply_gradients([(np.ones(2, np.float32), variable())])
            scales.append(optimizer.loss_scale)
    assert scales == [8, 8, 8, 16]


def test_a_fixed_scale_stays_and_a_bad_step_is_skipped():
    w = variable()
    optimizer = LossScaleOptimizer(optimizers.SGD(0.5), dynamic=False, initial_scale=8.0)
    for gradient in (np.inf, 1.0):
        optimizer.apply_gradients([(np.full(2, gradient, np.float32), w)])
    np.testing.assert_array_equal(w.numpy(), 0.5)
    assert optimizer.loss_scale == 8.0


def test_a_scaled_loss_and_unscaled_gradients_are_for_custom_loops():
    w = variable()
    optimizer = LossScaleOptimizer(optimizers.SGD(0.5), initial_scale=8.0)
    loss = optimizer.get_scaled_loss(np.sum(w * 3.0))
    assert loss.item() == 48.0
    gradients = optimizers.SGD().compute_gradients(loss, [w])
    (unscaled, none) = optimizer.get_unscaled_gradients([gradients[0][0], None])
    np.testing.assert_array_equal(unscaled, 3.0)
    assert none is None
    optimizer.learning_rate = 0.25
    optimizer.apply_gradients([(unscaled, w)])
    np.testing.assert_array_equal(w.numpy(), 0.25)
    assert optimizer.inner_optimizer.learning_rate == 0.25


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LossScaleOptimizer("adam"), "inner_optimizer must be an optimizer"),
        (
            lambda: LossScaleOptimizer(LossScaleOptimizer(optimizers.SGD())),
            "the loss is scaled already",
        ),
        (lambda: LossScaleOptimizer(optimizers.SGD(), dynamic=False), "as initial_scale"),
        (lambda: LossScaleOptimizer(optimizers.SGD(), initial_scale=0), "must be positive"),
        (
            lambda: LossScaleOptimizer(optimizers.SGD(), dynamic_growth_steps=0),
            "dynamic_growth_steps must be a positive integer",
        ),
    ],
)
def test_what_cannot_be_scaled_is_refused(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()
