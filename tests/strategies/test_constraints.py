"""A variable's constraint holds after each update, wherever the variable lives."""

from __future__ import annotations

import numpy as np
import pytest

from paceline.nn import optimizers
from paceline.strategies import Variable


def positive(value):
    return np.maximum(value, 0)


def test_mb_04_each_update_ends_with_the_constraint_or_it_is_refused(make_strategy):
    strategy = make_strategy()
    with strategy.scope():
        if strategy.extended.remote_storage is not None:
            with pytest.raises(ValueError, match="has a constraint, which parameter servers"):
                Variable(np.ones(2, np.float32), name="v", constraint=positive)
            return
        v = Variable(np.ones(2, np.float32), name="v", constraint=positive)
        optimizer = optimizers.SGD(1.0)

    def step():
        optimizer.minimize(np.sum(v * np.array([2.0, -1.0], np.float32)))()

    strategy.run(step)
    np.testing.assert_allclose(v.numpy(), [0, 2])
