"""The same training steps in PyTorch, eager, on one thread, as an experienced user writes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TypeAlias

import handwritten
import numpy as np
import torch
from torch import nn
from workloads import WORKLOADS, Data, Loop, loop_of

Step: TypeAlias = Callable[[np.ndarray, np.ndarray], float]


class Cnn(nn.Module):
    """Conv2D(32, 3x3, relu), MaxPool 2x2, Flatten, Dense(64, relu), Dense(10).

    Features are flattened in the order height, width, channels, so that the weights of the dense
    layer mean the same as in the other implementations.
    """

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 32, 3)
        self.pool = nn.MaxPool2d(2)
        self.dense_0 = nn.Linear(13 * 13 * 32, 64)
        self.dense_1 = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(torch.relu(self.conv(x)))
        flat = pooled.permute(0, 2, 3, 1).flatten(1)
        logits: torch.Tensor = self.dense_1(torch.relu(self.dense_0(flat)))
        return logits


class Mlp(nn.Module):
    """Dense layers with relu between them."""

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair) for pair in pairwise(sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        logits: torch.Tensor = self.layers[-1](x)
        return logits


def make_loop(name: str, data: Data) -> Loop:
    """The loop of a workload; see workloads.py."""
    sizes = WORKLOADS[name].sizes
    if sizes:
        return loop_of(make_mlp_step(sizes, handwritten.mlp_params(sizes)), data)
    return loop_of(make_cnn_step(handwritten.cnn_params()), data)


def make_cnn_step(
    params: Mapping[str, np.ndarray], learning_rate: float = 0.01, channels_last: bool = False
) -> Step:
    """The tutorial CNN from weights as `handwritten.cnn_params` makes them.

    Args:
        params: Initial weights; they are copied.
        learning_rate: Of plain SGD.
        channels_last: Whether images lie in memory with their channels last.

    Returns:
        `step(x, y)`: trains on images (batch, 28, 28, 1) and labels (batch,), returns the loss.
    """
    model = Cnn()
    state = {
        "conv.weight": torch.tensor(params["conv/w"]).permute(3, 2, 0, 1),
        "conv.bias": torch.tensor(params["conv/b"]),
    }
    model.load_state_dict(state | _dense_state(params, "dense_{}", 2))
    memory_format = torch.channels_last if channels_last else torch.contiguous_format
    model.to(memory_format=memory_format)  # type: ignore[call-overload]

    def images(x: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(x).permute(0, 3, 1, 2).contiguous(memory_format=memory_format)

    return _step(model, images, learning_rate)


def make_mlp_step(
    sizes: Sequence[int], params: Mapping[str, np.ndarray], learning_rate: float = 0.01
) -> Step:
    """An MLP from weights as `handwritten.mlp_params` makes them; see `make_cnn_step`."""
    model = Mlp(sizes)
    model.load_state_dict(_dense_state(params, "layers.{}", len(sizes) - 1))
    return _step(model, torch.from_numpy, learning_rate)


def _dense_state(
    params: Mapping[str, np.ndarray], layer: str, num_layers: int
) -> dict[str, torch.Tensor]:
    """The dense layers' weights under PyTorch's names; `layer` is the pattern of those names."""
    state = {}
    for index in range(num_layers):
        name = layer.format(index)
        state[f"{name}.weight"] = torch.tensor(params[f"dense_{index}/w"]).T
        state[f"{name}.bias"] = torch.tensor(params[f"dense_{index}/b"])
    return state


def _step(
    model: nn.Module, features: Callable[[np.ndarray], torch.Tensor], learning_rate: float
) -> Step:
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    loss_function = nn.CrossEntropyLoss()

    def step(x: np.ndarray, y: np.ndarray) -> float:
        optimizer.zero_grad()
        loss = loss_function(model(features(x)), torch.from_numpy(y).long())
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return step
