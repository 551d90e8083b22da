"""Values and gradients against PyTorch and SciPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import paceline.autodiff as ad
from paceline.autodiff import IndexedSlices, Tensor, backward

RNG = np.random.default_rng(5)
LABELS = np.array([2, 0, 4, 1])
ROWS = np.array([[3, 0], [3, 2]])


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape)


PEERS: list[Any] = [
    ("gelu", ad.gelu, lambda t, nn: lambda x: nn.gelu(x), [normal(4, 5)]),
    (
        "gelu approximate",
        lambda x: ad.gelu(x, approximate=True),
        lambda t, nn: lambda x: nn.gelu(x, approximate="tanh"),
        [normal(4, 5)],
    ),
    ("silu", ad.silu, lambda t, nn: nn.silu, [normal(4, 5)]),
    ("elu", ad.elu, lambda t, nn: nn.elu, [normal(4, 5)]),
    ("softplus", ad.softplus, lambda t, nn: nn.softplus, [normal(4, 5)]),
    ("leaky_relu", ad.leaky_relu, lambda t, nn: lambda x: nn.leaky_relu(x, 0.2), [normal(4, 5)]),
    ("sigmoid", ad.sigmoid, lambda t, nn: t.sigmoid, [normal(4, 5)]),
    ("softmax", ad.softmax, lambda t, nn: lambda x: t.softmax(x, -1), [normal(4, 5)]),
    ("log_softmax", ad.log_softmax, lambda t, nn: lambda x: t.log_softmax(x, -1), [normal(4, 5)]),
    (
        "logsumexp",
        lambda x: ad.logsumexp(x, axis=1),
        lambda t, nn: lambda x: t.logsumexp(x, 1),
        [normal(4, 5)],
    ),
    (
        "attention",
        lambda q, k, v: np.einsum(
            "bqk,bkd->bqd", ad.softmax(np.einsum("bqd,bkd->bqk", q, k) / 2.0), v
        ),
        lambda t, nn: lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, scale=0.5),
        [normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 4)],
    ),
    (
        "einsum",
        lambda x, y, z: np.einsum("bij,jk,...k->...bi", x, y, z),
        lambda t, nn: lambda x, y, z: t.einsum("bij,jk,...k->...bi", x, y, z),
        [normal(2, 3, 4), normal(4, 5), normal(6, 5)],
    ),
    (
        "take",
        lambda x: np.take(x, ROWS, axis=0),
        lambda t, nn: lambda x: nn.embedding(t.from_numpy(ROWS), x),
        [normal(5, 3)],
    ),
    (
        "softmax_cross_entropy",
        lambda z: ad.softmax_cross_entropy(z, LABELS),
        lambda t, nn: lambda z: nn.cross_entropy(z, t.from_numpy(LABELS), reduction="none"),
        [normal(4, 5)],
    ),
    (
        "softmax_cross_entropy of probabilities",
        ad.softmax_cross_entropy,
        lambda t, nn: lambda z, p: nn.cross_entropy(z, p, reduction="none"),
        [normal(4, 5), np.abs(normal(4, 5))],
    ),
    (
        "sigmoid_cross_entropy",
        ad.sigmoid_cross_entropy,
        lambda t, nn: lambda z, p: nn.binary_cross_entropy_with_logits(z, p, reduction="none"),
        [normal(4, 5), np.abs(normal(4, 5))],
    ),
    (
        "var",
        lambda x: np.var(x, 1),
        lambda t, nn: lambda x: t.var(x, 1, correction=0),
        [normal(4, 5)],
    ),
    ("std", lambda x: np.std(x, 1, ddof=1), lambda t, nn: lambda x: t.std(x, 1), [normal(4, 5)]),
    ("cumsum", lambda x: np.cumsum(x, 1), lambda t, nn: lambda x: t.cumsum(x, 1), [normal(4, 5)]),
    ("prod", lambda x: np.prod(x, 1), lambda t, nn: lambda x: t.prod(x, 1), [normal(4, 5)]),
    ("sort", np.sort, lambda t, nn: lambda x: t.sort(x).values, [normal(4, 5)]),
    (
        "ties of max",
        lambda x: np.max(x, axis=1),
        lambda t, nn: lambda x: t.amax(x, 1),
        [np.array([[1.0, 3, 3], [2, 2, 2]])],
    ),
    ("ties of maximum", np.maximum, lambda t, nn: t.maximum, [np.ones(3), np.array([0.0, 1, 2])]),
    (
        "bounds of clip",
        lambda x: np.clip(x, 0, 1),
        lambda t, nn: lambda x: t.clip(x, 0, 1),
        [np.array([-1.0, 0, 0.5, 1, 2])],
    ),
    ("relu at zero", ad.relu, lambda t, nn: t.relu, [np.array([-1.0, 0, 1])]),
    ("abs at zero", np.abs, lambda t, nn: t.abs, [np.array([-1.0, 0, 1])]),
    ("power of zero", lambda x: x**0, lambda t, nn: lambda x: x**0, [np.array([0.0, 1])]),
]


@pytest.mark.parametrize(
    ("ours", "theirs", "inputs"), [p[1:] for p in PEERS], ids=[p[0] for p in PEERS]
)
def test_values_and_gradients_are_those_of_pytorch(
    ours: Callable[..., Any], theirs: Callable[..., Any], inputs: list[np.ndarray]
) -> None:
    torch = pytest.importorskip("torch")
    their_leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    their_y = theirs(torch, torch.nn.functional)(*their_leaves)
    weights = np.cos(np.arange(float(their_y.numel()))).reshape(their_y.shape)
    (their_y * torch.tensor(weights)).sum().backward()

    leaves = [Tensor(x, requires_grad=True) for x in inputs]
    y = ours(*leaves)
    np.testing.assert_allclose(y.data, their_y.detach().numpy(), rtol=1e-12, atol=1e-15)
    found = backward(np.sum(y * weights))
    for leaf, their_leaf in zip(leaves, their_leaves, strict=True):
        gradient = found[leaf]
        if isinstance(gradient, IndexedSlices):
            gradient = gradient.to_dense()
        np.testing.assert_allclose(gradient, their_leaf.grad.numpy(), rtol=1e-12, atol=1e-14)


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
