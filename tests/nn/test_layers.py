"""What all layers have in common, and what each computes."""

from __future__ import annotations

import contextvars
import gc
import threading

import numpy as np
import pytest

from paceline import nn
from paceline.autodiff import IndexedSlices, Tensor, backward
from paceline.nn import Input, Sequential, layers
from paceline.strategies import MirroredStrategy, Variable

IMAGES = np.arange(2 * 4 * 4 * 1, dtype=np.float32).reshape(2, 4, 4, 1)


class Scale(layers.Layer):
    """What a user would write: one weight, found or created in `call`."""

    def call(self, inputs):
        return inputs * self.add_weight("factor", inputs.shape[-1:], initializer="ones")


class Twice(layers.Layer):
    """A layer that is made of layers."""

    def __init__(self):
        super().__init__()
        self.first = Scale()
        self.others = [Scale(trainable=False)]

    def call(self, inputs, training):
        return self.others[0](self.first(inputs, training), training)


def names(variables):
    return [v.name for v in variables]


@pytest.mark.parametrize(
    ("make", "inputs", "weights"),
    [
        (lambda: layers.Dense(3), np.ones((2, 5)), {"dense/kernel": (5, 3), "dense/bias": (3,)}),
        (lambda: layers.Dense(3, use_bias=False), np.ones((2, 5)), {"dense/kernel": (5, 3)}),
        (
            lambda: layers.Conv2D(6, (2, 3)),
            IMAGES,
            {"conv2d/kernel": (2, 3, 1, 6), "conv2d/bias": (6,)},
        ),
        (
            lambda: layers.BatchNormalization(),
            np.ones((2, 5)),
            {
                "batch_normalization/gamma": (5,),
                "batch_normalization/beta": (5,),
                "batch_normalization/moving_mean": (5,),
                "batch_normalization/moving_variance": (5,),
            },
        ),
        (
            lambda: layers.LayerNormalization(),
            np.ones((2, 5)),
            {"layer_normalization/gamma": (5,), "layer_normalization/beta": (5,)},
        ),
        (
            lambda: layers.Embedding(7, 3),
            np.array([[0, 6]]),
            {"embedding/embeddings": (7, 3)},
        ),
        (lambda: layers.MaxPooling2D(), IMAGES, {}),
        (lambda: layers.AveragePooling2D(), IMAGES, {}),
        (lambda: layers.Flatten(), IMAGES, {}),
        (lambda: layers.Dropout(0.5), IMAGES, {}),
        (lambda: layers.Activation("relu"), IMAGES, {}),
    ],
)
def test_mb_04_weights_have_keras_names_and_order(make, inputs, weights):
    layer = make()
    outputs = layer(inputs)
    assert {v.name: v.shape for v in layer.weights} == weights
    assert names(layer.variables) == list(weights)
    assert outputs.dtype == np.float32 or not weights


def test_names_are_counted_by_kind():
    made = [layers.Dense(1), layers.Dense(1), layers.MaxPooling2D(), layers.Dense(1, name="out")]
    assert [layer.name for layer in made] == ["dense", "dense_1", "max_pooling2d", "out"]


def test_a_given_name_is_kept_and_the_weights_of_two_layers_of_one_name_are_apart():
    first, second = (layers.Dense(1, name="a") for _ in range(2))
    first(np.ones((1, 2))), second(np.ones((1, 3)))
    assert (first.name, second.name) == ("a", "a")
    assert names([*first.weights, *second.weights]) == [
        "a/kernel",
        "a/bias",
        "a_1/kernel",
        "a_1/bias",
    ]


def test_an_automatic_name_is_none_that_was_given():
    assert [layers.Dense(1, name="dense").name, layers.Dense(1).name] == ["dense", "dense_1"]


def test_a_layer_from_a_configuration_has_its_name():
    layer = layers.ELU()
    assert type(layer).from_config(layer.get_config()).name == layer.name


def test_a_model_that_is_built_anew_finds_its_weights(store):
    outputs = []
    for _ in range(2):
        with store.building():
            outputs.append(layers.Dense(3)(np.ones((2, 5))).numpy())
    np.testing.assert_array_equal(*outputs)
    assert list(store.variables) == ["dense/kernel", "dense/bias"]


def test_weights_of_sublayers_are_a_layers_own():
    layer = Twice()
    layer(np.ones((2, 3)))
    assert names(layer.weights) == ["scale/factor", "scale_1/factor"]
    assert names(layer.trainable_variables) == ["scale/factor"]
    assert names(layer.non_trainable_weights) == ["scale_1/factor"]


