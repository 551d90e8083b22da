"""What a variable begins with on its servers, and what of it travels there."""

import numpy as np
import pytest

from paceline.strategies import FixedShardsPartitioner, VariableStore, get_variable

SHAPE = (10_000, 4)


def created(strategy, value):
    """The value that a variable has on the servers, and the bytes that brought it there."""
    with VariableStore(seed=0).building(), strategy.scope():
        variable = get_variable("x", value.shape, value.dtype, initializer=lambda *_: value)
        sent_bytes = 1e6 * strategy.extended.figures["megabytes"]
        return variable.numpy(), sent_bytes


@pytest.mark.parametrize("number", [0.0, 1.0, 1e-6, -0.1, 1 / 3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_of_one_number_everywhere_only_that_travels(server_job, number, dtype):
    strategy = server_job(2, 1, partitioner=FixedShardsPartitioner(2)).strategy()
    value = np.full(SHAPE, number, dtype)
    found, sent_bytes = created(strategy, value)
    np.testing.assert_array_equal(found, value, strict=True)
    assert sent_bytes < 5_000


@pytest.mark.parametrize(
    "value",
    [
        np.random.default_rng(0).normal(size=SHAPE).astype(np.float32),
        np.full(SHAPE, -0.0, np.float32),
        np.where(np.arange(40_000).reshape(SHAPE) == 17, np.float32(-0.0), np.float32(0.0)),
        np.full(SHAPE, np.inf, np.float32),
        np.full(SHAPE, 7, np.int64),
        np.ones(SHAPE, np.bool_),
    ],
    ids=["random", "minus zero", "one minus zero", "infinite", "whole", "truth"],
)
def test_other_values_travel_to_the_bit(server_job, value):
    strategy = server_job(2, 1, partitioner=FixedShardsPartitioner(2)).strategy()
    found, sent_bytes = created(strategy, value)
    assert found.tobytes() == value.tobytes()
    assert sent_bytes > value.nbytes
