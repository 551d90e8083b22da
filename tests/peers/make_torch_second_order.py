"""Write `torch_second_order.npz`: what PyTorch answers about gradients of gradients.

    python tests/peers/make_torch_second_order.py

needs PyTorch and NumPy, not paceline. Of each case `case/x0`, `case/x1`, … went in, `case/y` came
out, `case/g0`, … are the gradients of `sum(y * cos(arange))`, and `case/h0`, … those of the sum of
all `g * sin(arange + 1)`; zeros, where that does not depend on an input.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as nn

RNG = np.random.default_rng(11)
STORED: dict[str, np.ndarray] = {"version": np.array(torch.__version__)}


def normal(*shape: int) -> np.ndarray:
    """Normal to three digits, which compress."""
    return np.round(1024 * RNG.normal(size=shape)) / 1024


def weighted(y: Any, wave: Callable[..., Any], start: float) -> Any:
    numbers = wave(np.arange(float(y.numel())) + start).reshape(tuple(y.shape))
    return (y * torch.tensor(numbers, dtype=y.dtype)).sum()


def case(name: str, function: Callable[..., Any], *inputs: np.ndarray) -> None:
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = function(*leaves)
    first = torch.autograd.grad(weighted(y, np.cos, 0.0), leaves, create_graph=True)
    total = sum(weighted(g, np.sin, 1.0) for g in first)
    second = [torch.zeros_like(x) for x in leaves]
    if total.requires_grad:
        found = torch.autograd.grad(total, leaves, allow_unused=True)
        second = [z if h is None else h for z, h in zip(second, found, strict=True)]
    STORED[f"{name}/y"] = y.detach().numpy()
    for i, (x, g, h) in enumerate(zip(inputs, first, second, strict=True)):
        STORED[f"{name}/x{i}"] = x
        STORED[f"{name}/g{i}"] = g.detach().numpy()
        STORED[f"{name}/h{i}"] = h.numpy()


def symmetric(x: Any) -> Any:
    return x + x.mT


def definite(x: Any) -> Any:
    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def channels_first(x: Any) -> Any:
    return x.permute(0, -1, *range(1, x.ndim - 1))


def channels_last(x: Any) -> Any:
    return x.permute(0, *range(2, x.ndim), 1)


def filters_first(w: Any) -> Any:
    return w.permute(-1, -2, *range(w.ndim - 2))


def elementwise() -> None:
    for name, function in {
        "gelu": nn.gelu,
        "gelu approximate": lambda x: nn.gelu(x, approximate="tanh"),
        "silu": nn.silu,
        "elu": nn.elu,
        "softplus": nn.softplus,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "erf": torch.erf,
        "leaky_relu": lambda x: nn.leaky_relu(x, 0.2),
        "softmax": lambda x: torch.softmax(x, -1),
        "log_softmax": lambda x: torch.log_softmax(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
        "square root": lambda x: torch.sqrt(x * x + 1),
        "tan": torch.tan,
        "arctan": torch.atan,
        "arcsinh": torch.asinh,
    }.items():
        case(name, function, normal(3, 4))
    case("power", torch.pow, np.abs(normal(3, 4)) + 0.5, normal(4))
    case("divide", torch.div, normal(3, 4), np.abs(normal(3, 1)) + 0.5)
    case("arctan2", torch.atan2, normal(3, 4), normal(4))
    case("hypot", torch.hypot, normal(3, 4), normal(4))
    case("logaddexp", torch.logaddexp, normal(3, 4), normal(4))
    case("maximum with ties", torch.maximum, np.ones(3), np.array([0.0, 1, 2]))
    case("relu at zero", lambda x: torch.relu(x) ** 2, np.array([-1.0, 0, 2]))
    case("abs at zero", lambda x: torch.abs(x) ** 3, np.array([-1.0, 0, 2]))


def along_axes() -> None:
    for name, function in {
        "var": lambda x: torch.var(x, 1, correction=0),
        "std": lambda x: torch.std(x, 1),
        "prod": lambda x: torch.prod(x, 1),
        "cumprod": lambda x: torch.cumprod(x, 1),
        "cumsum squared": lambda x: torch.cumsum(x, 1) ** 2,
        "sort": lambda x: torch.sort(x).values ** 2,
        "diff": lambda x: torch.diff(x, n=2) ** 2,
        "norm": lambda x: torch.linalg.vector_norm(x, dim=1),
        "norm of order 3": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
    }.items():
        case(name, function, normal(3, 4))
    case("max with ties", lambda x: torch.amax(x, 1) ** 2, np.array([[1.0, 3, 3], [2, 2, 2]]))
    case("prod with zeros", lambda x: torch.prod(x, 1), np.array([[2.0, 0, 3], [0, 1, 0]]))
    case("cumprod with zeros", lambda x: torch.cumprod(x, 1), np.array([[2.0, 0, 3], [0, 1, 0]]))


def matrices() -> None:
    a, b = normal(2, 3, 3) + 2 * np.eye(3), normal(2, 3, 2)
    case("solve", torch.linalg.solve, a, b)
    for name, function in {
        "inv": torch.linalg.inv,
        "det": torch.linalg.det,
        "logabsdet": lambda x: torch.linalg.slogdet(x)[1],
        "cholesky": lambda x: torch.linalg.cholesky(definite(x)),
        "eigvalsh": lambda x: torch.linalg.eigvalsh(symmetric(x)),
        "eigenvectors": lambda x: torch.linalg.eigh(symmetric(x))[1] ** 2,
        "singular values": torch.linalg.svdvals,
        "singular vectors": lambda x: torch.linalg.svd(x, full_matrices=False)[0] ** 2,
        "nuclear norm": lambda x: torch.linalg.matrix_norm(x, "nuc"),
        "spectral norm": lambda x: torch.linalg.matrix_norm(x, 2),
        "matrix product": lambda x: x @ x,
        "trace of a square": lambda x: torch.einsum("bij,bji->b", x, x),
    }.items():
        case(name, function, a)
    case(
        "singular vectors of high ones", lambda x: torch.linalg.svd(x, False)[0] ** 2, normal(4, 2)
    )
    case(
        "singular vectors of wide ones", lambda x: torch.linalg.svd(x, False)[2] ** 2, normal(2, 4)
    )
    case("eigenvalues that repeat", lambda x: torch.linalg.eigvalsh(x) ** 3, 2 * np.eye(2))
    case("cross", lambda x, y: torch.linalg.cross(x, y), normal(2, 3), normal(2, 3))
    case("kron", torch.kron, normal(2, 2), normal(3))
    case(
        "attention",
        lambda q, k, v: torch.softmax(q @ k.mT * 0.5, -1) @ v,
        *(normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 4)),
    )


def layers() -> None:
    labels = torch.tensor([2, 0, 3])
    case(
        "softmax_cross_entropy",
        lambda z: nn.cross_entropy(z, labels, reduction="none"),
        normal(3, 4),
    )
    case(
        "sigmoid_cross_entropy",
        lambda z, p: nn.binary_cross_entropy_with_logits(z, p, reduction="none"),
        *(normal(3, 4), np.abs(normal(3, 4))),
    )
    for name, after in {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}.items():
        case(
            f"dense {name}",
            lambda x, w, b, after=after: after(x @ w + b),
            *(normal(4, 3), normal(3, 2), normal(2)),
        )
    case(
        "conv2d",
        lambda x, w, b: channels_last(
            torch.relu(nn.conv2d(channels_first(x), filters_first(w), b, stride=(2, 1)))
        ),
        *(normal(2, 6, 5, 2), normal(3, 2, 2, 3), normal(3)),
    )
    case(
        "conv of groups, dilated",
        lambda x, w: channels_last(
            nn.conv1d(channels_first(x), filters_first(w), dilation=2, groups=2)
        ),
        *(normal(2, 7, 4), normal(3, 2, 6)),
    )
    case(
        "conv_transpose",
        lambda x, w: channels_last(
            nn.conv_transpose2d(channels_first(x), filters_first(w), stride=2)
        ),
        *(normal(2, 3, 2, 3), normal(3, 2, 4, 3)),
    )
    for name, pool in (("max_pool2d", nn.max_pool2d), ("avg_pool2d", nn.avg_pool2d)):
        case(
            name,
            lambda x, pool=pool: channels_last(pool(channels_first(x), 3, 2)) ** 2,
            normal(2, 7, 6, 2),
        )


if __name__ == "__main__":
    for fill in (elementwise, along_axes, matrices, layers):
        fill()
    np.savez_compressed(Path(__file__).parent / "torch_second_order.npz", **STORED)
