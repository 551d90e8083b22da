"""Write `torch.npz`: what PyTorch answers, which tests compare with where PyTorch is missing.

    python tests/peers/make_torch.py

needs PyTorch and NumPy, not paceline. Each case is stored with its inputs: `case/x0`, `case/x1`, …
went in, `case/y` came out, and `case/g0`, … are the gradients of `sum(y * cos(arange))`. The losses
of the hand-written training steps are made from seeds, for their inputs would take megabytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional as nn

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "benchmarks"))

RNG = np.random.default_rng(5)
STORED: dict[str, np.ndarray] = {"version": np.array(torch.__version__)}


def normal(*shape: int, dtype: Any = np.float64) -> np.ndarray:
    """Normal to three digits, which compress: nobody cares about the rest of them."""
    return (np.round(1024 * RNG.normal(size=shape)) / 1024).astype(dtype)


def case(name: str, function: Callable[..., Any], *inputs: np.ndarray) -> None:
    leaves = [torch.tensor(x, requires_grad=True) for x in inputs]
    y = function(*leaves)
    weights = np.cos(np.arange(float(y.numel()))).reshape(y.shape)
    (y * torch.tensor(weights, dtype=y.dtype)).sum().backward()
    STORED[f"{name}/y"] = y.detach().numpy()
    for i, (x, leaf) in enumerate(zip(inputs, leaves, strict=True)):
        STORED[f"{name}/x{i}"] = x
        STORED[f"{name}/g{i}"] = leaf.grad.numpy()


def functions() -> None:
    labels = torch.tensor([2, 0, 4, 1])
    rows = torch.tensor([[3, 0], [3, 2]])
    of_one = {
        "gelu": nn.gelu,
        "gelu approximate": lambda x: nn.gelu(x, approximate="tanh"),
        "silu": nn.silu,
        "elu": nn.elu,
        "softplus": nn.softplus,
        "leaky_relu": lambda x: nn.leaky_relu(x, 0.2),
        "sigmoid": torch.sigmoid,
        "softmax": lambda x: torch.softmax(x, -1),
        "log_softmax": lambda x: torch.log_softmax(x, -1),
        "logsumexp": lambda x: torch.logsumexp(x, 1),
        "softmax_cross_entropy": lambda z: nn.cross_entropy(z, labels, reduction="none"),
        "var": lambda x: torch.var(x, 1, correction=0),
        "std": lambda x: torch.std(x, 1),
        "cumsum": lambda x: torch.cumsum(x, 1),
        "prod": lambda x: torch.prod(x, 1),
        "sort": lambda x: torch.sort(x).values,
    }
    for name, function in of_one.items():
        case(f"function/{name}", function, normal(4, 5))
    case("function/take", lambda x: nn.embedding(rows, x), normal(5, 3))
    case(
        "function/attention",
        lambda q, k, v: nn.scaled_dot_product_attention(q, k, v, scale=0.5),
        *(normal(2, 3, 4), normal(2, 5, 4), normal(2, 5, 4)),
    )
    case(
        "function/einsum",
        lambda x, y, z: torch.einsum("bij,jk,...k->...bi", x, y, z),
        *(normal(2, 3, 4), normal(4, 5), normal(6, 5)),
    )
    for name, function in {
        "softmax_cross_entropy of probabilities": nn.cross_entropy,
        "sigmoid_cross_entropy": nn.binary_cross_entropy_with_logits,
    }.items():
        case(
            f"function/{name}",
            lambda z, p, function=function: function(z, p, reduction="none"),
            *(normal(4, 5), np.abs(normal(4, 5))),
        )
    ties = np.array([[1.0, 3, 3], [2, 2, 2]])
    case("function/ties of max", lambda x: torch.amax(x, 1), ties)
    case("function/ties of maximum", torch.maximum, np.ones(3), np.array([0.0, 1, 2]))
    case("function/relu at zero", torch.relu, np.array([-1.0, 0, 1]))
    case("function/abs at zero", torch.abs, np.array([-1.0, 0, 1]))
    case("function/power of zero", lambda x: x**0, np.array([0.0, 1]))


def channels_first(x: Any) -> Any:
    return x.permute(0, 3, 1, 2)


def channels_last(x: Any) -> Any:
    return x.permute(0, 2, 3, 1)


def conv2d(x: Any, w: Any, b: Any, strides: Any = 1, padding: str = "valid") -> Any:
    w = w.permute(3, 2, 0, 1)
    return channels_last(nn.conv2d(channels_first(x), w, b, stride=strides, padding=padding))


def kernels() -> None:
    for channels in (1, 3, 16):
        for strides in (1, 2, 3):
            case(
                f"kernel/{channels} channels, strides {strides}",
                lambda x, w, b, strides=strides: channels_last(
                    nn.max_pool2d(channels_first(conv2d(x, w, b, strides).relu()), 2, 1)
                ),
                normal(2, 9, 8, channels, dtype=np.float32),
                normal(3, 3, channels, 6, dtype=np.float32),
                normal(6, dtype=np.float32),
            )


def the_layers() -> None:
    activations = {
        "None": lambda z: z,
        "relu": torch.relu,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "softmax": lambda z: torch.softmax(z, -1),
        "gelu": nn.gelu,
    }
    for name in ("None", "relu", "tanh", "softmax", "gelu"):
        case(
            f"layer/dense {name}",
            lambda x, w, b, after=activations[name]: after(x @ w + b),
            *(normal(5, 3), normal(3, 4), normal(4)),
        )
    for strides, padding, name in (
        *((1, "valid", "None"), (1, "valid", "relu"), (2, "valid", "relu")),
        (1, "same", "sigmoid"),
    ):
        case(
            f"layer/conv2d {strides} {padding} {name}",
            lambda x, w, b, strides=strides, padding=padding, after=activations[name]: after(
                conv2d(x, w, b, strides, padding)
            ),
            *(normal(3, 7, 8, 2), normal(3, 3, 2, 4), normal(4)),
        )
    for size, strides in ((2, None), (3, 1), ((3, 2), (2, 2))):
        for name, pool in (("max", nn.max_pool2d), ("average", nn.avg_pool2d)):
            case(
                f"layer/{name} {size} {strides}",
                lambda x, pool=pool, size=size, strides=strides: channels_last(
                    pool(channels_first(x), size, strides)
                ),
                normal(2, 7, 6, 3),
            )
    case(
        "layer/layer normalization",
        lambda x, g, b: nn.layer_norm(x, (6,), g, b, eps=1e-5),
        *(normal(4, 3, 6), normal(6), normal(6)),
    )
    for shape in ((8, 3), (4, 5, 6, 3)):
        case(
            f"layer/batch normalization of rank {len(shape)}",
            lambda x, g, b, shape=shape: nn.batch_norm(
                x.reshape(-1, 3), None, None, g, b, True, eps=1e-3
            ).reshape(shape),
            *(normal(*shape), normal(3), normal(3)),
        )
    mean, variance = normal(3), normal(3) ** 2
    STORED["layer/batch normalization elsewhere/mean"] = mean
    STORED["layer/batch normalization elsewhere/variance"] = variance
    case(
        "layer/batch normalization elsewhere",
        lambda x, g, b: nn.batch_norm(
            x, torch.tensor(mean), torch.tensor(variance), g, b, False, eps=1e-3
        ),
        *(normal(8, 3), normal(3), normal(3)),
    )

    def model(x: Any, w0: Any, b0: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
        y = channels_last(nn.max_pool2d(channels_first(torch.relu(conv2d(x, w0, b0))), 2))
        return torch.relu(y.flatten(1) @ w1 + b1) @ w2 + b2

    weights = (normal(3, 3, 2, 4), normal(4), normal(36, 6), normal(6), normal(6, 3), normal(3))
    case("layer/a whole model", model, normal(5, 9, 9, 2), *weights)


def rules() -> None:
    no_epsilon = {"eps": 1e-30}
    for name, (optimizer, options) in {
        "sgd": (torch.optim.SGD, {"momentum": 0.9}),
        "sgd nesterov": (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
        "adam": (torch.optim.Adam, no_epsilon),
        "adamw": (torch.optim.AdamW, no_epsilon | {"weight_decay": 0.1}),
        "adagrad": (torch.optim.Adagrad, no_epsilon | {"initial_accumulator_value": 0.1}),
        "rmsprop": (torch.optim.RMSprop, no_epsilon | {"alpha": 0.9}),
    }.items():
        start, gradients = np.linspace(-1, 1, 7), normal(5, 7)
        value = torch.tensor(start, requires_grad=True)
        stepping = optimizer([value], lr=0.05, **options)
        for gradient in gradients:
            value.grad = torch.tensor(gradient)
            stepping.step()
        STORED[f"rule/{name}/x0"], STORED[f"rule/{name}/x1"] = start, gradients
        STORED[f"rule/{name}/y"] = value.detach().numpy()


def steps() -> None:
    import handwritten
    import torch_steps

    rng = np.random.default_rng(0)
    x = rng.random((64, 28, 28, 1)).astype(np.float32)
    x[x < 0.3] = 0  # flat background, as in images of digits: ties in every pool
    labels = rng.integers(10, size=64)
    sizes = ((784, 256, 10), (784, 1024, 1024, 10))
    made = {"cnn": torch_steps.make_cnn_step(handwritten.cnn_params(seed=3))} | {
        f"mlp {s}": torch_steps.make_mlp_step(s, handwritten.mlp_params(s, seed=3)) for s in sizes
    }
    for name, step in made.items():
        given = x if name == "cnn" else x.reshape(64, 784)
        STORED[f"step/{name}/y"] = np.array([step(given, labels) for _ in range(5)])


if __name__ == "__main__":
    for fill in (functions, kernels, the_layers, rules, steps):
        fill()
    np.savez_compressed(HERE / "torch.npz", **STORED)
