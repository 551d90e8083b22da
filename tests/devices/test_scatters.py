"""Gradients of what was picked by position are added up in one order on a GPU, and in full digits.

Atomic additions, of which the stand-in does the last one first, come in any order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.autodiff import IndexedSlices, Tensor, backward

from . import strict_cupy
from .strict_cupy import StrictArray, counted, to_device

RNG = np.random.default_rng(0)
ROWS = RNG.integers(0, 7, 40)


@pytest.fixture(params=["forward", "backward"])
def any_order(request: Any, monkeypatch: Any) -> None:
    """Atomic additions in two orders: what depends on theirs fails in one of them."""
    if request.param == "forward":
        backwards = strict_cupy._scatter

        def forward(ufunc: Any, dense: Any, index: Any, values: Any = None) -> None:
            turned = [StrictArray(x._array[::-1].copy()) for x in (index, values)]
            backwards(ufunc, dense, *turned)

        monkeypatch.setattr(strict_cupy, "_scatter", forward)


def slices(values: Any, rows: Any = ROWS, num_rows: int = 9) -> IndexedSlices:
    return IndexedSlices(to_device(values), to_device(rows), (num_rows, *values.shape[1:]))


FOUND: dict[str, np.ndarray] = {}


@pytest.mark.parametrize("dtype", ["f", "e"])
def test_rows_of_a_dense_gradient_have_the_same_bits_in_any_order(
    dtype: str, any_order: None
) -> None:
    values = np.random.default_rng(1).normal(size=(40, 3)).astype(dtype)
    with counted() as counts:
        found = slices(values).to_dense().get()
    assert not counts.waits
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, FOUND.setdefault(dtype, found))
    expected = np.zeros((9, 3))
    np.add.at(expected, ROWS, values.astype(float))
    np.testing.assert_allclose(found, expected, rtol=1e-5 if dtype == "f" else 3e-3, atol=1e-2)


PLACES = RNG.integers(0, 5, (6, 9))


@pytest.mark.parametrize(
    "function",
    [
        lambda x, at: np.take_along_axis(x, at, 1),
        lambda x, at: np.take(x, at[0], axis=1),
        lambda x, at: x[at[0], 2],
        lambda x, at: x[1:, at[1]],
    ],
)
def test_gradients_of_elements_picked_by_arrays_are_in_one_order(
    function: Any, any_order: None
) -> None:
    x = np.random.default_rng(2).normal(size=(6, 5)).astype("f")
    gradients = []
    for put in (to_device, np.array):
        leaf = Tensor(put(x), requires_grad=True)
        picked = function(leaf, put(PLACES))
        with counted() as counts:
            found = backward(np.sum(picked * picked * picked))
        assert not counts.waits
        gradients.append(found[leaf])
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=1e-5)
    line, found = str(function.__code__.co_firstlineno), gradients[0].get()
    np.testing.assert_array_equal(found, FOUND.setdefault(line, found))


def test_a_small_gradient_beside_large_ones_keeps_its_digits_and_no_other_gets_their_nan() -> None:
    """CuPy's `add.reduceat` would take both from sums over all rows before."""
    values = np.array([[1e8], [np.nan], [1e-3], [2e-3]], np.float32)
    found = slices(values, np.array([0, 1, 3, 3]), 4).unique()
    np.testing.assert_array_equal(found.indices, [0, 1, 3])
    np.testing.assert_array_equal(found.values[:, 0], np.float32([1e8, np.nan, 3e-3]))
    with np.errstate(invalid="ignore"):
        by_cupy = np.add.reduceat(to_device(values), to_device(np.array([0, 1, 2])), axis=0)
    assert np.isnan(by_cupy.get()[2]).all()
