"""`Model.summary`: Keras's table."""

import numpy as np
import pytest

from paceline.nn import Input, Model, Sequential, layers


def table(model, **options):
    lines = []
    model.summary(print_fn=lines.append, **options)
    return "\n".join(line.rstrip() for line in lines)


def in_a_row():
    return Sequential([Input((5,)), layers.Dense(4, "relu"), layers.Dense(2, trainable=False)])


def test_a_sequential_model_is_printed_as_keras_prints_it():
    assert (
        table(in_a_row())
        == """\
Model: "sequential"
_________________________________________________________________
 Layer (type)                Output Shape              Param #
=================================================================
 dense (Dense)               (None, 4)                 24

 dense_1 (Dense)             (None, 2)                 10

=================================================================
Total params: 34 (136.00 Byte)
Trainable params: 24 (96.00 Byte)
Non-trainable params: 10 (40.00 Byte)
_________________________________________________________________"""
    )


def test_a_graph_has_a_column_for_what_is_connected_to_what_and_counts_a_shared_layer_once():
    inputs = Input((4,), name="x")
    shared = layers.Dense(4)
    outputs = np.concatenate([shared(shared(inputs)), inputs], axis=-1)
    text = table(Model(inputs, outputs))
    assert "Connected to" in text
    assert "x (InputLayer)                 [(None, 4)]          0           []" in text
    rows = [line.split() for line in text.splitlines()]
    assert ["concatenate", "(operation)", "(None,", "8)", "0", "[dense[0][0],", "x[0][0]]"] in rows
    assert "Total params: 20 (80.00 Byte)" in text


class Written(Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(5), in_a_row()

    def call(self, inputs, training=False):
        return self.out(self.hidden(inputs))


def test_a_model_of_ones_own_lists_its_layers_and_those_in_them_if_wanted():
    model = Written()
    with pytest.raises(ValueError, match="made by its first call: call it with a batch"):
        model.summary()
    model(np.ones((2, 5), np.float32))
    assert "sequential (Sequential)     multiple" in table(model)
    assert " |  dense_2 (Dense)          (None, 2)" in table(model, expand_nested=True)


def test_a_length_that_is_open_stays_open():
    inputs = Input((None, 3))
    model = Model(inputs, layers.Dense(2)(inputs))
    model(np.ones((1, 7, 3), np.float32))
    assert "(None, None, 2)" in table(model)


def test_the_table_is_as_wide_as_it_is_wanted():
    assert {
        len(line) for line in table(in_a_row(), line_length=80).splitlines() if "=" in line
    } == {80}


def test_a_range_of_layers_is_listed_with_what_of_it_is_trained():
    model = Sequential([Input((4,)), *(layers.Dense(2, name=name) for name in "abcd")])
    model.layers[2].trainable = False
    text = table(model, show_trainable=True, layer_range=["b", "c"])
    rows = [line.split() for line in text.splitlines() if "(Dense)" in line]
    assert [(row[0], row[-1]) for row in rows] == [("b", "Y"), ("c", "N")]
    assert "Trainable" in text.splitlines()[2]
    with pytest.raises(ValueError, match="layer_range names 'x', which no layer matches"):
        table(model, layer_range=["a", "x"])


def test_columns_end_where_positions_say():
    title = table(in_a_row(), positions=[0.3, 0.6, 1.0], line_length=100).splitlines()[2]
    assert [title.index(word) for word in ("Layer", "Output", "Param")] == [1, 30, 60]