def test_a_frozen_layer_freezes_what_is_in_it():
    layer = Twice()
    layer(np.ones((2, 3)))
    layer.trainable = False
    assert layer.trainable_weights == []
    assert len(layer.weights) == 2


def test_a_layer_that_is_not_trainable_makes_weights_that_are_not():
    layer = layers.Dense(2, trainable=False)
    layer(np.ones((1, 2)))
    assert not any(v.trainable for v in layer.weights)


def test_with_an_input_shape_weights_are_known_before_the_first_call():
    layer = layers.Dense(2, input_shape=(3,))
    assert names(layer.weights) == ["dense/kernel", "dense/bias"]


def test_with_a_length_unknown_weights_come_with_the_first_call():
    layer = layers.Dense(2, input_shape=(None, 3))
    assert layer.weights == []
    layer(np.ones((1, 7, 3)))
    assert len(layer.weights) == 2


@pytest.mark.host  # in an empty context, where no device is
def test_outside_any_model_weights_live_as_long_as_their_layer():
    def build():
        model = Sequential([layers.Dense(4, input_shape=(3,)), layers.Dropout(0.5)])
        before = model(np.ones((2, 3)), training=True).shape
        kept = [v.numpy() for v in model.weights]
        gc.collect()
        return before, kept, model.get_weights()

    shape, before, after = contextvars.Context().run(build)
    assert shape == (2, 4)
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)


def test_get_and_set_weights_round_trip():
    layer = layers.Dense(2, input_shape=(3,))
    values = [np.full((3, 2), 0.5, np.float32), np.array([1, 2], np.float32)]
    layer.set_weights(values)
    for got, expected in zip(layer.get_weights(), values, strict=True):
        np.testing.assert_array_equal(got, expected)
    with pytest.raises(ValueError, match="2 weights and was given 1"):
        layer.set_weights(values[:1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float64, bool])
def test_inputs_are_converted_to_the_layers_dtype(dtype):
    layer = layers.Dense(2)
    assert layer(np.ones((1, 3), dtype)).dtype == np.float32
    assert layers.Dense(2, dtype=np.float64)(np.ones((1, 3), dtype)).dtype == np.float64


def test_layers_without_weights_keep_floats_and_convert_whole_numbers():
    pool = layers.MaxPooling2D()
    assert pool(IMAGES.astype(np.float64)).dtype == np.float64
    assert pool(IMAGES.astype(np.uint8)).dtype == np.float32


def test_gradients_flow_through_a_conversion():
    inputs = Tensor(np.ones((1, 3)), requires_grad=True)
    gradient = backward(layers.Dense(2)(inputs).sum())[inputs]
    assert gradient.dtype == np.float64


def test_regularizers_are_listed_as_losses():
    layer = layers.Dense(
        2,
        kernel_initializer=nn.initializers.Constant(0.5),
        bias_initializer="ones",
        kernel_regularizer=nn.regularizers.l2(0.1),
        bias_regularizer="l1",
        input_shape=(3,),
    )
    assert [loss.item() for loss in layer.losses] == pytest.approx([0.1 * 6 * 0.25, 0.01 * 2])
    kernel = layer.weights[0]
    gradients = backward(layer.losses[0])
    np.testing.assert_allclose(gradients[kernel.tensor()], 2 * 0.1 * 0.5, rtol=1e-6)
    with pytest.raises(ValueError, match="'l3'; there are l1, l2, l1_l2"):
        layers.Dense(1, kernel_regularizer="l3")


def test_dense_works_on_the_last_axis():
    layer = layers.Dense(2, "tanh", kernel_initializer="ones", bias_initializer="ones")
    outputs = layer(np.full((4, 3, 5), 0.1))
    assert outputs.shape == (4, 3, 2)
    np.testing.assert_allclose(outputs.numpy(), np.tanh(1.5), rtol=1e-6)


@pytest.mark.parametrize("activation", ["relu", "sigmoid", "tanh", "elu", np.square, None])
def test_an_activation_inside_the_product_equals_one_after_it(activation):
    x = np.linspace(-1, 1, 12).reshape(3, 4)
    layer = layers.Dense(5, activation, dtype=np.float64)
    outputs = layer(x).numpy()
    kernel, bias = layer.get_weights()
    apart = nn.activations.get(activation)(Tensor(x @ kernel + bias)).numpy()
    np.testing.assert_allclose(outputs, apart, rtol=1e-12)


