"""Objects as plain values and back: everything of `nn`, and what users add to it."""

import json

import numpy as np
import pytest

import paceline.nn
from paceline.nn import initializers, layers, losses, metrics, optimizers, regularizers
from paceline.nn.optimizers import schedules
from paceline.nn.serialization import Serializable, custom_object_scope, deserialize, serialize

OBJECTS = {
    "layer": lambda: layers.Dense(3, "relu", kernel_regularizer="l2", name="d", trainable=False),
    "layer with objects": lambda: layers.Dense(
        3, kernel_initializer=initializers.HeNormal(seed=1), bias_regularizer=regularizers.l1(0.1)
    ),
    "layer of tuples": lambda: layers.Conv2D(4, (3, 2), strides=[1, 2], dtype=np.float64),
    "NumPy's function": lambda: layers.Activation(np.tanh),
    "own function": lambda: layers.Activation(paceline.nn.gelu),
    "array": lambda: initializers.Constant(np.eye(2, dtype=np.float32)),
    "optimizer": lambda: optimizers.SGD(0.1, momentum=0.9, name="slow", clipnorm=1.0),
    "schedule": lambda: optimizers.Adam(
        schedules.LinearWarmup(schedules.CosineDecay(0.1, 10), warmup_steps=3)
    ),
    "loss": lambda: losses.Huber(delta=2.0, reduction=losses.Reduction.SUM),
    "metric": lambda: metrics.AUC(num_thresholds=10, curve="PR"),
    "metric of a function": lambda: metrics.MeanMetricWrapper(losses.mean_squared_error, "error"),
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_an_object_comes_back_from_json_with_the_same_arguments(make):
    made = make()
    written = json.dumps(serialize(made))
    again = deserialize(json.loads(written))
    assert type(again) is type(made)
    # The names of layers count up, as both are made in one model.
    ours, theirs = ({**one.get_config(), "name": None} for one in (made, again))
    assert ours == theirs
    assert type(made).from_config(made.get_config()).get_config().keys() == made.get_config().keys()


def test_all_arguments_are_in_the_configuration_by_name_with_their_defaults():
    config = layers.Dropout(0.5, name="drop").get_config()
    assert config == {
        "rate": 0.5, "noise_shape": None, "seed": None, "name": "drop", "trainable": True,
        "dtype": "float32",
    }  # fmt: skip


def test_a_layer_is_written_down_as_it_is_now():
    layers.Dense(1)
    layer = layers.Dense(1)
    layer.trainable = False
    assert (layer.get_config()["name"], layer.get_config()["trainable"]) == ("dense_1", False)


class Scale(layers.Layer):
    """A layer as users write it, without a word about configurations."""

    def __init__(self, factor, inner=None):
        super().__init__()
        self.factor, self.inner = factor, inner

    def call(self, inputs):
        return inputs * self.factor


class InKerasManner(layers.Layer):
    """One that writes its configuration as Keras asks for it."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def call(self, inputs):
        return inputs

    def get_config(self):
        config = super().get_config()
        config.update({"units": self.units})
        return config


def double(x):
    return 2 * x


@pytest.mark.parametrize(
    ("made", "custom_objects"),
    [
        (lambda: Scale(2.0, inner=layers.Dense(1, name="in")), {"Scale": Scale}),
        (lambda: InKerasManner(3, name="k"), {"InKerasManner": InKerasManner}),
        (lambda: layers.Activation(double), {"double": double}),
    ],
    ids=["a class of nothing but arguments", "a class with get_config", "a function"],
)
def test_what_users_write_is_found_by_the_names_that_the_reader_hands_in(made, custom_objects):
    made = made()
    written = json.loads(json.dumps(serialize(made)))
    with pytest.raises(ValueError, match=f"custom_objects=.*{next(iter(custom_objects))}"):
        deserialize(written)
    again = deserialize(written, custom_objects)
    assert type(again) is type(made)
    with custom_object_scope(custom_objects):
        assert type(deserialize(written)) is type(made)


def test_arguments_of_user_classes_come_back_as_objects():
    again = deserialize(serialize(Scale(2.0, inner=layers.Dense(1))), {"Scale": Scale})
    assert (again.factor, again.inner.units) == (2.0, 1)


class TakesAnything(Serializable):
    def __init__(self, *parts):
        self.parts = parts


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lambda: layers.Activation(lambda x: x), "activation of Activation .*has no name"),
        (lambda: TakesAnything(1, 2), r"arguments without names \(\*parts\)"),
        (lambda: Scale(object()), "factor of Scale .*cannot be written down"),
        (lambda: {1: 2}, "keys are not all texts"),
    ],
    ids=["a lambda", "positional arguments", "an object", "numbers as keys"],
)
def test_what_cannot_be_written_down_is_refused_with_its_place(value, message):
    with pytest.raises(TypeError, match=message):
        serialize(value())


@pytest.mark.parametrize(
    "written",
    [
        {"class_name": "function", "config": "os.system"},
        {"class_name": "function", "config": "paceline.checkpoint.write_text"},
        {"class_name": "function", "config": "paceline.nn.losses.np"},
        {"class_name": "function", "config": "paceline.nn.losses._over_outputs"},
        {"class_name": "function", "config": "numpy.load"},
        {"module": "os", "class_name": "Popen", "config": {}},
        {"module": "paceline.nn.layers", "class_name": "np", "config": {}},
    ],
    ids=lambda written: written["config"] or written["class_name"],
)
def test_a_file_can_name_nothing_but_classes_of_nn_and_functions_that_compute(written):
    with pytest.raises(ValueError, match="is not one of paceline's"):
        deserialize(written)
