"""Broadcasting and shapes, over examples that hypothesis makes up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from paceline.autodiff import Tensor, backward, logsumexp, relu, softmax

quick = settings(max_examples=60, deadline=None, derandomize=True, database=None)
SHAPES = hnp.mutually_broadcastable_shapes(num_shapes=2, min_side=0, max_side=3, max_dims=3)


def leaf(shape: tuple[int, ...], offset: float) -> Tensor:
    values = 1 + 0.25 * np.sin(np.arange(float(np.prod(shape))) + offset)
    return Tensor(values.reshape(shape), requires_grad=True)


@pytest.mark.parametrize(
    "function", [np.add, np.subtract, np.multiply, np.divide, np.power, np.maximum]
)
@quick
@given(shapes=SHAPES)
def test_a_broadcast_gradient_is_that_of_the_array_written_out(function: Any, shapes: Any) -> None:
    x, y = (leaf(shape, i) for i, shape in enumerate(shapes.input_shapes))
    full_x, full_y = (
        Tensor(np.broadcast_to(t.data, shapes.result_shape).copy(), requires_grad=True)
        for t in (x, y)
    )
    weights = np.cos(np.arange(float(np.prod(shapes.result_shape)))).reshape(shapes.result_shape)
    result = function(x, y)
    assert result.shape == shapes.result_shape
    found = backward(result * weights)
    full = backward(function(full_x, full_y) * weights)
    for small, large in ((x, full_x), (y, full_y)):
        np.testing.assert_allclose(found[small], summed(full[large], small.shape), atol=1e-12)


def summed(gradient: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The sum over every element that a broadcast element was copied to, one by one."""
    total = np.zeros(shape)
    copies = np.broadcast_to(np.arange(total.size).reshape(shape), gradient.shape)
    np.add.at(total.reshape(-1), copies.reshape(-1), gradient.reshape(-1))
    return total


@quick
@given(
    batch=hnp.mutually_broadcastable_shapes(num_shapes=2, min_side=1, max_side=3, max_dims=2),
    sides=st.tuples(*[st.integers(1, 3)] * 3),
)
def test_batched_matmul_is_a_sum_of_products(batch: Any, sides: tuple[int, int, int]) -> None:
    (first, second), (rows, inner, columns) = batch.input_shapes, sides
    x, y = leaf((*first, rows, inner), 0), leaf((*second, inner, columns), 1)
    found = backward(np.tanh(x @ y))
    spelled = backward(np.tanh(np.sum(x[..., :, :, None] * y[..., None, :, :], axis=-2)))
    for t in (x, y):
        np.testing.assert_allclose(found[t], spelled[t], rtol=1e-10)


@quick
@given(data=st.data(), shape=hnp.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=3))
def test_reductions_over_any_axes_agree_with_numpy(data: Any, shape: tuple[int, ...]) -> None:
    axes = data.draw(hnp.valid_tuple_axes(len(shape), min_size=1))
    keepdims = data.draw(st.booleans())
    x = leaf(shape, 0)
    for function in (np.sum, np.mean, np.max, np.min, np.prod, np.var, np.std):
        y = function(x, axis=axes, keepdims=keepdims)
        expected = function(x.data, axis=axes, keepdims=keepdims)
        np.testing.assert_allclose(y.data, expected, rtol=1e-13, atol=1e-15)
        assert y.shape == expected.shape
        assert backward(y)[x].shape == shape
    np.testing.assert_allclose(
        backward(logsumexp(x, axes, keepdims=keepdims))[x], softmax(x, axes).data, rtol=1e-12
    )


@quick
@given(data=st.data(), shape=hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=4))
def test_any_index_reads_and_gets_back_what_numpy_says(data: Any, shape: tuple[int, ...]) -> None:
    index = data.draw(
        hnp.basic_indices(shape, allow_newaxis=True)
        | hnp.integer_array_indices(shape, result_shape=hnp.array_shapes(max_dims=2, max_side=3))
        | hnp.arrays(bool, shape)
    )
    x = leaf(shape, 0)
    y = x[index] * 1.0
    np.testing.assert_array_equal(y.data, x.data[index])
    weights = np.cos(np.arange(float(y.size))).reshape(y.shape)
    expected = np.zeros(shape)
    np.add.at(expected, index, weights)
    np.testing.assert_allclose(backward(y * weights, keep=[x])[x], expected, atol=1e-14)


EMPTY = [
    np.exp,
    relu,
    np.sum,
    np.prod,
    softmax,
    lambda x: x + 1,
    lambda x: x * np.ones((2, 1, 1)),
    lambda x: np.sum(x, axis=0),
    lambda x: np.max(x, axis=1),
    lambda x: np.mean(x, axis=1),
    lambda x: x @ np.ones((3, 4)),
    lambda x: np.ones((4, 0)) @ x,
    lambda x: np.einsum("ij,kj->ik", x, np.ones((2, 3))),
    lambda x: x.reshape(3, 0),
    lambda x: x.T,
    lambda x: np.concatenate([x, np.ones((1, 3))]),
    lambda x: x[:, 1],
    lambda x: np.cumsum(x, axis=0),
    lambda x: np.pad(x, 1),
    lambda x: np.repeat(x, 2, axis=1),
]


@pytest.mark.parametrize("function", EMPTY)
def test_empty_arrays_work(function: Any) -> None:
    x = Tensor(np.zeros((0, 3)), requires_grad=True)
    gradient = backward(function(x))[x]
    assert gradient.shape == x.shape
