"""Outputs and gradients of layers against Keras, whose answers are stored, in float64."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import Input, Model, layers

STORED = np.load(Path(__file__).parents[1] / "peers" / "keras_layers.npz")
SAID = json.loads(STORED["said"].item())
CASES = SAID["cases"]
SIZES = [math.prod(shape) for _, *shape in SAID["index"].values()]
PARTS = np.split(STORED["values"], np.cumsum(SIZES)[:-1])
KERAS = {
    name: part.reshape(shape).astype(dtype)
    for (name, (dtype, *shape)), part in zip(SAID["index"].items(), PARTS, strict=True)
}
ROUNDED = {"Activation", "MultiHeadAttention", "ReLU", "UpSampling2D"}
"""What Keras computes in part in float32, whatever the layer's dtype."""


def make(given, dtype=np.float64):
    """A layer from its class and arguments; an argument that is such a dict is a layer too."""
    arguments = {
        key: make(value, dtype) if isinstance(value, dict) else value
        for key, value in given["arguments"].items()
    }
    return getattr(layers, given["layer"])(**arguments, dtype=dtype)


def stored(case, key):
    """`case/key0`, `case/key1`, …"""
    names = (f"{case}/{key}{i}" for i in range(100))
    return [KERAS[name] for name in names if name in KERAS]


def described(case):
    given = CASES[case]
    arguments = [f"{key}={value}" for key, value in given["arguments"].items()]
    return f"{given['layer']}({', '.join(arguments)}){list(given['call'])}"


def supported(case):
    return hasattr(layers, CASES[case]["layer"])


@pytest.mark.parametrize("case", [*filter(supported, range(len(CASES)))], ids=described)
def test_mb_04_layers_give_kerass_outputs_and_gradients(case):
    given = CASES[case]
    inputs = [Tensor(x, requires_grad=True) for x in stored(case, "x")]
    dtype = inputs[0].dtype
    is_exact = dtype == np.float64 and given["layer"] not in ROUNDED
    close = {"rtol": 1e-9, "atol": 1e-11} if is_exact else {"rtol": 1e-5, "atol": 1e-6}
    layer, call = make(given, dtype), dict(given["call"])
    takes, *more = inputs
    if "initial_state" in call:
        call["initial_state"], more = inputs[1:], []
    elif more and given["layer"] != "MultiHeadAttention":
        takes, more = inputs, []
    if "mask" in call:
        call["mask"] = np.array(call["mask"], bool)
    if stored(case, "w"):
        layer(takes, *more, **call)
        layer.set_weights(stored(case, "w"))
    outputs = layer(takes, *more, **call)
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    total = 0
    for output, expected in zip(outputs, stored(case, "y"), strict=True):
        np.testing.assert_allclose(output.numpy(), expected, **close)
        total = total + np.sum(output * np.cos(np.arange(float(output.size))).reshape(output.shape))
    found = backward(total)
    for tensor, expected in zip(inputs, stored(case, "gx"), strict=True):
        np.testing.assert_allclose(found.get(tensor, 0 * expected), expected, **close)
    for weight, expected in zip(layer.trainable_weights, stored(case, "gw"), strict=True):
        gradient = found.get(weight.tensor(), 0 * expected)
        np.testing.assert_allclose(gradient, expected, **close, err_msg=weight.name)


@pytest.mark.filterwarnings("ignore:.*(encountered|empty slice):RuntimeWarning")
@pytest.mark.parametrize("case", [*filter(supported, range(len(CASES)))], ids=described)
def test_an_empty_batch_has_outputs_of_its_length_and_no_gradients(case):
    """What a replica has in an uneven end, in a loop of one's own."""
    given = CASES[case]
    layer, call = make(given, np.float64), dict(given["call"])
    call |= {key: np.array(mask)[:0] for key, mask in call.items() if isinstance(mask, list)}
    inputs = [Tensor(x[:0], requires_grad=True) for x in stored(case, "x")]
    takes, *more = inputs
    if "initial_state" in call:
        call["initial_state"], more = more, []
    elif more and given["layer"] != "MultiHeadAttention":
        takes, more = inputs, []
    outputs = layer(takes, *more, **call)
    outputs = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    for output, expected in zip(outputs, stored(case, "y"), strict=True):
        assert output.shape == (0, *expected.shape[1:])
    found = backward(sum(np.sum(output) for output in outputs))
    for weight in layer.trainable_weights:
        gradient = found.get(weight.tensor(), np.zeros(()))
        assert not np.any(gradient.to_dense() if hasattr(gradient, "to_dense") else gradient)


@pytest.mark.parametrize("case", [*filter(supported, range(len(CASES)))], ids=described)
def test_mb_05_layers_are_parts_of_graphs_and_made_again_from_their_configuration(case):
    given = CASES[case]
    if "initial_state" in given["call"]:
        pytest.skip("test_recurrent.py has states in graphs")
    arrays = stored(case, "x")
    dtype = arrays[0].dtype
    symbols = [Input(x.shape[1:], dtype=dtype) for x in arrays]
    masks = {k: np.array(v, bool) for k, v in given["call"].items() if isinstance(v, list)}
    symbolic_masks = {key: Input(mask.shape[1:], dtype=bool) for key, mask in masks.items()}
    call = given["call"] | symbolic_masks
    layer = make(given, dtype)
    again = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    found = []
    for one in (layer, again):
        takes = symbols if given["layer"] == "MultiHeadAttention" else [symbols]
        takes = symbols if len(symbols) == 1 else takes
        model = Model([*symbols, *symbolic_masks.values()], one(*takes, **call))
        if model.weights:
            model.set_weights(stored(case, "w"))
        outputs = model([*arrays, *masks.values()])
        found.append(outputs if isinstance(outputs, list) else [outputs])
    for first, second, expected in zip(*found, stored(case, "y"), strict=True):
        assert first.shape == expected.shape
        np.testing.assert_array_equal(first.numpy(), second.numpy())
