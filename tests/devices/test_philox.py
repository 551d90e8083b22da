"""Random numbers that are drawn on a device: those of the paper, the same for a key, and apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.autodiff import Tensor, philox, random_factors, random_normal
from paceline.nn.layers import Dropout, GaussianNoise
from paceline.strategies import OneDeviceStrategy

from .strict_cupy import counted, to_device

SHAPE = (200, 50)


def drawn(seed: int, rate: float = 0.25, dtype: str = "f") -> np.ndarray:
    like = to_device(np.zeros(1, dtype))
    return random_factors(np.random.default_rng(seed), rate, SHAPE, like).get()


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0), 0, (0xFF1DAE59, 0x6CD10DF2)),
        ((0xFFFFFFFF, 0xFFFFFFFF), 0xFFFFFFFF, (0x2C3F628B, 0xAB4FD7AD)),
        ((0x243F6A88, 0x85A308D3), 0x13198A2E, (0xDD7CE038, 0xF62A4C12)),
    ],
)
def test_the_numbers_are_those_that_its_authors_publish(
    counter: Any, key: int, expected: Any
) -> None:
    """The known answers of Random123."""
    keys = tuple((key + i * 0x9E3779B9) % 2**32 for i in range(10))
    found = philox.philox(np.array([counter[0]], np.uint64), counter[1], keys)
    assert tuple(int(part[0]) for part in found) == expected


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", ["e", "f", "d"])
def test_a_share_is_zero_and_the_rest_has_one_value(rate: float, dtype: str) -> None:
    found = drawn(1, rate, dtype)
    assert found.dtype == dtype
    scale = np.float32(1 / (1 - rate)).astype(dtype)
    assert set(np.unique(found).tolist()) <= {0, scale.item()}
    assert (found == 0).mean() == pytest.approx(rate, abs=0.02)


def test_they_depend_on_the_generator_alone() -> None:
    first = drawn(1)
    np.testing.assert_array_equal(first, drawn(1))
    both_zero = ((first == 0) & (drawn(2) == 0)).mean()
    assert both_zero == pytest.approx(0.25**2, abs=0.02)
    # Neighbours do not go together either, along rows and columns.
    zeros = first == 0
    for a, b in ((zeros[1:], zeros[:-1]), (zeros[:, 1:], zeros[:, :-1])):
        assert (a & b).mean() == pytest.approx(0.25**2, abs=0.02)


def test_normal_numbers_have_their_mean_deviation_and_tails() -> None:
    like = to_device(np.zeros(1, np.float32))
    found = random_normal(np.random.default_rng(3), 2.0, (100, 1000), like).get() / 2
    assert found.dtype == np.float32
    assert found.mean() == pytest.approx(0, abs=0.01)
    assert found.std() == pytest.approx(1, abs=0.01)
    assert (np.abs(found) > 2).mean() == pytest.approx(0.0455, abs=0.003)


@pytest.mark.parametrize("make", [lambda: Dropout(0.5), lambda: GaussianNoise(1.0)])
def test_a_layer_draws_without_an_upload_and_again_the_same(make: Any, a_card: Any) -> None:
    strategy = OneDeviceStrategy("GPU:0")

    def call(x: Any) -> Any:
        tensor = Tensor(x)
        with counted() as counts:
            y = make()(tensor, training=True)
        assert len(counts.launches) <= 3, counts.launches
        assert not counts.waits + counts.uploads
        return y.numpy()

    runs = []
    for _ in range(2):
        with strategy.scope():
            runs.append(strategy.run(call, (np.ones(SHAPE, np.float32),)))
    assert runs[0].std() > 0
    assert runs[0].shape == SHAPE
