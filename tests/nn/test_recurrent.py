"""Recurrent layers beyond what Keras's stored answers say."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.autodiff import (
    RECURRENT_ACTIVATIONS,
    GRURecurrence,
    LSTMRecurrence,
    SimpleRecurrence,
    Tensor,
    backward,
    recurrent,
)
from paceline.nn import Input, Model, Sequential, activations, layers
from tests.devices.strict_cupy import StrictArray, to_device

RNG = np.random.default_rng(3)
X = RNG.normal(size=(3, 5, 4))
COUNTS = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 1, 1], [0, 0, 0, 0, 0]], bool)
KINDS = [
    SimpleRecurrence(),
    LSTMRecurrence(),
    GRURecurrence(),
    GRURecurrence(reset_after=False),
]
LAYERS = [layers.SimpleRNN, layers.LSTM, layers.GRU]
F64 = {"dtype": np.float64}


def difference(function, arrays, index, epsilon=1e-6):
    """The gradient of a sum by one of the arrays, from differences."""
    gradient = np.zeros_like(arrays[index])
    for place in np.ndindex(gradient.shape):
        ends = []
        for sign in (1, -1):
            moved = [a.copy() for a in arrays]
            moved[index][place] += sign * epsilon
            ends.append(function(*moved))
        gradient[place] = (ends[0] - ends[1]) / (2 * epsilon)
    return gradient


@pytest.mark.parametrize("kind", KINDS, ids=repr)
@pytest.mark.parametrize("with_mask", [False, True])
@pytest.mark.parametrize("with_dropout", [False, True])
def test_gradients_of_a_recurrence_are_those_of_differences(kind, with_mask, with_dropout):
    units, steps = 2, 4
    width = kind.num_gates * units
    arrays = [
        RNG.normal(size=shape)
        for shape in ((steps, 3, width), (units, width), (kind.num_states, 3, units), (width,))
    ]
    has_bias = isinstance(kind, GRURecurrence) and kind.reset_after
    mask = COUNTS.T[:steps] if with_mask else None
    kept = RNG.integers(0, 2, size=(3, units)) * 2.0 if with_dropout else None

    def states(z, w, initial, b):
        return recurrent(kind, z, w, b if has_bias else None, initial, mask, kept)

    weights = np.cos(np.arange(steps * arrays[2].size)).reshape(steps, *arrays[2].shape)
    leaves = [Tensor(a, requires_grad=True) for a in arrays]
    found = backward(np.sum(states(*leaves) * weights))
    for index, leaf in enumerate(leaves[: 3 + has_bias]):
        expected = difference(lambda *a: (states(*a).data * weights).sum(), arrays, index)
        np.testing.assert_allclose(found[leaf], expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("kind", KINDS, ids=repr)
def test_a_recurrence_stays_on_its_device(kind):
    shapes = (5, 3, kind.num_gates * 2), (2, kind.num_gates * 2), (kind.num_states, 3, 2)
    arrays = [RNG.normal(size=shape) for shape in shapes]
    found = []
    for array in (np.asarray, to_device):
        z, w, initial = leaves = [Tensor(array(a), requires_grad=True) for a in arrays]
        states = recurrent(kind, z, w, None, initial, array(COUNTS.T))
        gradients = backward(states, array(np.ones(states.shape)))
        found.append([states.data, *(gradients[leaf] for leaf in leaves)])
    for host, device in zip(*found, strict=True):
        assert type(device) is StrictArray
        np.testing.assert_allclose(device.get(), host, rtol=1e-12)


@pytest.mark.parametrize("name", RECURRENT_ACTIVATIONS)
def test_activations_in_place_are_those_of_nn(name):
    compute, derive = RECURRENT_ACTIVATIONS[name]
    x = Tensor(np.linspace(-3.1, 3, 13), requires_grad=True)
    y = activations.get(name)(x)
    own = x.data.copy()
    compute(own)
    np.testing.assert_allclose(own, y.data, rtol=1e-12, atol=1e-15)
    g = np.asarray(np.linspace(1, 2, 13), like=own)
    expected = backward(y, g.copy())[x]
    derive(g, own)
    np.testing.assert_allclose(g, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("layer", LAYERS)
def test_what_a_mask_leaves_out_changes_nothing(layer):
    made = layer(3, return_state=True, **F64)
    outputs = made(X, mask=COUNTS)
    for state in outputs:
        np.testing.assert_array_equal(state.numpy()[2], 0)
    first, *states = (part.numpy() for part in outputs)
    short = made(X[:1, :3])
    np.testing.assert_allclose(first[0], short[0].numpy()[0])
    for state, expected in zip(states, short[1:], strict=True):
        np.testing.assert_allclose(state[0], expected.numpy()[0])


@pytest.mark.parametrize("layer", LAYERS)
def test_a_sequence_in_two_parts_is_the_whole(layer):
    made = layer(3, return_sequences=True, return_state=True, **F64)
    whole, *last = made(X)
    begin, *states = made(X[:, :2])
    rest, *ends = made(X[:, 2:], initial_state=states)
    parts = np.concatenate([begin.numpy(), rest.numpy()], axis=1)
    np.testing.assert_allclose(whole.numpy(), parts, rtol=1e-12)
    for one, other in zip(last, ends, strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12)
    np.testing.assert_allclose(made([X[:, 2:], *states])[0].numpy(), rest.numpy())


@pytest.mark.parametrize(
    ("layer", "cell"),
    [
        (layers.SimpleRNN, layers.SimpleRNNCell),
        (layers.LSTM, layers.LSTMCell),
        (layers.GRU, layers.GRUCell),
    ],
)
@pytest.mark.parametrize("mask", [None, COUNTS])
def test_a_cell_in_a_loop_gives_what_the_layer_gives(layer, cell, mask):
    options = {"return_sequences": True, "return_state": True, "go_backwards": True, **F64}
    fast, slow = layer(3, **options), layers.RNN(cell(3, **F64), **options)
    fast(X)
    slow(X)
    slow.set_weights(fast.get_weights())
    for one, other in zip(fast(X, mask=mask), slow(X, mask=mask), strict=True):
        np.testing.assert_allclose(one.numpy(), other.numpy(), rtol=1e-12, atol=1e-15)


def test_stacked_cells_take_each_others_outputs():
    stacked = layers.RNN([layers.GRUCell(3, **F64), layers.LSTMCell(2, **F64)], **F64)
    row = Sequential([layers.GRU(3, return_sequences=True, **F64), layers.LSTM(2, **F64)])
    stacked(X)
    row(X)
    row.set_weights(stacked.get_weights())
    np.testing.assert_allclose(stacked(X).numpy(), row(X).numpy(), rtol=1e-12)


class Decay(layers.Layer):
    """A cell of a user's own."""

    state_size = 4

    def call(self, inputs, states):
        new = 0.5 * states[0] + inputs
        return 2.0 * new, [new]


