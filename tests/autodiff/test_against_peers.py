"""Values and gradients against PyTorch, whose answers are stored, and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline.autodiff as ad
from paceline.autodiff import IndexedSlices, Tensor, backward

LABELS = np.array([2, 0, 4, 1])
TORCH = dict(np.load(Path(__file__).parents[1] / "peers" / "torch.npz"))

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": ad.gelu,
    "gelu approximate": lambda x: ad.gelu(x, approximate=True),
    "silu": ad.silu,
    "elu": ad.elu,
    "softplus": ad.softplus,
    "leaky_relu": ad.leaky_relu,
    "sigmoid": ad.sigmoid,
    "softmax": ad.softmax,
    "log_softmax": ad.log_softmax,
    "logsumexp": lambda x: ad.logsumexp(x, axis=1),
    "attention": lambda q, k, v: np.einsum(
        "bqk,bkd->bqd", ad.softmax(np.einsum("bqd,bkd->bqk", q, k) / 2.0), v
    ),
    "einsum": lambda x, y, z: np.einsum("bij,jk,...k->...bi", x, y, z),
    "take": lambda x: np.take(x, np.array([[3, 0], [3, 2]]), axis=0),
    "softmax_cross_entropy": lambda z: ad.softmax_cross_entropy(z, LABELS),
    "softmax_cross_entropy of probabilities": ad.softmax_cross_entropy,
    "sigmoid_cross_entropy": ad.sigmoid_cross_entropy,
    "var": lambda x: np.var(x, 1),
    "std": lambda x: np.std(x, 1, ddof=1),
    "cumsum": lambda x: np.cumsum(x, 1),
    "prod": lambda x: np.prod(x, 1),
    "sort": np.sort,
    "ties of max": lambda x: np.max(x, axis=1),
    "ties of maximum": np.maximum,
    "relu at zero": ad.relu,
    "abs at zero": np.abs,
    "power of zero": lambda x: x**0,
}
KERNELS = {
    f"{channels} channels, strides {strides}": strides
    for channels in (1, 3, 16)
    for strides in (1, 2, 3)
}


def check(name: str, function: Callable[..., Any], rtol: float, atol: float) -> None:
    """Compare a function's values, and the gradients of a weighted sum of them, with PyTorch's."""
    stored = {
        key: TORCH[f"{name}/{key}"] for key in ("y", "x0", "x1", "x2") if f"{name}/{key}" in TORCH
    }
    leaves = [Tensor(x, requires_grad=True) for key, x in stored.items() if key != "y"]
    y = function(*leaves)
    np.testing.assert_allclose(y.data, stored["y"], rtol=rtol, atol=atol)
    found = backward(np.sum(y * np.cos(np.arange(y.size, dtype=y.dtype)).reshape(y.shape)))
    for i, leaf in enumerate(leaves):
        gradient = found[leaf]
        if isinstance(gradient, IndexedSlices):
            gradient = gradient.to_dense()
        np.testing.assert_allclose(gradient, TORCH[f"{name}/g{i}"], rtol=rtol, atol=atol)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients_are_those_of_pytorch(name: str) -> None:
    check(f"function/{name}", FUNCTIONS[name], rtol=1e-12, atol=1e-14)


def test_clip_passes_the_gradient_at_its_bounds_as_in_tensorflow() -> None:
    """PyTorch 2.15 gives 0 there."""
    x = Tensor(np.array([-1.0, 0, 0.5, 1, 2]), requires_grad=True)
    np.testing.assert_array_equal(backward(np.clip(x, 0, 1))[x], [0, 1, 1, 1, 0])


@pytest.mark.parametrize(("name", "strides"), KERNELS.items())
def test_convolution_and_pooling_are_those_of_pytorch(name: str, strides: int) -> None:
    def function(x: Any, w: Any, b: Any) -> Any:
        return ad.max_pool2d(ad.conv2d(x, w, b, strides, activation="relu"), (2, 2), (1, 1))

    check(f"kernel/{name}", function, rtol=1e-4, atol=1e-4)


WIDE = np.concatenate([np.linspace(-40, 40, 4001), [1e-300, -1e-8, 0.0, np.inf, -np.inf]])


@pytest.mark.parametrize(
    ("name", "ours", "dtype", "rtol", "atol"),
    [
        ("erf", ad.erf, np.float64, 2e-15, 1e-300),
        ("erf", ad.erf, np.float32, 1e-6, 0),
        ("expit", ad.sigmoid, np.float64, 2e-15, 1e-300),
        ("expit", ad.sigmoid, np.float32, 1e-6, 1e-38),
    ],
)
def test_special_functions_are_those_of_scipy(
    name: str, ours: Any, dtype: Any, rtol: float, atol: float
) -> None:
    special = pytest.importorskip("scipy.special")
    x = WIDE.astype(dtype)
    expected = getattr(special, name)(x.astype(np.float64))
    y = ours(x).data
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("scale", [1.0, 1e3, -1e3])
@pytest.mark.parametrize("axis", [None, 0, (0, 1)])
def test_logsumexp_is_that_of_scipy(scale: float, axis: Any) -> None:
    special = pytest.importorskip("scipy.special")
    x = scale * np.random.default_rng(0).normal(size=(3, 4))
    for keepdims in (False, True):
        y = ad.logsumexp(x, axis, keepdims=keepdims)
        expected = special.logsumexp(x, axis, keepdims=keepdims)
        np.testing.assert_allclose(y.data, expected, rtol=1e-14)
        assert y.shape == np.shape(expected)


def test_logsumexp_takes_infinities() -> None:
    x = np.array([[-np.inf, 0.0], [np.inf, 1.0]])
    np.testing.assert_array_equal(ad.logsumexp(x, axis=1).data, [0, np.inf])


@pytest.mark.parametrize("shift", [0.0, 1e4, -1e4])
def test_losses_are_exact_however_large_the_logits(shift: float) -> None:
    z = np.random.default_rng(1).normal(size=(4, 5))
    exact = ad.softmax_cross_entropy(z, LABELS).data
    one_hot = np.eye(5)[LABELS]
    for y in (ad.softmax_cross_entropy(z + shift, t) for t in (LABELS, one_hot)):
        np.testing.assert_allclose(y.data, exact, rtol=1e-9)


def test_a_certain_mistake_costs_its_margin_and_no_overflow() -> None:
    z = Tensor(np.array([[1000.0, -1000.0]]), requires_grad=True)
    loss = ad.softmax_cross_entropy(z, np.array([1]))
    np.testing.assert_array_equal(loss.data, [2000])
    np.testing.assert_array_equal(backward(loss)[z], [[1, -1]])
    z = Tensor(np.array([1000.0, -1000.0]), requires_grad=True)
    loss = ad.sigmoid_cross_entropy(z, np.array([0.0, 1.0]))
    np.testing.assert_array_equal(loss.data, [1000, 1000])
    np.testing.assert_array_equal(backward(loss)[z], [1, -1])
