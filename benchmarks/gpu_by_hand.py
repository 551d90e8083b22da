"""The steps of `gpu.py` by hand, in bare CuPy and in PyTorch: what ours are compared with.

Written as somebody writes them who wants them fast and short: in place where that is easy, with no
kernels of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

CLASSES = 10
RATE = 0.01
Step = Callable[[], object]


def batch_of(shape: tuple[int, ...], batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((batch, *shape), dtype=np.float32), rng.integers(0, CLASSES, batch)


def weights_of(*shapes: tuple[int, ...]) -> tuple[list[Any], list[Any]]:
    """Small random weights on the device, and biases."""
    import cupy

    rng = np.random.default_rng(0)
    weights = [cupy.asarray(rng.normal(0, 0.05, shape).astype(np.float32)) for shape in shapes]
    return weights, [cupy.zeros(shape[-1], np.float32) for shape in shapes]


def logits_gradient(z: Any, y: Any, examples: Any) -> Any:
    """That of the mean cross-entropy."""
    import cupy

    g = cupy.exp(z - z.max(axis=1, keepdims=True))
    g /= g.sum(axis=1, keepdims=True)
    g[examples, y] -= 1
    g /= len(z)
    return g


def descend(weight: Any, bias: Any, x: Any, g: Any) -> None:
    weight -= RATE * (x.T @ g)
    bias -= RATE * g.sum(axis=0)


def mlp(batch: int, sizes: tuple[int, ...]) -> Step:
    import cupy

    x, y = (cupy.asarray(part) for part in batch_of((sizes[0],), batch))
    weights, biases = weights_of(*itertools.pairwise(sizes))
    examples = cupy.arange(batch)

    def step() -> None:
        outputs = [x]
        for w, b in zip(weights[:-1], biases[:-1], strict=True):
            outputs.append(cupy.maximum(outputs[-1] @ w + b, 0))
        g = logits_gradient(outputs[-1] @ weights[-1] + biases[-1], y, examples)
        for i in reversed(range(len(weights))):
            before = g
            if i:
                g = (g @ weights[i].T) * (outputs[i] > 0)
            descend(weights[i], biases[i], outputs[i], before)

    return step


def cnn(batch: int, image: tuple[int, int, int], filters: int, units: int) -> Step:
    """3 x 3 convolution, relu, 2 x 2 max-pool, two dense layers."""
    import cupy

    x, y = (cupy.asarray(part) for part in batch_of(image, batch))
    rows, columns, channels = image[0] - 2, image[1] - 2, image[2]
    half = (batch, rows // 2, columns // 2, filters)
    flat = half[1] * half[2] * filters
    shapes = (9 * channels, filters), (flat, units), (units, CLASSES)
    (wc, w1, w2), (bc, b1, b2) = weights_of(*shapes)
    examples = cupy.arange(batch)
    kept = (slice(None), slice(0, 2 * half[1]), slice(0, 2 * half[2]))

    def step() -> None:
        strides = (*x.strides[:3], *x.strides[1:])
        windows = (batch, rows, columns, 3, 3, channels)
        view = cupy.lib.stride_tricks.as_strided(x, windows, strides)
        patches = view.reshape(batch * rows * columns, 9 * channels)
        c = cupy.maximum(patches @ wc + bc, 0).reshape(batch, rows, columns, filters)
        cells = c[kept].reshape(batch, half[1], 2, half[2], 2, filters)
        pooled = cells.max(axis=(2, 4))
        h0 = pooled.reshape(batch, flat)
        h1 = cupy.maximum(h0 @ w1 + b1, 0)
        g2 = logits_gradient(h1 @ w2 + b2, y, examples)
        g1 = (g2 @ w2.T) * (h1 > 0)
        g0 = (g1 @ w1.T).reshape(half)[:, :, None, :, None]
        most = pooled[:, :, None, :, None]
        gc = cupy.zeros(c.shape, np.float32)
        gc[kept] = (g0 * ((cells == most) & (cells > 0))).reshape(c[kept].shape)
        descend(w2, b2, h1, g2)
        descend(w1, b1, h0, g1)
        descend(wc, bc, patches, gc.reshape(len(patches), filters))

    return step


def embedding(rows: int, width: int, ids: tuple[int, int]) -> Step:
    """Adagrad of the rows that are read; atomic additions, and a wait for the number of rows."""
    import cupy

    table = cupy.zeros((rows, width), np.float32)
    table += 0.01
    sums = cupy.zeros((rows, width), np.float32)
    sums += 0.1
    indices = cupy.asarray(np.random.default_rng(0).integers(0, rows, ids))

    def step() -> None:
        found = table[indices].sum(axis=1)
        g = cupy.broadcast_to((2 / found.size * found)[:, None], (*ids, width))
        own, places = cupy.unique(indices, return_inverse=True)
        gradient = cupy.zeros((len(own), width), np.float32)
        np.add.at(gradient, places.reshape(-1), g.reshape(-1, width))
        total = sums[own] + gradient * gradient
        sums[own] = total
        table[own] -= 0.1 * gradient / cupy.sqrt(total + 1e-7)

    return step


# PyTorch, eager.


def in_torch(kind: str, batch: int, sizes: Any) -> tuple[Step, Callable[[], Any]]:
    """A step, and what makes events that tell the time.

    Args:
        kind: 'mlp', 'cnn' or 'embedding'.
        batch: How many examples.
        sizes: As the function of that name takes them, behind the batch.
    """
    import torch
    from torch import nn

    def event() -> Any:
        return torch.cuda.Event(enable_timing=True)

    if kind == "embedding":
        rows, width, ids = sizes
        table = nn.Embedding(rows, width, sparse=True).cuda()
        sparse = torch.optim.Adagrad(table.parameters(), lr=0.1)
        indices = torch.randint(0, rows, ids).cuda()

        def look_up() -> None:
            sparse.zero_grad()
            table(indices).sum(dim=1).square().mean().backward()
            sparse.step()

        return look_up, event
    if kind == "mlp":
        (widths,) = sizes
        layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(widths[:-1])]
        model = nn.Sequential(*itertools.chain(*layers), nn.Linear(*widths[-2:])).cuda()
        x, y = (torch.as_tensor(part).cuda() for part in batch_of((widths[0],), batch))
    else:
        image, filters, units = sizes
        flat = ((image[0] - 2) // 2) * ((image[1] - 2) // 2) * filters
        model = nn.Sequential(
            *(nn.Conv2d(image[2], filters, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(flat, units), nn.ReLU(), nn.Linear(units, CLASSES)),
        ).cuda()
        x, y = (torch.as_tensor(part).cuda() for part in batch_of(image, batch))
        x = x.permute(0, 3, 1, 2).contiguous()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step, event
