"""The hand-written training steps are real: right gradients, and PyTorch's losses (stored)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from .loading import load

TORCH = np.load(Path(__file__).parents[1] / "peers" / "torch.npz")
MLPS = [(784, 256, 10), (784, 1024, 1024, 10)]


handwritten = load("handwritten")


def batch(shape: tuple[int, ...], dtype: type, classes: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.random(shape).astype(dtype)
    x[x < 0.3] = 0  # flat background, as in images of digits: ties in every pool
    return x, rng.integers(classes, size=shape[0])


def losses(step: Callable[[np.ndarray, np.ndarray], float], x: np.ndarray, y: np.ndarray) -> list:
    return [step(x, y) for _ in range(5)]


def cross_entropy(logits: np.ndarray, y: np.ndarray) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return float(-log_p[np.arange(len(y)), y].mean())


def plain_cnn_loss(params: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    w = params["conv/w"]
    rows, columns = x.shape[1] - 2, x.shape[2] - 2
    z = params["conv/b"] + sum(
        x[:, p : p + rows, q : q + columns] * w[p, q] for p in range(3) for q in range(3)
    )
    pools = np.maximum(z, 0).reshape(len(x), rows // 2, 2, columns // 2, 2, -1)
    flat = pools.max(axis=(2, 4)).reshape(len(x), -1)
    return plain_mlp_loss(params, flat, y)


def plain_mlp_loss(params: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray) -> float:
    num_layers = sum(name.startswith("dense") for name in params) // 2
    for i in range(num_layers):
        x = x @ params[f"dense_{i}/w"] + params[f"dense_{i}/b"]
        x = np.maximum(x, 0) if i < num_layers - 1 else x
    return cross_entropy(x, y)


def assert_update_is_the_gradient(
    model: Callable, loss: Callable, params: dict[str, np.ndarray], x: np.ndarray, y: np.ndarray
) -> None:
    """One step with rate 1 subtracts the gradient: compare with central differences."""
    rng = np.random.default_rng(1)
    params = {
        name: value + 0.1 * rng.standard_normal(value.shape) for name, value in params.items()
    }
    step = model(params)
    assert step(x, y) == pytest.approx(loss(params, x, y), rel=1e-12)
    for name, value in params.items():
        gradient = value - step.params[name]
        for index in rng.permutation(value.size)[:40]:
            position = np.unravel_index(index, value.shape)
            difference = 0.0
            for sign in (1, -1):
                moved = {**params, name: value.copy()}
                moved[name][position] += sign * 1e-6
                difference += sign * loss(moved, x, y) / 2e-6
            assert gradient[position] == pytest.approx(difference, abs=1e-7), (name, position)


def test_cnn_step_subtracts_the_gradient() -> None:
    x, y = batch((3, 8, 10, 1), np.float64, classes=4)
    params = handwritten.cnn_params(image=(8, 10), filters=5, hidden=6, classes=4, dtype=np.float64)

    def model(params: dict[str, np.ndarray]) -> Callable:
        return handwritten.HandwrittenCnn(params, image=(8, 10), batch=3, learning_rate=1)

    assert_update_is_the_gradient(model, plain_cnn_loss, params, x, y)


def test_mlp_step_subtracts_the_gradient() -> None:
    x, y = batch((3, 7), np.float64, classes=4)
    params = handwritten.mlp_params((7, 6, 5, 4), dtype=np.float64)

    def model(params: dict[str, np.ndarray]) -> Callable:
        return handwritten.HandwrittenMlp(params, batch=3, learning_rate=1)

    assert_update_is_the_gradient(model, plain_mlp_loss, params, x, y)


def test_cnn_loses_as_in_pytorch() -> None:
    x, y = batch((64, 28, 28, 1), np.float32, classes=10)
    ours = losses(handwritten.HandwrittenCnn(handwritten.cnn_params(seed=3)), x, y)
    np.testing.assert_allclose(ours, TORCH["step/cnn/y"], rtol=1e-4)
    assert ours[-1] < ours[0]


@pytest.mark.parametrize("sizes", MLPS, ids=str)
def test_mlp_loses_as_in_pytorch(sizes: tuple[int, ...]) -> None:
    x, y = batch((64, 28, 28, 1), np.float32, classes=10)
    ours = losses(
        handwritten.HandwrittenMlp(handwritten.mlp_params(sizes, seed=3)), x.reshape(64, 784), y
    )
    np.testing.assert_allclose(ours, TORCH[f"step/mlp {sizes}/y"], rtol=1e-4)
    assert ours[-1] < ours[0]
