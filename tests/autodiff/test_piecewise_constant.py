"""Functions without a slope take tensors and give plain arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.autodiff import Tensor

VALUES = np.array([[1.5, -2.25, 0.0], [np.nan, np.inf, -1.0]])
FINITE = np.array([[1.5, -2.25, 0.0], [3.5, 2.5, -1.0]])


@pytest.mark.parametrize(
    "call",
    [
        *(np.isnan, np.isinf, np.isfinite, np.sign, np.signbit, np.floor, np.ceil, np.trunc),
        *(np.rint, np.round, np.around, np.logical_not, np.any, np.all),
        *(np.count_nonzero, np.shape, np.ndim, np.size, np.zeros_like, np.ones_like),
        lambda x: np.full_like(x, 7),
        lambda x: np.zeros_like(x, dtype=np.int8),
        lambda x: np.isclose(x, x),
        lambda x: np.allclose(x, np.ones(3)),
        lambda x: np.array_equal(x, [x, x]),
        lambda x: np.logical_and(x > 0, x),
        lambda x: np.any(x, axis=1),
        lambda x: np.where(x > 0),
        lambda x: np.result_type(x, np.float32),
    ],
)
@pytest.mark.host
def test_results_are_those_of_numpy_outside_the_graph(call: Any) -> None:
    result, expected = call(Tensor(VALUES, requires_grad=True)), call(VALUES)
    assert type(result) is type(expected)
    np.testing.assert_equal(result, expected)


@pytest.mark.parametrize(
    "call",
    [
        *(np.argmax, np.argmin, np.argsort, np.nonzero, np.argwhere, np.flatnonzero),
        lambda x: np.argmax(x, axis=1, keepdims=True),
        lambda x: np.argsort(x, axis=0),
        lambda x: np.round(x, 1),
        lambda x: np.floor_divide(x, 2),
        lambda x: np.searchsorted([0.0, 1.0], x),
        lambda x: np.digitize(x, np.array([0.0, 1.0])),
        lambda x: x // 2,
    ],
)
@pytest.mark.host
def test_positions_and_roundings_are_those_of_numpy(call: Any) -> None:
    result, expected = call(Tensor(FINITE, requires_grad=True)), call(FINITE)
    assert type(result) is type(expected)
    np.testing.assert_equal(result, expected)