def test_a_cell_of_ones_own():
    expected = np.zeros((3, 4))
    for step in range(5):
        expected = 0.5 * expected + X[:, step]
    np.testing.assert_allclose(layers.RNN(Decay(), **F64)(X).numpy(), 2 * expected)


def test_states_of_a_functional_model_can_be_taken_apart():
    inputs = Input((5, 4))
    outputs, h, c = layers.LSTM(3, return_state=True)(inputs)
    decoded = layers.LSTM(3, return_sequences=True)(inputs, initial_state=[h, c])
    model = Model(inputs, [decoded, outputs + h])
    first, second = model(X.astype(np.float32))
    assert first.shape == (3, 5, 3)
    assert second.shape == (3, 3)
    assert len(model.weights) == 6


def test_both_directions_with_states():
    layer = layers.Bidirectional(layers.LSTM(2, return_state=True, **F64), merge_mode=None, **F64)
    found = layer(X)
    assert [part.shape for part in found] == [(3, 2)] * 6
    assert layer.forward_layer.name == "lstm"
    assert layer.backward_layer.name == "backward_lstm"
    np.testing.assert_array_equal(found[0].numpy(), found[2].numpy())
    np.testing.assert_array_equal(found[1].numpy(), found[4].numpy())


@pytest.mark.parametrize("layer", LAYERS)
def test_dropout_is_the_same_at_all_steps_and_off_outside_training(layer):
    made = layer(3, dropout=0.5, recurrent_dropout=0.5, **F64)
    plain = made(X).numpy()
    np.testing.assert_array_equal(made(X).numpy(), plain)
    assert (made(X, training=True).numpy() != plain).any()
    still = layer(100, dropout=0.5, return_sequences=True, recurrent_initializer="zeros", **F64)
    outputs = still(np.ones((1, 4, 1)), training=True).numpy()
    if layer is layers.SimpleRNN:
        np.testing.assert_array_equal(outputs, np.repeat(outputs[:, :1], 4, axis=1))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: layers.LSTM(3, stateful=True), "hand them to the next call as initial_state"),
        (lambda: layers.LSTM(3, activation="gelu"), "take the activations relu, .* not 'gelu'"),
        (lambda: layers.GRU(0), "units must be a positive integer"),
        (lambda: layers.GRU(2)(np.ones((2, 3))), "takes inputs of rank 3"),
        (
            lambda: layers.LSTM(2)(X, initial_state=[np.ones((3, 2))]),
            r"takes 2 initial state\(s\) of shape \(3, 2\), it was given \[\(3, 2\)\]",
        ),
        (lambda: layers.Bidirectional(layers.GRU(2, go_backwards=True)), "goes forwards"),
    ],
)
def test_what_recurrent_layers_refuse(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_wrappers_take_layers():
    with pytest.raises(TypeError, match="wraps a layer"):
        layers.TimeDistributed(np.tanh)
    with pytest.raises(TypeError, match="state_size"):
        layers.RNN(layers.Dense(2))


@pytest.mark.parametrize(
    "layer",
    [layers.LSTM, layers.GRU, layers.SimpleRNN, lambda n: layers.RNN(layers.LSTMCell(n))],
    ids=["LSTM", "GRU", "SimpleRNN", "RNN"],
)
def test_sequences_without_a_step_are_refused(layer):
    with pytest.raises(ValueError, match="takes sequences of at least one step"):
        layer(2)(np.zeros((3, 0, 2), np.float32))
