"""Convolution and pooling against loops that are slow and plain, in float64."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import pytest

from paceline.autodiff import (
    Tensor,
    avg_pool2d,
    backward,
    conv2d,
    conv2d_relu_max_pool2d,
    max_pool2d,
)

STRIDES = [(1, 1), (2, 2), (3, 1), (1, 3)]
PADDINGS = ["valid", "same"]


class Case(NamedTuple):
    image: tuple[int, int, int, int]
    window: tuple[int, int]
    filters: int


CONVOLUTIONS = [
    Case(image=(2, 7, 6, 1), window=(3, 3), filters=4),
    Case(image=(1, 5, 8, 3), window=(2, 4), filters=1),
    Case(image=(3, 6, 5, 4), window=(1, 1), filters=3),
    Case(image=(2, 6, 7, 9), window=(3, 2), filters=5),
    Case(image=(1, 5, 5, 17), window=(5, 5), filters=2),
]
IMAGES = [(2, 7, 6, 3), (1, 5, 8, 1)]
POOLS = [(2, 2), (3, 3), (3, 1)]


def height_first(array: np.ndarray) -> np.ndarray:
    """The same values in the memory order height, width, batch, channels."""
    return np.ascontiguousarray(array.transpose(1, 2, 0, 3)).transpose(2, 0, 1, 3)


def scattered(array: np.ndarray) -> np.ndarray:
    """The same values as a view of every other element of a larger array."""
    larger = np.full([2 * n for n in array.shape], np.nan, array.dtype)
    view = larger[tuple(slice(None, None, 2) for _ in array.shape)]
    view[...] = array
    return view


MEMORY_ORDERS = {
    "batch first": np.ascontiguousarray,
    "height first": height_first,
    "scattered": scattered,
}


def padded_image(x: np.ndarray, size: Any, strides: Any, padding: str, fill: float) -> np.ndarray:
    """TensorFlow's rule for 'same', written down from its documentation."""
    widths = [(0, 0)]
    for length, k, s in zip(x.shape[1:3], size, strides, strict=True):
        total = max(k - s, 0) if length % s == 0 else max(k - length % s, 0)
        widths.append((total // 2, total - total // 2) if padding == "same" else (0, 0))
    return np.pad(x, [*widths, (0, 0)], constant_values=fill)


def windows_of(padded: np.ndarray, size: Any, strides: Any) -> Iterator[tuple[int, int, Any]]:
    """(row, column, index of the window in the padded image), for every window."""
    (kh, kw), (sh, sw) = size, strides
    for i, top in enumerate(range(0, padded.shape[1] - kh + 1, sh)):
        for j, left in enumerate(range(0, padded.shape[2] - kw + 1, sw)):
            yield i, j, np.s_[:, top : top + kh, left : left + kw]


def plain_conv2d(x: Any, w: Any, b: Any, strides: Any, padding: str) -> np.ndarray:
    padded = padded_image(x, w.shape[:2], strides, padding, 0)
    values = {
        (i, j): np.einsum("npqc,pqcf->nf", padded[window], w) + b
        for i, j, window in windows_of(padded, w.shape[:2], strides)
    }
    return assemble(values)


def plain_conv2d_gradients(
    x: Any, w: Any, g: Any, strides: Any, padding: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    size = w.shape[:2]
    padded = padded_image(x, size, strides, padding, 0)
    numbered = padded_image(np.arange(x.size).reshape(x.shape), size, strides, padding, x.size)
    dx, dw = np.zeros(x.size + 1), np.zeros(w.shape)  # the last of dx stands for the padding
    for i, j, window in windows_of(padded, size, strides):
        dw += np.einsum("npqc,nf->pqcf", padded[window], g[:, i, j])
        np.add.at(dx, numbered[window], np.einsum("nf,pqcf->npqc", g[:, i, j], w))
    return dx[:-1].reshape(x.shape), dw, g.sum(axis=(0, 1, 2))


def plain_pool2d(x: Any, size: Any, strides: Any, padding: str, reduce: Callable) -> np.ndarray:
    padded = padded_image(x, size, strides, padding, np.nan)
    values = {
        (i, j): reduce(padded[window], axis=(1, 2))
        for i, j, window in windows_of(padded, size, strides)
    }
    return assemble(values)


def plain_max_pool2d_gradient(x: Any, g: Any, size: Any, strides: Any, padding: str) -> Any:
    """The gradient of each maximum, to the first position of its window that holds it."""
    padded = padded_image(x, size, strides, padding, -np.inf)
    numbered = padded_image(np.arange(x.size).reshape(x.shape), size, strides, padding, -1)
    dx = np.zeros(x.size)
    for i, j, window in windows_of(padded, size, strides):
        for n, c in np.ndindex(x.shape[0], x.shape[3]):
            winner = np.argmax(padded[window][n, ..., c])
            dx[numbered[window][n, ..., c].flat[winner]] += g[n, i, j, c]
    return dx.reshape(x.shape)


def assemble(values: dict[tuple[int, int], np.ndarray]) -> np.ndarray:
    rows, columns = (last + 1 for last in max(values))
    return np.stack(
        [np.stack([values[i, j] for j in range(columns)], axis=1) for i in range(rows)], axis=1
    )


def numeric_gradient(function: Callable[[], float], array: np.ndarray) -> np.ndarray:
    """Central differences of `function()` with respect to `array`, which it reads."""
    gradient = np.empty(array.shape)
    for index in np.ndindex(array.shape):
        before = array[index]
        array[index] = before + 1e-6
        above = function()
        array[index] = before - 1e-6
        below = function()
        array[index] = before
        gradient[index] = (above - below) / 2e-6
    return gradient


def made(function: Callable[..., Tensor], *arrays: Any, **options: Any) -> tuple[Any, Callable]:
    """The values of a function, and what gives its inputs' gradients for one of the values."""
    leaves = [Tensor(array, requires_grad=True) for array in arrays]
    y = function(*leaves, **options)

    def gradients(g: np.ndarray) -> list[np.ndarray]:
        found = backward(y, g.copy("K"))
        return [found[leaf] for leaf in leaves]

    return y.data, gradients


def some_convolution(case: Case, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((*case.window, case.image[3], case.filters))
    return rng.standard_normal(case.image), weights, rng.standard_normal(case.filters)


@pytest.mark.parametrize("strides", STRIDES, ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_conv2d_equals_a_plain_loop(case: Case, padding: str, strides: Any) -> None:
    x, w, b = some_convolution(case)
    y, _ = made(conv2d, x, w, b, strides=strides, padding=padding)
    np.testing.assert_allclose(y, plain_conv2d(x, w, b, strides, padding), atol=1e-12)


@pytest.mark.parametrize("activation", [None, "relu"])
@pytest.mark.parametrize("strides", STRIDES, ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradients_of_conv2d_equal_a_plain_loop(
    case: Case, padding: str, strides: Any, activation: str | None
) -> None:
    x, w, b = some_convolution(case)
    options = {"strides": strides, "padding": padding, "activation": activation}
    y, gradients = made(conv2d, x, w, b, **options)
    g = np.random.default_rng(1).standard_normal(y.shape)
    through_relu = g * (y > 0) if activation else g
    expected = plain_conv2d_gradients(x, w, through_relu, strides, padding)
    for gradient, array in zip(gradients(g), expected, strict=True):
        np.testing.assert_allclose(gradient, array, atol=1e-12)


@pytest.mark.parametrize("strides", [(1, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("channels", [1, 5])
def test_gradients_of_conv2d_equal_finite_differences(
    channels: int, padding: str, strides: Any
) -> None:
    arrays = some_convolution(Case(image=(2, 4, 5, channels), window=(3, 2), filters=2))
    options = {"strides": strides, "padding": padding}
    y, gradients = made(conv2d, *arrays, **options)
    g = np.random.default_rng(1).standard_normal(y.shape)

    def loss() -> float:
        return float(np.sum(conv2d(*arrays, **options).data * g))

    for gradient, array in zip(gradients(g), arrays, strict=True):
        np.testing.assert_allclose(gradient, numeric_gradient(loss, array), atol=1e-6)


@pytest.mark.parametrize("strides", STRIDES, ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("pool_size", POOLS, ids=str)
@pytest.mark.parametrize("image", IMAGES, ids=str)
def test_pooling_equals_a_plain_loop(
    image: Any, pool_size: Any, padding: str, strides: Any
) -> None:
    x = np.random.default_rng(0).standard_normal(image)
    highest = max_pool2d(x, pool_size, strides, padding).data
    mean = avg_pool2d(x, pool_size, strides, padding).data
    np.testing.assert_array_equal(highest, plain_pool2d(x, pool_size, strides, padding, np.nanmax))
    np.testing.assert_allclose(mean, plain_pool2d(x, pool_size, strides, padding, np.nanmean))


@pytest.mark.parametrize("values", [1000, 3, 1], ids=lambda n: f"{n} different values")
@pytest.mark.parametrize("strides", STRIDES, ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("pool_size", POOLS, ids=str)
def test_gradient_of_max_pool_goes_to_the_first_of_tied_positions(
    pool_size: Any, padding: str, strides: Any, values: int
) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(values, size=(2, 7, 6, 3)) - 5.0
    options = {"pool_size": pool_size, "strides": strides, "padding": padding}
    y, gradients = made(max_pool2d, x, **options)
    g = rng.standard_normal(y.shape)
    (dx,) = gradients(g)
    expected = plain_max_pool2d_gradient(x, g, pool_size, strides, padding)
    np.testing.assert_allclose(dx, expected, atol=1e-12)
    np.testing.assert_allclose(dx.sum(), g.sum())


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)], ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("pool_size", [(2, 2), (3, 1)], ids=str)
def test_gradients_of_pooling_equal_finite_differences(
    pool_size: Any, padding: str, strides: Any
) -> None:
    rng = np.random.default_rng(0)
    x = rng.permutation(5 * 6 * 2).reshape(1, 5, 6, 2) / 10
    options = {"pool_size": pool_size, "strides": strides, "padding": padding}
    for function in (max_pool2d, avg_pool2d):
        y, gradients = made(function, x, **options)
        g = rng.standard_normal(y.shape)

        def loss(function: Any = function, g: Any = g) -> float:
            return float(np.sum(function(x, **options).data * g))

        np.testing.assert_allclose(gradients(g)[0], numeric_gradient(loss, x), atol=1e-6)


@pytest.mark.parametrize("pool_size", [(2, 2), (3, 2), (1, 2), (2, 1)], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 1)], ids=str)
@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("ties", [False, True], ids=["no ties", "ties"])
@pytest.mark.parametrize("channels", [1, 6])
def test_convolution_fused_with_relu_and_max_pool_equals_the_three_in_turn(
    channels: int, ties: bool, padding: str, strides: Any, pool_size: Any
) -> None:
    x, w, b = some_convolution(Case(image=(3, 11, 8, channels), window=(3, 3), filters=4))
    if ties:
        # Small integers, and halves for the bias, add up without rounding: ties stay ties.
        x, w, b = np.sign(np.floor(x)), np.round(w), np.round(b) / 2
        x[:, :, :5] = 0
    options = {"strides": strides, "padding": padding}
    y, fused = made(conv2d_relu_max_pool2d, x, w, b, pool_size=pool_size, **options)
    z, through_relu = made(conv2d, x, w, b, activation="relu", **options)
    expected, through_pool = made(max_pool2d, z, pool_size=pool_size)
    np.testing.assert_allclose(y, expected, rtol=1e-13, atol=1e-13)

    g = np.random.default_rng(2).standard_normal(y.shape)
    for gradient, separate in zip(fused(g), through_relu(*through_pool(g)), strict=True):
        np.testing.assert_allclose(gradient, separate, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("order_of_g", MEMORY_ORDERS)
@pytest.mark.parametrize("order_of_x", MEMORY_ORDERS)
@pytest.mark.parametrize("channels", [1, 3, 8])
def test_memory_order_of_input_and_gradient_changes_no_value(
    channels: int, order_of_x: str, order_of_g: str
) -> None:
    x, w, b = some_convolution(Case(image=(3, 8, 8, channels), window=(3, 3), filters=5))
    results = []
    for reorder_x, reorder_g in [
        (np.ascontiguousarray, np.ascontiguousarray),
        (MEMORY_ORDERS[order_of_x], MEMORY_ORDERS[order_of_g]),
    ]:
        given = reorder_x(x)
        all_of_it = []
        for function, parameters, options in (
            (conv2d, (w, b), {"activation": "relu"}),
            (conv2d_relu_max_pool2d, (w, b), {}),
            (max_pool2d, (), {}),
            (avg_pool2d, (), {"padding": "same"}),
        ):
            y, gradients = made(function, given, *parameters, **options)
            all_of_it += [y, *gradients(reorder_g(y + 1))]
        results.append(all_of_it)
    for expected, result in zip(*results, strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("padding", PADDINGS)
@pytest.mark.parametrize("order", [np.ascontiguousarray, height_first])
@pytest.mark.host
def test_gradients_lie_in_the_order_of_the_input_and_results_as_the_next_layer_wants_them(
    order: Any, padding: str
) -> None:
    x, w, b = some_convolution(Case(image=(3, 8, 8, 2), window=(3, 3), filters=5))
    x = order(x)
    for order_of_result, (y, gradients) in (
        ((1, 2, 0, 3), made(conv2d, x, w, b, padding=padding)),
        ((0, 1, 2, 3), made(conv2d_relu_max_pool2d, x, w, b, padding=padding)),
        ((1, 2, 0, 3), made(max_pool2d, x, pool_size=(3, 3), strides=(2, 2), padding=padding)),
    ):
        assert y.transpose(order_of_result).flags.c_contiguous
        assert gradients(y)[0].strides == x.strides


@pytest.mark.parametrize("function", [conv2d, conv2d_relu_max_pool2d])
@pytest.mark.parametrize("asked_for", ["x", "wb", "w", "xb"])
def test_gradients_are_written_into_the_given_buffers_and_only_those_asked_for(
    function: Any, asked_for: str
) -> None:
    arrays = some_convolution(CONVOLUTIONS[0])
    y, gradients = made(function, *arrays)
    expected = dict(zip("xwb", gradients(np.ones_like(y)), strict=True))
    leaves = {n: Tensor(a, n in asked_for) for n, a in zip("xwb", arrays, strict=True)}
    into = {leaves[name]: np.full_like(leaves[name].data, np.nan) for name in asked_for}
    found = backward(function(*leaves.values()), into=into)
    assert found.keys() == into.keys()
    for name in asked_for:
        assert found[leaves[name]] is into[leaves[name]]
        np.testing.assert_array_equal(found[leaves[name]], expected[name])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_preserved(dtype: Any) -> None:
    x, w, b = (a.astype(dtype) for a in some_convolution(CONVOLUTIONS[0]))
    for y, gradients in (
        made(conv2d, x, w, b, activation="relu"),
        made(conv2d_relu_max_pool2d, x, w, b),
        made(max_pool2d, x),
        made(avg_pool2d, x),
    ):
        assert {result.dtype for result in (y, *gradients(y))} == {np.dtype(dtype)}


def test_bytes_as_images_give_the_dtype_of_the_weights() -> None:
    x, w, b = (a.astype(np.float32) for a in some_convolution(CONVOLUTIONS[0]))
    pixels = np.abs(100 * x).astype(np.uint8)
    y = conv2d(pixels, w, b)
    np.testing.assert_array_equal(y.data, conv2d(pixels.astype(np.float32), w, b).data)
    assert y.dtype == np.float32


def test_bias_may_be_left_out() -> None:
    x, w, b = some_convolution(CONVOLUTIONS[0])
    for function in (conv2d, conv2d_relu_max_pool2d):
        np.testing.assert_array_equal(function(x, w).data, function(x, w, 0 * b).data)


@pytest.mark.host
def test_replica_threads_do_not_disturb_each_other() -> None:
    x, w, b = some_convolution(Case(image=(8, 14, 14, 1), window=(3, 3), filters=8))

    def step(scale: int) -> list[np.ndarray]:
        y, gradients = made(conv2d_relu_max_pool2d, scale * x, w, b)
        return [y, *gradients(y + scale)]

    scales = [1, 2, 3, 4] * 8
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(step, scales))
    for scale, result in zip(scales, results, strict=True):
        for got, expected in zip(result, step(scale), strict=True):
            np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"padding": "full"}, "padding must be 'valid', 'same' or 'causal', got 'full'"),
        ({"strides": (0, 1)}, "at least 1"),
        ({"activation": "tanh"}, "activation must be 'relu' or None, got 'tanh'"),
        ({"x": np.ones((2, 5, 5))}, "batch, height, width, channels"),
        ({"x": np.ones((2, 5, 5, 3))}, "same number of channels"),
        ({"x": np.ones((2, 2, 5, 1))}, "does not fit"),
        ({"b": np.ones(4)}, "one element for each filter"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses(changes: dict[str, Any], message: str) -> None:
    arguments = {"x": np.ones((2, 5, 5, 1)), "w": np.ones((3, 3, 1, 2)), "b": np.ones(2)}
    with pytest.raises(ValueError, match=message):
        conv2d(**{**arguments, **changes})


def test_refuses_a_fused_pool_that_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"pool_size \(4, 2\).*3 x 3"):
        conv2d_relu_max_pool2d(np.ones((2, 5, 5, 1)), np.ones((3, 3, 1, 2)), pool_size=(4, 2))


def test_a_pool_behind_a_convolution_may_have_more_cells_than_a_byte_counts() -> None:
    x, w, b = some_convolution(Case(image=(1, 19, 18, 1), window=(3, 3), filters=2))
    y, fused = made(conv2d_relu_max_pool2d, x, w, b, pool_size=(17, 16))
    z, through_relu = made(conv2d, x, w, b, activation="relu")
    expected, through_pool = made(max_pool2d, z, pool_size=(17, 16))
    np.testing.assert_allclose(y, expected)
    g = np.ones_like(y)
    for got, wanted in zip(fused(g), through_relu(through_pool(g)[0]), strict=True):
        np.testing.assert_allclose(got, wanted, atol=1e-13)
