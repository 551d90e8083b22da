"""Every differentiable function at the edges: float16, no elements, axes of length 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paceline.autodiff as ad
from paceline.autodiff import Tensor, backward, lift

from . import cases  # noqa: F401 (which fill the table)
from .case_table import Case, dense_array, leaves_of
from .test_functions import KEEP, every_function, finite_differences, gradients


def changed(case: Case, inputs: Any) -> Case | None:
    """The case with other inputs, or None where the function refuses them."""
    other = Case(case.name, case.function, tuple(inputs))
    try:
        result = case.function(*leaves_of(other))
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        return None
    return other if isinstance(result, Tensor) else None


def without_elements(case: Case) -> list[Case]:
    """The case without examples, and with all axes of one length cut to 0, for each length."""
    lengths = {n for x in case.inputs for n in x.shape}
    cut = [
        [x[tuple(slice(0 if n == length else None) for n in x.shape)] for x in case.inputs]
        for length in lengths
    ]
    first, *others = case.inputs
    cut.append([first[:0] if first.ndim else first, *others])
    return [c for c in (changed(case, inputs) for inputs in cut) if c is not None]


def with_an_axis_of_one(case: Case) -> list[Case]:
    """The case with one axis of one input cut to a length of 1, for each of them."""
    found = []
    for i, x in enumerate(case.inputs):
        for axis in range(x.ndim):
            inputs = list(case.inputs)
            inputs[i] = x.take([0], axis)
            found.append(changed(case, inputs))
    return [c for c in found if c is not None]


# NumPy and CuPy decompose no float16.
HALF = [case for case in KEEP if not case.name.startswith("linalg.")]


@pytest.mark.parametrize("case", HALF, ids=[case.name for case in HALF])
def test_float16_gives_what_wider_floats_give(case: Case) -> None:
    leaves = leaves_of(case, np.float16)
    exact = Case(case.name, case.function, tuple(leaf.data.astype(float) for leaf in leaves))
    y, wide = (lift(case.function(*x)) for x in (leaves, leaves_of(exact)))
    assert y.dtype == np.float16
    np.testing.assert_allclose(y.data, wide.data, rtol=5e-3, atol=5e-3)
    for gradient, expected in zip(
        gradients(case, leaves), gradients(exact, leaves_of(exact)), strict=True
    ):
        assert gradient.dtype == np.float16
        np.testing.assert_allclose(
            dense_array(gradient), dense_array(expected), rtol=1e-2, atol=1e-2
        )


@every_function
def test_no_elements_have_a_value_and_gradients_of_their_shape(case: Case) -> None:
    with np.errstate(invalid="ignore"):  # the mean of nothing is "not a number", as NumPy's
        for empty in without_elements(case):
            leaves = leaves_of(empty)
            for leaf, gradient in zip(leaves, gradients(empty, leaves), strict=True):
                assert gradient.shape == leaf.shape
                assert np.isfinite(dense_array(gradient)).all()


@every_function
@pytest.mark.host
def test_axes_of_length_1_are_broadcast_in_the_gradient_as_in_the_value(case: Case) -> None:
    for narrow in with_an_axis_of_one(case):
        for position, gradient in enumerate(gradients(narrow, leaves_of(narrow))):
            np.testing.assert_allclose(
                dense_array(gradient), finite_differences(narrow, position), rtol=1e-6, atol=1e-7
            )


LOGITS = np.array([[-np.inf, -np.inf], [0.0, 0.0]])

SELECTIONS: list[tuple[str, Callable[[Any], Any], Any, Any]] = [
    # name, selection, input, the gradient of sum(sqrt(selection(x)))
    ("relu", ad.relu, [-1.0, 0.0, 4.0], [0, 0, 0.25]),
    ("maximum", lambda x: np.maximum(x, 0.0), [-1.0, 4.0], [0, 0.25]),
    ("maximum, second", lambda x: np.maximum(0.0, x), [-1.0, 4.0], [0, 0.25]),
    ("minimum", lambda x: -np.minimum(0.0, -x), [-1.0, 4.0], [0, 0.25]),
    ("clip", lambda x: np.clip(x, 0, None), [-1.0, 4.0], [0, 0.25]),
    ("where", lambda x: np.where(x > 0, x, 0.0), [-1.0, 4.0], [0, 0.25]),
    ("where, second", lambda x: np.where(x <= 0, 0.0, x), [-1.0, 4.0], [0, 0.25]),
    ("abs", np.abs, [0.0, -4.0], [0, -0.25]),
    ("max", lambda x: np.max(x, axis=1), [[0.0, -1.0], [3.0, 4.0]], [[np.inf, 0], [0, 0.25]]),
    ("min", lambda x: np.min(x, axis=1), [[0.0, 1.0], [5.0, 4.0]], [[np.inf, 0], [0, 0.25]]),
    ("sort", lambda x: np.sort(x)[1:], [4.0, -1.0, 0.0], [0.25, 0, np.inf]),
    ("dense", lambda x: ad.dense(x, np.eye(2), None, "relu"), [[-1.0, 4.0]], [[0, 0.25]]),
    (
        "conv2d",
        lambda x: ad.conv2d(x, np.ones((1, 1, 1, 1)), activation="relu"),
        [[[[-1.0], [4.0]]]],
        [[[[0], [0.25]]]],
    ),
    (
        "max_pool2d",
        lambda x: ad.max_pool2d(x, (1, 2)),
        [[[[-1.0], [0.0], [4.0], [1.0]]]],
        [[[[0], [np.inf], [0.25], [0]]]],
    ),
    (
        "conv2d_relu_max_pool2d",
        lambda x: ad.conv2d_relu_max_pool2d(x, np.ones((1, 1, 1, 1)), pool_size=(1, 2)),
        [[[[-1.0], [-2.0], [4.0], [1.0]]]],
        [[[[0], [0], [0.25], [0]]]],
    ),
]


@pytest.mark.parametrize(
    ("function", "x", "expected"), [s[1:] for s in SELECTIONS], ids=[s[0] for s in SELECTIONS]
)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_an_infinite_gradient_beside_a_selection_does_not_come_in(
    function: Any, x: Any, expected: Any, dtype: Any
) -> None:
    """The slope of the root is infinite at the 0 that stands for what was not selected."""
    leaf = Tensor(np.array(x, dtype), requires_grad=True)
    with np.errstate(divide="ignore"):
        gradient = backward(np.sqrt(function(leaf)))[leaf]
    np.testing.assert_array_equal(gradient, np.array(expected, dtype))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: ad.logsumexp(x, axis=1),
        lambda x: np.logaddexp(x[:, 0], x[:, 1]),
    ],
)
def test_a_row_that_is_masked_as_a_whole_has_no_gradient(function: Any) -> None:
    x = Tensor(LOGITS, requires_grad=True)
    y = function(x)
    np.testing.assert_allclose(y.data, [-np.inf, np.log(2)])
    np.testing.assert_array_equal(backward(y)[x], [[0, 0], [0.5, 0.5]])


MANY = 70_000  # more than float16 has numbers for


@pytest.mark.parametrize(
    ("function", "value", "share"),
    [
        (np.mean, 1.0, 1 / MANY),
        (np.max, 1.0, 1 / MANY),
        (np.min, 1.0, 1 / MANY),
        (lambda x: np.mean(x.reshape(-1, 2), axis=0).sum(), 2.0, 2 / MANY),
        (lambda x: np.mean(np.ones((MANY, 1), np.float16) * x[:1]), 1.0, [1, *[0] * (MANY - 1)]),
        (lambda x: ad.logsumexp(x), 1 + np.log(MANY), 1 / MANY),
        (lambda x: np.sum(ad.softmax(x)), 1.0, 0.0),
    ],
)
def test_float16_counts_further_than_its_numbers_go(
    function: Any, value: float, share: Any
) -> None:
    x = Tensor(np.ones(MANY, np.float16), requires_grad=True)
    y = function(x)
    np.testing.assert_allclose(y.data, value, rtol=2e-3)
    gradient = backward(y * 1000.0)[x]
    np.testing.assert_allclose(gradient, 1000.0 * np.array(share), rtol=2e-3, atol=5e-5)


@pytest.mark.parametrize("function", [np.var, np.std])
def test_float16_deviations_are_those_of_wider_floats(function: Any) -> None:
    values = np.tile([-0.1, 0.1], MANY // 2).astype(np.float16)
    x = Tensor(values, requires_grad=True)
    wide = Tensor(values.astype(float), requires_grad=True)
    np.testing.assert_allclose(function(x).data, function(wide).data, rtol=1e-3)
    found, expected = backward(function(x) * 1e3)[x], backward(function(wide) * 1e3)[wide]
    np.testing.assert_allclose(found, expected, rtol=2e-3)


@pytest.mark.parametrize("shape", [(1, 2), (2,), (1, 1)])
def test_float16_adds_up_broadcast_rows_without_standing_still(shape: tuple[int, ...]) -> None:
    b = Tensor(np.ones(shape, np.float16), requires_grad=True)
    weights = np.full((5000, 2), 0.1, np.float16)
    expected = 5000 * 0.1 * 2 / b.size
    np.testing.assert_allclose(backward(weights * b)[b], np.full(shape, expected), rtol=1e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, w: x @ w,
        ad.dense,
        lambda x, w: np.einsum("bi,ij->bj", x, w),
        lambda x, w: ad.conv2d(x.reshape(-1, 1, 1, 1), w.reshape(1, 1, 1, 1)),
    ],
)
def test_float16_weights_of_many_examples_have_their_whole_gradient(function: Any) -> None:
    x = np.full((5000, 1), 0.1, np.float16)
    w = Tensor(np.ones((1, 1), np.float16), requires_grad=True)
    np.testing.assert_allclose(backward(function(x, w))[w], [[500]], rtol=1e-3)


def test_float16_gelu_is_flat_or_the_identity_far_out() -> None:
    x = Tensor(np.array([-60_000, -300, 300, 60_000], np.float16), requires_grad=True)
    for approximate in (False, True):
        y = ad.gelu(x, approximate=approximate)
        np.testing.assert_array_equal(y.data, [0, 0, 300, 60_000])
        np.testing.assert_array_equal(backward(y)[x], [0, 0, 1, 1])


SCALAR_AXES: list[tuple[str, Callable[..., Any], float]] = [
    ("sum", np.sum, 1.0),
    ("max", np.max, 1.0),
    ("prod", np.prod, 1.0),
    ("cumsum", np.cumsum, 1.0),
    ("take", lambda x, axis: np.take(x, [0, 0], axis=axis), 2.0),
    ("repeat", lambda x, axis: np.repeat(x, 3, axis=axis), 3.0),
]


@pytest.mark.parametrize("axis", [0, -1])
@pytest.mark.parametrize(
    ("function", "slope"), [s[1:] for s in SCALAR_AXES], ids=[s[0] for s in SCALAR_AXES]
)
def test_a_scalar_takes_the_axes_that_numpy_gives_it(
    function: Any, slope: float, axis: int
) -> None:
    x = Tensor(np.array(2.0), requires_grad=True)
    y = function(x, axis=axis)
    np.testing.assert_array_equal(y.data, function(x.data, axis=axis))
    assert backward(y)[x] == slope
