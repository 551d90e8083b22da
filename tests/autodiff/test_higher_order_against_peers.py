"""Gradients of gradients against PyTorch's, which are stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline.autodiff as ad
from paceline.autodiff import GradientTape, IndexedSlices, Tensor

TORCH = dict(np.load(Path(__file__).parents[1] / "peers" / "torch_second_order.npz"))
LABELS = np.array([2, 0, 3])


def symmetric(x: Any) -> Any:
    return x + x.mT


def definite(x: Any) -> Any:
    return x @ x.mT + np.eye(x.shape[-1])


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "gelu": ad.gelu,
    "gelu approximate": lambda x: ad.gelu(x, approximate=True),
    "silu": ad.silu,
    "elu": ad.elu,
    "softplus": ad.softplus,
    "sigmoid": ad.sigmoid,
    "tanh": np.tanh,
    "erf": ad.erf,
    "leaky_relu": ad.leaky_relu,
    "softmax": ad.softmax,
    "log_softmax": ad.log_softmax,
    "logsumexp": lambda x: ad.logsumexp(x, axis=1),
    "square root": lambda x: np.sqrt(x * x + 1),
    "tan": np.tan,
    "arctan": np.arctan,
    "arcsinh": np.arcsinh,
    "power": np.power,
    "divide": np.divide,
    "arctan2": np.arctan2,
    "hypot": np.hypot,
    "logaddexp": np.logaddexp,
    "maximum with ties": np.maximum,
    "relu at zero": lambda x: ad.relu(x) ** 2,
    "abs at zero": lambda x: np.abs(x) ** 3,
    "var": lambda x: np.var(x, 1),
    "std": lambda x: np.std(x, 1, ddof=1),
    "prod": lambda x: np.prod(x, 1),
    "cumprod": lambda x: np.cumprod(x, 1),
    "cumsum squared": lambda x: np.cumsum(x, 1) ** 2,
    "sort": lambda x: np.sort(x) ** 2,
    "diff": lambda x: np.diff(x, n=2) ** 2,
    "norm": lambda x: np.linalg.norm(x, axis=1),
    "norm of order 3": lambda x: np.linalg.norm(x, 3, axis=1),
    "max with ties": lambda x: np.max(x, axis=1) ** 2,
    "prod with zeros": lambda x: np.prod(x, 1),
    "cumprod with zeros": lambda x: np.cumprod(x, 1),
    "solve": np.linalg.solve,
    "inv": np.linalg.inv,
    "det": np.linalg.det,
    "logabsdet": lambda x: np.linalg.slogdet(x).logabsdet,
    "cholesky": lambda x: np.linalg.cholesky(definite(x)),
    "eigvalsh": lambda x: np.linalg.eigvalsh(symmetric(x)),
    "eigenvectors": lambda x: np.linalg.eigh(symmetric(x)).eigenvectors ** 2,
    "singular values": lambda x: np.linalg.svd(x, compute_uv=False),
    "singular vectors": lambda x: np.linalg.svd(x).U ** 2,
    "nuclear norm": lambda x: np.linalg.norm(x, "nuc", (1, 2)),
    "spectral norm": lambda x: np.linalg.norm(x, 2, (1, 2)),
    "matrix product": lambda x: x @ x,
    "trace of a square": lambda x: np.einsum("bij,bji->b", x, x),
    "singular vectors of high ones": lambda x: np.linalg.svd(x, False).U ** 2,
    "singular vectors of wide ones": lambda x: np.linalg.svd(x, False).Vh ** 2,
    "cross": np.cross,
    "kron": np.kron,
    "attention": lambda q, k, v: ad.softmax(q @ k.mT * 0.5) @ v,
    "softmax_cross_entropy": lambda z: ad.softmax_cross_entropy(z, LABELS),
    "sigmoid_cross_entropy": ad.sigmoid_cross_entropy,
    "dense relu": lambda x, w, b: ad.dense(x, w, b, "relu"),
    "dense tanh": lambda x, w, b: ad.dense(x, w, b, "tanh"),
    "dense sigmoid": lambda x, w, b: ad.dense(x, w, b, "sigmoid"),
    "conv2d": lambda x, w, b: ad.conv2d(x, w, b, (2, 1), activation="relu"),
    "conv of groups, dilated": lambda x, w: ad.conv(x, w, dilation=2, groups=2),
    "conv_transpose": lambda x, w: ad.conv_transpose(x, w, 2),
    "max_pool2d": lambda x: ad.max_pool2d(x, 3, 2) ** 2,
    "avg_pool2d": lambda x: ad.avg_pool2d(x, 3, 2) ** 2,
}


def stored(name: str, what: str) -> list[np.ndarray]:
    return [TORCH[f"{name}/{what}{i}"] for i in range(3) if f"{name}/{what}{i}" in TORCH]


def weighted(y: Any, wave: Callable[..., Any], start: float) -> Any:
    return np.sum(y * wave(np.arange(float(y.size)) + start).reshape(y.shape))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_gradients_are_those_of_pytorch(name: str) -> None:
    leaves = [Tensor(x, requires_grad=True) for x in stored(name, "x")]
    with GradientTape() as outer:
        with GradientTape() as inner:
            y = FUNCTIONS[name](*leaves)
            loss = weighted(y, np.cos, 0.0)
        first = inner.gradient(loss, leaves)
        total = sum(weighted(g, np.sin, 1.0) for g in first)
    np.testing.assert_allclose(y.data, TORCH[f"{name}/y"], rtol=1e-10, atol=1e-12)
    for found, expected in zip(first, stored(name, "g"), strict=True):
        np.testing.assert_allclose(found.data, expected, rtol=1e-9, atol=1e-11)
    second = outer.gradient(total, leaves, unconnected_gradients="zero")
    for found, expected in zip(second, stored(name, "h"), strict=True):
        whole = found.to_dense() if isinstance(found, IndexedSlices) else found
        np.testing.assert_allclose(whole, expected, rtol=1e-8, atol=1e-10)


def test_every_stored_case_is_compared() -> None:
    names = {key.rpartition("/")[0] for key in TORCH} - {""}
    assert names - set(FUNCTIONS) == {"eigenvalues that repeat"}


def test_eigenvalues_that_repeat_have_a_gradient_and_their_vectors_none() -> None:
    x = Tensor(TORCH["eigenvalues that repeat/x0"], requires_grad=True)
    values, vectors = np.linalg.eigh(x)
    found = GradientTape().gradient(weighted(values**3, np.cos, 0.0), x)
    np.testing.assert_allclose(found, TORCH["eigenvalues that repeat/g0"])
    assert np.isnan(GradientTape().gradient(np.sum(vectors**3), x)).any()