def test_flatten_keeps_the_batch():
    assert layers.Flatten()(IMAGES).shape == (2, 16)
    assert layers.Flatten()(np.zeros(3)).shape == (3, 1)
    assert layers.Flatten()(np.zeros((0, 4, 4))).shape == (0, 16)


def test_pooling_by_hand():
    np.testing.assert_array_equal(
        layers.MaxPooling2D()(IMAGES)[0].numpy().squeeze(), [[5, 7], [13, 15]]
    )
    np.testing.assert_array_equal(
        layers.AveragePooling2D()(IMAGES)[0].numpy().squeeze(), [[2.5, 4.5], [10.5, 12.5]]
    )
    assert layers.MaxPooling2D(3, strides=1, padding="SAME")(IMAGES).shape == (2, 4, 4, 1)


def test_embedding_reads_rows_and_its_gradient_is_sparse():
    layer = layers.Embedding(5, 2)
    outputs = layer(np.array([[1, 3], [1, 0]]))
    table = layer.weights[0]
    assert np.abs(table.numpy()).max() <= 0.05
    np.testing.assert_array_equal(outputs.numpy(), table.numpy()[[[1, 3], [1, 0]]])
    gradient = backward(outputs.sum())[table.tensor()]
    assert isinstance(gradient, IndexedSlices)
    np.testing.assert_array_equal(gradient.to_dense()[:, 0], [1, 2, 0, 1, 0])


def test_embedding_takes_whole_numbers_in_floats_and_refuses_others():
    layer = layers.Embedding(5, 2)
    np.testing.assert_array_equal(layer([1.0, 2.0]).numpy(), layer([1, 2]).numpy())
    with pytest.raises(ValueError, match="'embedding' takes whole numbers"):
        layer([0.5])


@pytest.mark.host  # on a GPU such a row is not a number: see tests/devices/
@pytest.mark.parametrize("index", [-1, 5])
def test_embedding_refuses_the_number_of_no_row(index):
    with pytest.raises(ValueError, match=rf"must be in \[0, 5\).* is {index}$"):
        layers.Embedding(5, 2)([0, index])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: layers.Dense(0), ValueError, "units must be a positive integer, it is 0"),
        (lambda: layers.Dense(2.5), ValueError, r"units must be a positive integer, it is 2\.5"),
        (lambda: layers.Dense(True), ValueError, "units must be a positive integer, it is True"),
        (lambda: layers.Conv2D(0, 3), ValueError, "filters must be a positive integer"),
        (lambda: layers.Embedding(3.7, 8), ValueError, r"input_dim must be .*, it is 3\.7"),
        (lambda: layers.Embedding(3, None), ValueError, "output_dim must be .*, it is None"),
        (lambda: layers.Dropout(0.5, (20, -1)), ValueError, "noise_shape must be .*, it is -1"),
        (lambda: layers.Dropout(0.5, "Invalid"), ValueError, "noise_shape must be None or a tuple"),
        (lambda: layers.Conv2D(2, (3, 0)), ValueError, r"kernel_size must be.*\(3, 0\)"),
        (lambda: layers.Conv2D(2, (3, 3, 3)), ValueError, "kernel_size must be"),
        (lambda: layers.Conv2D(2, 3, padding="full"), ValueError, "'valid' or 'same'"),
        (lambda: layers.Conv2D(3, 3, groups=2), ValueError, "a multiple of groups"),
        (lambda: layers.Flatten("channels"), ValueError, "channels_last"),
        (lambda: layers.Conv1D(2, 3, padding="causal", strides=(1, 2)), ValueError, "strides must"),
        (lambda: layers.ZeroPadding2D((1, -1)), ValueError, "padding must be"),
        (lambda: layers.Reshape((-1, -1)), ValueError, "one may be -1"),
        (lambda: layers.Permute((0, 1)), ValueError, "dims must hold each of"),
        (lambda: layers.Add()(np.ones(3)), ValueError, "'add' takes a list of tensors"),
        (lambda: layers.Subtract()([np.ones(3)]), ValueError, "a list of 2 tensors, .* given 1"),
        (lambda: layers.Dense(1, input_dim=2, input_shape=(2,)), ValueError, "more than once"),
        (lambda: layers.Dense(1, activity_regularizer="l2"), ValueError, "activity_regularizer"),
        (lambda: layers.Embedding(0, 2), ValueError, "input_dim must be .*, it is 0"),
        (lambda: layers.Dropout(1.0), ValueError, "rate must be at least 0 and below 1"),
        (lambda: layers.BatchNormalization(momentum=2), ValueError, "momentum must be between"),
        (lambda: layers.Dense(2, kernel_constraint="no"), ValueError, "no constraint is called"),
        (lambda: layers.Activation("no"), ValueError, "no activation is called 'no'"),
    ],
)
def test_arguments_that_are_not_supported_are_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_inputs_of_another_rank_are_refused_by_name():
    message = r"'conv2d' takes inputs of rank 4 \(batch, height, width, channels\).*\(2, 4, 4\)"
    with pytest.raises(ValueError, match=message):
        layers.Conv2D(2, 3)(np.zeros((2, 4, 4)))
    with pytest.raises(ValueError, match="'max_pooling2d' takes inputs of rank 4"):
        layers.MaxPooling2D()(np.zeros((2, 4)))


