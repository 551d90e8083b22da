"""Every differentiable function, from one table: gradients, dtypes, ownership, devices, threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import paceline.autodiff as ad
from paceline.autodiff import (
    IndexedSlices,
    Tensor,
    backward,
    lift,
    no_grad,
    piecewise_constant,
    trace,
)
from paceline.autodiff.tensor_like import FUNCTIONS

from ..devices.strict_cupy import to_device
from . import cases  # noqa: F401 (which fill the table)
from .case_table import CASES, Case, dense_array, leaves_of, weighted_sum

every_function = pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
KEEP = [case for case in CASES if case.name != "astype"]  # which changes the dtype on purpose
same_dtype = pytest.mark.parametrize("case", KEEP, ids=[case.name for case in KEEP])
ALIKE = [c for c in CASES if len(c.inputs) > 1 and len({x.shape for x in c.inputs}) == 1]


def gradients(case: Case, leaves: list[Tensor]) -> list[Any]:
    found = backward(weighted_sum(case.function(*leaves)))
    return [found[leaf] for leaf in leaves]


def finite_differences(case: Case, position: int, step: float = 1e-5) -> np.ndarray:
    """The gradient for one input from values of the function alone."""
    inputs = [x.copy() for x in case.inputs]
    x = inputs[position].reshape(-1)
    slopes = np.empty_like(x)
    with no_grad():
        for i in range(x.size):
            ends = []
            for shift in (step, -step):
                x[i] += shift
                ends.append(weighted_sum(case.function(*map(Tensor, inputs))).item())
                x[i] -= shift
            slopes[i] = (ends[0] - ends[1]) / (2 * step)
    return slopes.reshape(inputs[position].shape)


def test_every_differentiable_function_of_numpys_has_a_case() -> None:
    with no_grad(), trace() as calls:
        for case in CASES:
            case.function(*leaves_of(case))
    tried = {FUNCTIONS[call.function] for call in calls if call.function in FUNCTIONS}
    ours = {f for f in FUNCTIONS.values() if f.__module__ != piecewise_constant.__name__}
    assert {f.__name__ for f in ours - tried} == set()


@every_function
def test_gradients_are_those_of_finite_differences(case: Case) -> None:
    for position, gradient in enumerate(gradients(case, leaves_of(case))):
        expected = finite_differences(case, position)
        np.testing.assert_allclose(dense_array(gradient), expected, rtol=1e-6, atol=1e-8)


@same_dtype
def test_float32_stays_float32_in_value_and_gradient(case: Case) -> None:
    leaves = leaves_of(case, np.float32)
    y = lift(case.function(*leaves))
    assert y.dtype == np.float32
    exact = gradients(case, leaves_of(case))
    for leaf, gradient, wide in zip(leaves, gradients(case, leaves), exact, strict=True):
        assert gradient.dtype == np.float32
        assert gradient.shape == leaf.shape
        np.testing.assert_allclose(dense_array(gradient), dense_array(wide), rtol=1e-3, atol=1e-4)


@every_function
def test_gradients_add_up_where_values_are_used_more_than_once(case: Case) -> None:
    """Diamonds: each value goes two ways that meet again, and no way spoils the other's arrays."""
    leaves = leaves_of(case)
    middle = [leaf * 1.0 for leaf in leaves]
    y = case.function(*middle)
    loss = weighted_sum(y) + weighted_sum(y) + weighted_sum(case.function(*leaves))
    for x in (*middle, *leaves):
        loss = loss + np.sum(x)
    found = backward(loss)
    for leaf, once in zip(leaves, gradients(case, leaves), strict=True):
        np.testing.assert_allclose(dense_array(found[leaf]), 3 * dense_array(once) + 2, atol=1e-12)


@pytest.mark.parametrize("case", ALIKE, ids=[case.name for case in ALIKE])
def test_one_tensor_may_be_every_input(case: Case) -> None:
    shared = Tensor(case.inputs[0], requires_grad=True)
    buffer = np.full_like(shared.data, np.nan)
    gradient = backward(
        weighted_sum(case.function(*[shared] * len(case.inputs))), into={shared: buffer}
    )
    apart = [Tensor(case.inputs[0], requires_grad=True) for _ in case.inputs]
    np.testing.assert_allclose(gradient[shared], sum(gradients(case, apart)), rtol=1e-12)
    assert gradient[shared] is buffer


@every_function
def test_a_vjp_gives_away_nothing_that_is_in_use(case: Case) -> None:
    """The contract of `Vjp`: no memory twice among its results, and none that forward saved."""
    leaves = leaves_of(case)
    y = lift(case.function(*leaves))
    if y.vjp is None:
        pytest.skip("gives its input back")
    kept = [y.data, *(leaf.data for leaf in leaves)]
    before = [array.copy() for array in kept]
    parts = y.vjp(np.ones_like(y.data), (None,) * len(y.inputs))
    arrays = [part for part in parts if isinstance(part, np.ndarray)]
    for i, part in enumerate(arrays):
        for other in (*arrays[:i], *kept):
            assert not np.shares_memory(part, other)
        part[...] = np.nan
    again = y.vjp(np.ones_like(y.data), (None,) * len(y.inputs))
    assert all(np.isfinite(part).all() for part in again if isinstance(part, np.ndarray))
    for array, unchanged in zip(kept, before, strict=True):
        np.testing.assert_array_equal(array, unchanged)


