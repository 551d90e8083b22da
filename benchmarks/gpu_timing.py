"""How large the models of `gpu.py` are, and how a step of theirs is timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

CLASSES = 10
RATE = 0.01
"""The learning rate of all models but the embedding's."""

Step = Callable[[], object]
"""A training step: it queues all of its work on the device."""


@dataclass(frozen=True)
class Sizes:
    """How large everything is, and how often it is done."""

    warm_up: int = 20
    rounds: int = 20
    steps: int = 10  # of a round
    image: tuple[int, int, int] = (28, 28, 1)
    filters: int = 32
    units: int = 64
    cnn_batches: tuple[int, int] = (64, 1024)
    mlp: tuple[int, ...] = (784, 1024, 1024, CLASSES)
    mlp_batch: int = 256
    wide: int = 8192  # of the dense layers and of the matrix product that they are measured by
    resnet_image: tuple[int, int, int] = (64, 64, 3)
    resnet_batch: int = 128
    resnet_width: int = 64
    rows: int = 10**7
    width: int = 64
    ids: tuple[int, int] = (4096, 8)
    floats: int = 1 << 28
    checkpoint_arrays: int = 100
    checkpoint_floats: int = 2_500_000  # of each array: 1 GB in all


SMALL = Sizes(
    warm_up=1,
    rounds=2,
    steps=1,
    image=(8, 8, 1),
    filters=2,
    units=4,
    cnn_batches=(2, 4),
    mlp=(6, 5, 5, CLASSES),
    mlp_batch=4,
    wide=16,
    resnet_image=(8, 8, 3),
    resnet_batch=2,
    resnet_width=2,
    rows=50,
    width=4,
    ids=(6, 3),
    floats=1 << 8,
    checkpoint_arrays=3,
    checkpoint_floats=100,
)


def batch_of(shape: tuple[int, ...], batch: int) -> tuple[np.ndarray, np.ndarray]:
    """Random examples of a shape, float32, and their classes."""
    rng = np.random.default_rng(0)
    return rng.random((batch, *shape), dtype=np.float32), rng.integers(0, CLASSES, batch)


def resnet_blocks(width: int) -> list[tuple[int, int, int]]:
    """The channels that go into each block of ResNet-18, those that leave it, and its stride."""
    depths = [width << stage for stage in range(4) for _ in range(2)]
    pairs = zip([width, *depths], depths, strict=False)
    return [(before, after, 1 if before == after else 2) for before, after in pairs]


def step_ms(step: Step, sizes: Sizes, event: Callable[[], Any] | None = None) -> dict[str, float]:
    """The medians of a step's milliseconds.

    Args:
        step: What is measured.
        sizes: How often.
        event: Makes events of another library than CuPy.

    Returns:
        `device`: from one step to the next, when they are queued one behind the other. `host`: how
        long the host is busy with queueing a step, when the device has nothing else to do.
    """
    import cupy

    def timed(num_steps: int) -> tuple[float, float]:
        begin, end = ((event or cupy.cuda.Event)() for _ in range(2))
        began = time.perf_counter()
        begin.record()
        for _ in range(num_steps):
            step()
        end.record()
        host = 1e3 * (time.perf_counter() - began)
        end.synchronize()
        elapsed = begin.elapsed_time(end) if event else cupy.cuda.get_elapsed_time(begin, end)
        return elapsed / num_steps, host

    for _ in range(sizes.warm_up):
        timed(1)
    device = [timed(sizes.steps)[0] for _ in range(sizes.rounds)]
    host = [timed(1)[1] for _ in range(sizes.rounds)]
    return {"device": statistics.median(device), "host": statistics.median(host)}


def kernels_ms(step: Step, sizes: Sizes, most: int = 10) -> dict[str, float]:
    """The kernels and copies of a step that take longest, and all others: their milliseconds.

    PyTorch's profiler tells them, which sees those of the whole process, CuPy's too.
    """
    import cupy
    from torch.profiler import ProfilerActivity, profile

    for _ in range(sizes.warm_up):
        step()
    cupy.cuda.Device().synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(sizes.rounds):
            step()
        cupy.cuda.Device().synchronize()
    found = sorted(
        ((e.self_device_time_total / 1e3 / sizes.rounds, e.key) for e in seen.key_averages()),
        reverse=True,
    )
    longest = {name: ms for ms, name in found[:most]}
    return {**longest, "all others": sum(ms for ms, _ in found[most:])}