def test_inputs_that_the_weights_do_not_fit_are_refused_by_name():
    layer = layers.Dense(2)
    layer(np.ones((1, 3)))
    message = r"'dense' has a kernel of shape \(3, 2\).*one of shape \(4, 2\)"
    with pytest.raises(ValueError, match=message):
        layer(np.ones((1, 4)))


def test_a_model_that_is_built_anew_with_other_shapes_is_refused(store):
    with store.building():
        layers.Dense(2)(np.ones((1, 3)))
    with store.building(), pytest.raises(ValueError, match="'dense' has a kernel of shape"):
        layers.Dense(5)(np.ones((1, 3)))


def test_normalization_over_an_axis_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match=r"has axis=4, its inputs have 4 axes"):
        layers.BatchNormalization(axis=4)(IMAGES)


def test_replicas_that_call_a_layer_first_at_the_same_time_share_its_weights():
    strategy = MirroredStrategy(["CPU:0", "CPU:1"])
    with strategy.scope():
        layer = layers.Dense(3)
    both_here = threading.Barrier(2)

    def step():
        both_here.wait()
        return layer(np.ones((2, 5))).numpy()

    outputs = strategy.run(step)
    np.testing.assert_array_equal(outputs[0], outputs[1])
    assert names(layer.weights) == ["dense/kernel", "dense/bias"]
    assert all(isinstance(v, Variable) and v.num_copies == 2 for v in layer.weights)


def test_what_a_layer_holds_is_found_while_another_replica_calls_it_for_the_first_time():
    class Looked:
        """Something that the layer holds; whoever looks at it meets the first call of another."""

        @property
        def __class__(self):
            layer(np.ones((1, 2), np.float32))
            layer.held[len(layer.held)] = 1
            return object

    layer = layers.Dense(1)
    layer.looked, layer.held = Looked(), {"looked": Looked(), "inner": layers.Dense(1)}
    assert layer.sublayers == [layer.held["inner"]]


@pytest.mark.parametrize("symbolic", [False, True], ids=["arrays", "symbolic"])
def test_inputs_may_be_given_by_keyword(symbolic):
    x = Input((3, 4)) if symbolic else np.ones((2, 3, 4), np.float32)
    mask = None if symbolic else np.ones((2, 3), bool)
    batch = None if symbolic else 2
    attention = layers.MultiHeadAttention(2, 2)
    assert attention(query=x, value=x, key=x).shape == (batch, 3, 4)
    assert layers.Dense(1)(inputs=x).shape == (batch, 3, 1)
    assert layers.Dropout(0.5)(inputs=x, training=True).shape == (batch, 3, 4)
    assert layers.LSTM(2)(inputs=x, mask=mask).shape == (batch, 2)


def test_a_layer_of_ones_own_takes_its_inputs_by_the_name_that_it_gave_them():
    class Sum(layers.Layer):
        def call(self, first, second):
            return first + second

    assert Sum()(first=np.ones(2), second=np.ones(2)).tolist() == [2, 2]
    with pytest.raises(TypeError, match="'sum_1' was called without first"):
        Sum()(second=np.ones(2))


@pytest.mark.parametrize("make", [layers.Attention, layers.AdditiveAttention])
def test_attention_gives_the_scores_that_dropout_has_left(make):
    query, value = np.random.default_rng(0).normal(size=(2, 1, 5, 2)).astype(np.float32)
    outputs, scores = make(dropout=0.5, seed=0)(
        [query, value], return_attention_scores=True, training=True
    )
    np.testing.assert_allclose(outputs.numpy(), np.matmul(scores.numpy(), value), rtol=1e-6)
    assert np.any(scores.numpy() == 0)