@every_function
def test_buffers_are_filled_with_the_gradient(case: Case) -> None:
    leaves = leaves_of(case)
    buffers = {leaf: np.full_like(leaf.data, np.nan) for leaf in leaves}
    found = backward(weighted_sum(case.function(*leaves)), into=buffers)
    for leaf, expected in zip(leaves, gradients(case, leaves), strict=True):
        if not isinstance(expected, IndexedSlices):
            assert found[leaf] is buffers[leaf]
        np.testing.assert_allclose(dense_array(found[leaf]), dense_array(expected), rtol=1e-12)


@every_function
def test_memory_order_does_not_matter(case: Case) -> None:
    def scattered(array: np.ndarray) -> np.ndarray:
        """The same values with gaps between them, in the opposite order of axes."""
        wide = np.zeros([2 * n for n in array.shape[::-1]]).T
        view = wide[(..., *[slice(None, None, 2)] * array.ndim)]
        view[...] = array
        return view

    found = gradients(case, leaves_of(case, array=scattered))
    for gradient, expected in zip(found, gradients(case, leaves_of(case)), strict=True):
        np.testing.assert_allclose(
            dense_array(gradient), dense_array(expected), rtol=1e-10, atol=1e-14
        )


def check_on_device(case: Case, array: Callable[..., Any]) -> None:
    """Values and gradients are arrays of the device's kind, and equal to those in host memory."""
    leaves = leaves_of(case, array=array)
    device_array = type(leaves[0].data)
    y = lift(case.function(*leaves))
    assert type(y.data) is device_array
    expected = gradients(case, leaves_of(case))
    for gradient, host in zip(gradients(case, leaves), expected, strict=True):
        rows = isinstance(gradient, IndexedSlices)
        parts = [gradient.values, gradient.indices] if rows else [gradient]
        assert [type(part) for part in parts] == [device_array] * len(parts)
        np.testing.assert_allclose(dense_array(gradient), dense_array(host), rtol=1e-9, atol=1e-12)


@every_function
def test_no_array_leaves_its_device(case: Case) -> None:
    check_on_device(case, to_device)


@pytest.mark.gpu
def test_cupy_arrays_give_what_numpy_arrays_give() -> None:
    cupy = pytest.importorskip("cupy", exc_type=ImportError)
    if not cupy.cuda.is_available():
        pytest.skip("no GPU")
    failed = {}
    for case in CASES:
        try:
            check_on_device(case, cupy.asarray)
        except Exception as error:  # one run on a GPU tells about the whole table
            failed[case.name] = error
    assert not failed


@pytest.mark.parametrize(
    "function",
    [
        *(ad.elu, ad.erf, ad.gelu, ad.leaky_relu, ad.logsumexp, ad.relu, ad.sigmoid, ad.silu),
        *(ad.softplus, lambda x: ad.sigmoid_cross_entropy(x, 1)),
    ],
)
def test_functions_of_ours_take_plain_numbers_lists_and_arrays(function: Any) -> None:
    expected = function(Tensor(np.array(0.5))).data
    for x in (0.5, np.float64(0.5), np.array(0.5)):
        y = function(x)
        assert type(y) is Tensor
        np.testing.assert_array_equal(y.data, expected)


def test_relu_leaves_whole_numbers_whole() -> None:
    assert ad.relu(np.array([-1, 2])).dtype == np.int64


def test_whole_numbers_have_the_logarithm_of_their_softmax() -> None:
    z = np.array([[1, 2, 4], [0, 0, 0]])
    np.testing.assert_allclose(ad.log_softmax(z).data, np.log(ad.softmax(z).data), rtol=1e-14)


def test_a_single_example_needs_no_batch() -> None:
    z = np.array([0.1, 2.0, -1.0])
    np.testing.assert_allclose(
        ad.softmax_cross_entropy(z, 1).data, -ad.log_softmax(z).data[1], rtol=1e-14
    )
    np.testing.assert_array_equal(ad.dense(z, np.ones((3, 2))).data, z.sum() * np.ones(2))


def test_no_examples_have_no_losses() -> None:
    z = Tensor(np.zeros((0, 3)), requires_grad=True)
    losses = ad.softmax_cross_entropy(z, np.zeros(0, np.int64))
    assert losses.shape == (0,)
    assert backward(losses)[z].shape == (0, 3)


@pytest.mark.host
def test_threads_do_not_meet() -> None:
    def run(thread: int) -> list[list[np.ndarray]]:
        order = np.random.default_rng(thread).permutation(len(CASES))
        found = {i: gradients(CASES[i], leaves_of(CASES[i])) for i in order}
        return [[dense_array(gradient) for gradient in found[i]] for i in range(len(CASES))]

    alone = run(0)
    with ThreadPoolExecutor(4) as pool:
        for together in pool.map(run, range(4)):
            for ours, expected in zip(together, alone, strict=True):
                for gradient, same in zip(ours, expected, strict=True):
                    np.testing.assert_array_equal(gradient, same)


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.linalg.eigvalsh(a)[1:],
        lambda a: np.linalg.eigvalsh(a, "U")[1:],
        lambda a: np.abs(np.linalg.eigh(a)[1]),
        np.linalg.cholesky,
    ],
)
@pytest.mark.host
def test_of_one_triangle_the_gradient_is_that_of_a_symmetric_matrix(function: Any) -> None:
    a, step = np.array([[2.0, 0.7], [0.7, 1.0]]), 1e-6 * np.array([[0.0, 1.0], [1.0, 0.0]])
    x = Tensor(a, requires_grad=True)
    gradient: Any = backward(np.sum(function(x)))[x]
    assert gradient[0, 1] == gradient[1, 0]
    slope = (np.sum(function(a + step)) - np.sum(function(a - step))) / 2e-6
    np.testing.assert_allclose(gradient[0, 1] + gradient[1, 0], slope, rtol=1e-6)
