"""Activation functions by name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.nn import activations, initializers, losses, metrics, optimizers, regularizers

Z = np.array([-2.0, -0.5, 0.0, 0.5, 3.0])
SIGMOID = 1 / (1 + np.exp(-Z))

FORMULAS = {
    "relu": np.maximum(Z, 0),
    "sigmoid": SIGMOID,
    "tanh": np.tanh(Z),
    "softmax": np.exp(Z) / np.exp(Z).sum(),
    "gelu": np.array([z * (1 + math.erf(z / math.sqrt(2))) / 2 for z in Z]),
    "elu": np.where(Z > 0, Z, np.expm1(Z)),
    "silu": Z * SIGMOID,
    "swish": Z * SIGMOID,
    "softplus": np.log1p(np.exp(Z)),
    "leaky_relu": np.where(Z > 0, Z, 0.2 * Z),
    "linear": Z,
}


@pytest.mark.parametrize(("name", "expected"), FORMULAS.items())
def test_a_name_means_its_formula(name, expected):
    np.testing.assert_allclose(activations.get(name)(Z).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("get", "names"),
    [
        (activations.get, ("leaky_relu", "LeakyReLU", "leakyrelu")),
        (regularizers.get, ("l1_l2", "L1L2", "l1l2")),
        (initializers.get, ("he_normal", "HeNormal", "HENORMAL")),
        (losses.get, ("mean_squared_error", "MeanSquaredError", "meansquarederror")),
        (metrics.get, ("binary_accuracy", "BinaryAccuracy", "Binary_Accuracy")),
        (optimizers.get, ("adamw", "AdamW", "ADAMW")),
    ],
)
def test_every_look_up_takes_a_name_in_any_spelling(get, names):
    assert len({type(get(name)) for name in names}) == 1


def test_none_is_linear_and_functions_are_themselves():
    assert activations.get(None) is activations.linear
    assert activations.get(np.tanh) is np.tanh


def test_what_is_no_activation_is_refused():
    with pytest.raises(ValueError, match=r"'rleu'; there are elu, exponential, gelu"):
        activations.get("rleu")
    with pytest.raises(TypeError, match="a name, a function of an array or None, not 3"):
        activations.get(3)
