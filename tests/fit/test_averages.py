"""`fit` ends with the moving averages of the weights, where the optimizer keeps them."""

import numpy as np
import pytest

from paceline.nn import Sequential, layers, optimizers
from paceline.strategies import MirroredStrategy


def test_fit_lets_variables_become_their_averages_once():
    calls = []

    class Counted(optimizers.SGD):
        def finalize_variable_values(self, var_list):
            calls.append([variable.name for variable in var_list])
            super().finalize_variable_values(var_list)

    model = Sequential([layers.Dense(1, use_bias=False, name="one")])
    model.compile(Counted(use_ema=True), "mse")
    model.fit(np.ones((4, 1)), np.ones((4, 1)), epochs=2, verbose=0)
    assert calls == [[model.weights[0].name]]


@pytest.mark.parametrize("num_replicas", [1, 2])
def test_fit_ends_with_the_averages_that_its_optimizer_kept(num_replicas):
    strategy = MirroredStrategy([f"CPU:{i}" for i in range(num_replicas)])
    x = np.ones((4, 1), np.float32)
    with strategy.scope():
        model = Sequential([layers.Dense(1, use_bias=False, kernel_initializer="zeros")])
        optimizer = optimizers.SGD(0.25, use_ema=True, ema_momentum=0.5)
    model.compile(optimizer=optimizer, loss="mse")
    model.fit(x, 2 * x, batch_size=4, epochs=2, verbose=0)
    # w is 1 and then 1.5; its average is 1 and then 1.25.
    (weight,) = model.weights
    assert [copy.item() for copy in weight.local_values()] == [1.25] * num_replicas
