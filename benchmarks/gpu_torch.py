"""The steps of `gpu.py` in PyTorch, eager, in float32 as CuPy computes: without TF32."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from gpu_timing import CLASSES, RATE, Sizes, Step, batch_of, resnet_blocks


def mlp(sizes: Sizes) -> Step:
    from torch import nn

    pairs = itertools.pairwise(sizes.mlp[:-1])
    layers = itertools.chain(*((nn.Linear(a, b), nn.ReLU()) for a, b in pairs))
    model = nn.Sequential(*layers, nn.Linear(*sizes.mlp[-2:]))
    return of_classifier(model, sizes.mlp[:1], sizes.mlp_batch)


def cnn(sizes: Sizes, which: int) -> Step:
    from torch import nn

    rows, columns, channels = sizes.image
    flat = ((rows - 2) // 2) * ((columns - 2) // 2) * sizes.filters
    model = nn.Sequential(
        *(nn.Conv2d(channels, sizes.filters, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(flat, sizes.units), nn.ReLU(), nn.Linear(sizes.units, CLASSES)),
    )
    return of_classifier(model, sizes.image, sizes.cnn_batches[which])


def resnet(sizes: Sizes) -> Step:
    from torch import nn

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self, before: int, after: int, stride: int) -> None:
            super().__init__()
            self.convolutions = nn.Sequential(
                *(nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)),
                nn.ReLU(),
                *(nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)),
            )
            is_same = before == after
            self.shortcut = nn.Identity() if is_same else nn.Conv2d(before, after, 1, stride)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(self.shortcut(x) + self.convolutions(x))

    width = sizes.resnet_width
    blocks = [Block(*block) for block in resnet_blocks(width)]
    model = nn.Sequential(
        *(nn.Conv2d(sizes.resnet_image[2], width, 3, 1, 1), nn.ReLU(), *blocks),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, CLASSES)),
    )
    return of_classifier(model, sizes.resnet_image, sizes.resnet_batch)


def embedding(sizes: Sizes) -> Step:
    import torch
    from torch import nn

    table = nn.Embedding(sizes.rows, sizes.width, sparse=True).cuda()
    optimizer = torch.optim.Adagrad(table.parameters(), lr=0.1)
    indices = np.random.default_rng(0).integers(0, sizes.rows, sizes.ids)
    device_indices = torch.as_tensor(indices).cuda()

    def step() -> None:
        optimizer.zero_grad()
        table(device_indices).sum(dim=1).square().mean().backward()
        optimizer.step()

    return step


def of_classifier(model: Any, shape: tuple[int, ...], batch: int) -> Step:
    """A model's step by SGD, on images as PyTorch takes them, or on vectors."""
    import torch
    from torch.nn import functional

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    model = model.cuda()
    x, y = (torch.as_tensor(part).cuda() for part in batch_of(shape, batch))
    if len(shape) > 1:
        x = x.permute(0, 3, 1, 2).contiguous()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def event() -> Any:
    """One that tells the time."""
    import torch

    return torch.cuda.Event(enable_timing=True)
