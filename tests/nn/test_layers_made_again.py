"""A layer that is made again of the same arguments is like one that is made for the first time."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from paceline import nn
from paceline.nn import initializers, layers, mixed_precision, regularizers
from paceline.nn.activations import tanh
from paceline.nn.prototypes import forget_prototypes
from paceline.strategies import VariableStore

STORED = np.load(Path(__file__).parents[1] / "peers" / "keras_layers.npz")
CASES = [
    case
    for case in json.loads(STORED["said"].item())["cases"]
    if hasattr(layers, case["layer"])
    and not any(isinstance(value, dict) for value in case["arguments"].values())
]


def in_a_model(make):
    with VariableStore().building():
        return make()


def attributes(layer):
    plain = (int, float, str, tuple)
    return {
        name: value if isinstance(value, plain) else type(value)
        for name, value in vars(layer).items()
        if name != "_arguments"
    }


@pytest.mark.parametrize("case", CASES, ids=str)
def test_es15_its_attributes_are_those_of_a_layer_that_is_made(case):
    arguments = {k: tuple(v) if isinstance(v, list) else v for k, v in case["arguments"].items()}

    def make():
        return getattr(layers, case["layer"])(**arguments)

    forget_prototypes()
    made = in_a_model(make)
    again = in_a_model(make)
    assert again is not made
    assert attributes(again) == attributes(made)
    assert again.get_config() == made.get_config()


def test_es15_it_has_a_name_of_its_own_and_the_weights_of_that():
    def model():
        first, second = (layers.Dense(2, "relu") for _ in range(2))
        third = layers.Dense(2, "relu", name="dense")
        outputs = third(second(first(np.ones((1, 2), np.float32))))
        made = (first, second, third)
        names = [layer.name for layer in made], [layer.variables_prefix for layer in made]
        return names, first.weights, outputs.numpy()

    store = VariableStore(seed=1)
    with store.building():
        names, weights, outputs = model()
    with store.building():
        again = model()
    assert names == again[0]
    assert names == (["dense", "dense_1", "dense"], ["dense", "dense_1", "dense_2"])
    assert weights == again[1]
    np.testing.assert_array_equal(outputs, again[2])


def test_es15_what_is_set_on_one_is_not_set_on_the_next():
    first = layers.Dense(2, kernel_regularizer="l2")
    first.trainable, first.units, first.note = False, 3, "mine"
    first(np.ones((1, 2), np.float32))
    again = layers.Dense(2, kernel_regularizer="l2")
    assert (again.trainable, again.units, hasattr(again, "note")) == (True, 2, False)
    assert (len(first.losses), len(again.losses), again.built) == (1, 0, False)


@pytest.mark.parametrize(
    ("good", "bad", "message"),
    [
        (lambda: layers.Dense(1), lambda: layers.Dense(True), "units must be a positive integer"),
        (lambda: layers.Dense(2), lambda: layers.Dense(2.0), "units must be a positive integer"),
        (
            lambda: layers.Conv2D(1, (3, 3)),
            lambda: layers.Conv2D(1, (3.0, 3.0)),
            "kernel_size must be",
        ),
    ],
    ids=["bool", "float", "tuple"],
)
def test_es15_arguments_that_are_equal_and_of_another_type_are_looked_at(good, bad, message):
    for _ in range(2):
        good()
        with pytest.raises(ValueError, match=message):
            bad()


def test_es15_the_global_policy_is_that_of_now():
    assert layers.Dense(2).compute_dtype == np.float32
    mixed_precision.set_global_policy("mixed_float16")
    try:
        assert layers.Dense(2).compute_dtype == np.float16
    finally:
        mixed_precision.set_global_policy("float32")
    assert layers.Dense(2).compute_dtype == np.float32


def test_es15_the_constructors_of_users_run_each_time():
    made = []

    class Counted(layers.Dense):
        def __init__(self, units):
            super().__init__(units)
            made.append(units)

    for _ in range(3):
        Counted(2)
    assert made == [2, 2, 2]


def test_es15_functions_and_values_that_may_change_are_those_given():
    for factor in (1.0, 2.0):
        scaled = layers.Lambda(lambda x, factor=factor: x * factor)
        assert scaled(np.ones(1, np.float32)) == factor
        rows = layers.Dense(1, kernel_initializer=initializers.Constant(factor), use_bias=False)
        assert in_a_model(lambda rows=rows: rows(np.ones((1, 1), np.float32)).numpy()) == factor
        values = np.full((1, 1), factor, np.float32)
        given = layers.Dense(1, use_bias=False, weights=[values])
        assert in_a_model(lambda given=given: given(np.ones((1, 1), np.float32)).numpy()) == factor


def test_es15_equal_values_and_functions_of_modules_serve_again():
    arguments = {"activation": tanh, "kernel_regularizer": regularizers.l2(0.5)}
    first = layers.Dense(2, **arguments)
    again = layers.Dense(2, **arguments | {"kernel_regularizer": regularizers.l2(0.5)})
    assert again.activation is first.activation
    assert again.get_config() | {"name": 0} == first.get_config() | {"name": 0}


def test_es15_a_model_has_layers_of_its_own():
    first, second = (nn.Sequential(name="net") for _ in range(2))
    first.add(layers.Dense(2))
    assert len(first.layers) == 1
    assert second.layers == []


def test_es15_a_weight_of_another_shape_is_refused_and_is_not_the_layers():
    store = VariableStore()
    with store.building():
        layers.Dense(2)(np.ones((1, 3), np.float32))
    with store.building():
        again = layers.Dense(2)
        with pytest.raises(ValueError, match="has a kernel of shape"):
            again(np.ones((1, 4), np.float32))
        assert again.weights == []
