"""Activation functions by name."""

from __future__ import annotations

import math

import numpy as np
import pytest

from paceline.autodiff import Tensor, backward
from paceline.nn import (
    activations,
    initializers,
    layers,
    losses,
    metrics,
    optimizers,
    regularizers,
)

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


def test_relu_gives_zero_at_its_threshold():
    x = np.array([0.5, 0.4, 0.6, 9.0], np.float32)
    y = activations.relu(x, threshold=0.5, max_value=6.0)
    np.testing.assert_array_equal(y.numpy(), np.array([0, 0, 0.6, 6], np.float32))
    np.testing.assert_array_equal(layers.ReLU(threshold=0.5)(x[:3]).numpy(), y.numpy()[:3])


@pytest.mark.parametrize("name", sorted({*activations.__all__} - {"get"}))
def test_bfloat16_stays_what_it_is(name):
    dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = Tensor(np.ones(3, dtype), requires_grad=True)
    y = activations.get(name)(x)
    assert (y.dtype, backward(y.sum())[x].dtype) == (dtype, dtype)


@pytest.mark.parametrize(
    ("function", "values"),
    [(activations.softmax, [1.0, 0.0]), (activations.log_softmax, [0.0, -np.inf])],
)
def test_logits_of_half_precision_may_be_as_large_as_they_can(function, values):
    x = np.array([6e4, -6e4], np.float16)
    np.testing.assert_array_equal(function(x).numpy(), np.array(values, np.float16))
