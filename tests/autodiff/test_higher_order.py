"""Gradients of gradients: of every function in the table, and by nested tapes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paceline.autodiff as ad
from paceline.autodiff import GradientTape, Tensor, backward

from ..devices.strict_cupy import StrictArray, to_device
from . import cases  # noqa: F401 (which fill the table)
from .case_table import CASES, Case, dense_array, leaves_of, weighted_sum
from .test_edges import HALF, without_elements
from .test_functions import KEEP, every_function


def directions(case: Case, salt: int) -> list[np.ndarray]:
    rng = np.random.default_rng(salt)
    return [rng.normal(size=x.shape) for x in case.inputs]


def slope(case: Case, along: list[Any], inputs: Any) -> float:
    """The derivative of the case along a direction, by the first order."""
    leaves = leaves_of(Case(case.name, case.function, tuple(inputs)))
    found = backward(weighted_sum(case.function(*leaves)))
    return sum(
        float(np.sum(dense_array(found[leaf]) * v)) for leaf, v in zip(leaves, along, strict=True)
    )


def second_order(case: Case, leaves: list[Tensor], along: list[Any]) -> list[Any]:
    """The gradient of `slope` for each leaf, 0 for those that it does not depend on."""
    with GradientTape() as outer:
        with GradientTape() as inner:
            loss = weighted_sum(case.function(*leaves))
        gradients = inner.gradient(loss, leaves)
        total = sum(np.sum(g * v) for g, v in zip(gradients, along, strict=True))
    return outer.gradient(total, leaves, unconnected_gradients="zero")


@every_function
def test_second_order_gradients_are_the_slopes_of_the_first(case: Case) -> None:
    along, other = directions(case, 1), directions(case, 2)
    found = second_order(case, leaves_of(case), along)
    value = sum(np.sum(dense_array(g) * v) for g, v in zip(found, other, strict=True))
    step = 1e-5
    ends = [
        slope(case, along, [x + sign * step * v for x, v in zip(case.inputs, other, strict=True)])
        for sign in (1, -1)
    ]
    expected = (ends[0] - ends[1]) / (2 * step)
    np.testing.assert_allclose(value, expected, rtol=2e-5, atol=2e-6)


def failures(check: Any, table: list[Case]) -> dict[str, Exception]:
    """What goes wrong in the whole table: a test for each would take longer than the checks."""
    failed = {}
    for case in table:
        try:
            check(case)
        except Exception as error:
            failed[case.name] = error
    return failed


@pytest.mark.parametrize(
    ("dtype", "table", "tolerance"), [(np.float32, KEEP, 2e-2), (np.float16, HALF, 5e-2)]
)
def test_second_order_gradients_keep_their_precision(
    dtype: Any, table: list[Case], tolerance: float
) -> None:
    def check(case: Case) -> None:
        leaves = leaves_of(case, dtype)
        rounded = Case(case.name, case.function, tuple(leaf.data.astype(float) for leaf in leaves))
        along = [v.astype(dtype) for v in directions(case, 1)]
        exact = second_order(rounded, leaves_of(rounded), [v.astype(float) for v in along])
        for gradient, wide in zip(second_order(case, leaves, along), exact, strict=True):
            assert gradient.dtype == dtype
            assert gradient.shape == wide.shape
            np.testing.assert_allclose(
                dense_array(gradient), dense_array(wide), rtol=tolerance, atol=tolerance
            )

    assert failures(check, table) == {}


def test_no_elements_have_second_order_gradients_of_their_shape() -> None:
    def check(case: Case) -> None:
        with np.errstate(invalid="ignore"):  # the mean of nothing is "not a number", as NumPy's
            for empty in without_elements(case):
                leaves = leaves_of(empty)
                for leaf, gradient in zip(
                    leaves, second_order(empty, leaves, directions(empty, 1)), strict=True
                ):
                    assert gradient.shape == leaf.shape

    assert failures(check, CASES) == {}


def test_second_order_gradients_stay_on_their_device() -> None:
    def check(case: Case) -> None:
        leaves = leaves_of(case, array=to_device)
        found = second_order(case, leaves, [to_device(v) for v in directions(case, 1)])
        expected = second_order(case, leaves_of(case), directions(case, 1))
        for gradient, host in zip(found, expected, strict=True):
            array = gradient.values if isinstance(gradient, ad.IndexedSlices) else gradient.data
            assert type(array) is StrictArray
            np.testing.assert_allclose(
                dense_array(gradient), dense_array(host), rtol=1e-8, atol=1e-10
            )

    assert failures(check, CASES) == {}
