"""Models as JSON and back: graphs, layers in a row, models of one's own."""

import json

import numpy as np
import pytest

from paceline.nn import Input, Model, Sequential, clone_model, layers, model_from_json

X = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)


def in_a_row():
    return Sequential([Input((4,)), layers.Dense(3, "relu"), layers.Dense(2)])


def first_with_shape():
    return Sequential([layers.Dense(3, input_shape=(4,)), in_a_row_of_three()])


def in_a_row_of_three():
    return Sequential([layers.Dense(3, "tanh", name="in")])


def graph():
    inputs = Input((4,), name="x")
    shared = layers.Dense(4, "tanh")
    normal = layers.BatchNormalization()(shared(inputs) + shared(2.0 * inputs))
    joined = np.concatenate([normal[:, 1:3], inputs], axis=-1) * np.array([3.0], np.float32)
    return Model({"x": inputs}, {"out": layers.Dense(2)(joined), "sum": np.sum(joined, axis=1)})


class Written(Model):
    def __init__(self, units):
        super().__init__()
        self.hidden, self.out = layers.Dense(units, "tanh"), layers.Dense(2)

    def call(self, inputs, training=False):
        return self.out(self.hidden(inputs))


def outputs(model, x):
    found = model(x)
    return {key: value.numpy() for key, value in found.items()} if isinstance(found, dict) else {
        "": found.numpy()
    }  # fmt: skip


CASES = {
    "in a row": (in_a_row, X),
    "models in a row": (first_with_shape, X),
    "graph": (graph, {"x": X}),
    "of one's own": (lambda: Written(3), X),
}


@pytest.mark.parametrize(("make", "x"), CASES.values(), ids=CASES)
def test_a_model_comes_back_from_json_and_computes_the_same_with_the_same_weights(make, x):
    model = make()
    again = model_from_json(model.to_json(), custom_objects={"Written": Written})
    expected = outputs(model, x)
    outputs(again, x)
    again.set_weights(model.get_weights())
    for key, values in outputs(again, x).items():
        np.testing.assert_array_equal(values, expected[key])
    assert len(again.weights) == len(model.weights)


def test_a_clone_has_weights_of_its_own():
    model = graph()
    clone = clone_model(model)
    assert not {w.name for w in clone.weights} & {w.name for w in model.weights}
    assert [w.shape for w in clone.weights] == [w.shape for w in model.weights]


def test_a_subclass_without_an_init_of_its_own_is_a_graph_of_its_class():
    class Custom(Model):
        pass

    inputs = Input((4,))
    model = Custom(inputs, layers.Dense(1)(inputs))
    assert type(model_from_json(model.to_json(), {"Custom": Custom})) is Custom


def test_what_a_graph_calls_that_is_no_function_of_numpys_is_refused_by_name():
    written = json.loads(graph().to_json())
    written["config"]["calls"][0] = {"function": {"class_name": "function", "config": "os.remove"}}
    written["config"]["calls"][0] |= {"args": [], "kwargs": {"dict": {}}}
    with pytest.raises(ValueError, match=r"'os\.remove' is not one of paceline's"):
        model_from_json(json.dumps(written))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "a name or an index"),
        ({"name": "dense", "index": 0}, "a name or an index"),
        ({"name": "other"}, "no layer called 'other'; it has dense, dense_1"),
        ({"index": 2}, "no layer number 2"),
    ],
)
def test_a_layer_that_is_not_there_is_refused_with_those_that_are(given, message):
    model = in_a_row()
    assert model.get_layer("dense") is model.get_layer(index=0) is model.layers[0]
    with pytest.raises(ValueError, match=message):
        model.get_layer(**given)
