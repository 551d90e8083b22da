"""LinearRegressor: which optimizers it takes (ES-11)."""

import numpy as np
import pytest

import paceline as pl
from paceline.estimator import LinearRegressor
from paceline.estimator.feature_column import numeric_column
from paceline.nn import optimizers


def input_fn():
    return pl.Dataset.from_tensors(({"x": [1.0]}, [1.0])).repeat(1000).batch(10)


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        ("SGD", 0.2),
        (lambda: optimizers.SGD(0.1), 0.1),
        (optimizers.SGD(0.1), 0.1),
        (optimizers.SGD, 0.01),
    ],
    ids=["a name", "a function", "an optimizer", "a class"],
)
def test_an_optimizer_is_named_made_or_given(tmp_path, optimizer, rate):
    """Each run of several steps goes on where the last one stopped, whoever holds the optimizer."""
    regressor = LinearRegressor([numeric_column("x")], tmp_path, optimizer=optimizer)
    regressor.train(input_fn, steps=2)
    regressor.train(input_fn, steps=1)
    weight = bias = 0.0
    for _ in range(3):  # SGD of (w + b - 1)²
        gradient = 2 * (weight + bias - 1)
        weight, bias = weight - rate * gradient, bias - rate * gradient
    found = regressor.get_variable_value("linear/linear_model/x/weights")
    np.testing.assert_allclose(found, [[weight]], rtol=1e-5)
    assert regressor.evaluate(input_fn, steps=1)["global_step"] == 3


def test_something_else_is_refused():
    with pytest.raises(TypeError, match="or a function that makes one; it is 3"):
        LinearRegressor([numeric_column("x")], optimizer=3)
