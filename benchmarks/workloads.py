"""The models and data that training steps are measured on, and what a measured loop is.

NumPy is all that this file needs: it serves interpreters without paceline too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

LEARNING_RATE = 0.01


@dataclass(frozen=True)
class Workload:
    """A classifier of ten classes, trained by plain SGD.

    Attributes:
        shape: Of one example.
        batch: Examples in a step.
        sizes: Of the layers of an MLP, the input's included; empty for the tutorial's CNN.
    """

    shape: tuple[int, ...]
    batch: int = 64
    sizes: tuple[int, ...] = ()


WORKLOADS = {
    "cnn": Workload((28, 28, 1)),
    "mlp": Workload((784,), sizes=(784, 256, 10)),
    "mlp-large": Workload((784,), sizes=(784, 1024, 1024, 10)),
    "mlp-tiny": Workload((16,), batch=8, sizes=(16, 16, 10)),
}


class Data:
    """Examples and labels, and shuffled batches of them by plain indexing."""

    def __init__(self, workload: Workload, num_examples: int = 4096) -> None:
        rng = np.random.default_rng(0)
        self.x = rng.random((num_examples, *workload.shape), dtype=np.float32)
        self.y = rng.integers(0, 10, num_examples)
        self._batches = self._forever(rng, workload.batch)

    def _forever(self, rng: np.random.Generator, batch: int) -> Iterator[np.ndarray]:
        while True:
            yield from rng.permutation(len(self.x)).reshape(-1, batch)

    def batch(self) -> tuple[np.ndarray, np.ndarray]:
        index = next(self._batches)
        return self.x[index], self.y[index]


Loop: TypeAlias = Callable[[int, Callable[[], object]], object]
"""`loop(num_steps, after_step)` makes as many steps and calls `after_step` after each."""


def loop_of(step: Callable[[np.ndarray, np.ndarray], object], data: Data) -> Loop:
    """The loop that one writes around `step(x, y)`."""

    def loop(num_steps: int, after_step: Callable[[], object]) -> None:
        for _ in range(num_steps):
            step(*data.batch())
            after_step()

    return loop


def measure(loop: Loop, num_steps: int) -> tuple[list[float], float]:
    """Make `num_steps` steps, behind one more that is not counted.

    Returns:
        The seconds of each, and the processor seconds of one on average, all threads.
    """
    marks: list[float] = []
    cpu: list[float] = []

    def after_step() -> None:
        if len(marks) in (0, num_steps):
            cpu.append(time.process_time())
        marks.append(time.perf_counter())

    loop(num_steps + 1, after_step)
    return np.diff(marks).tolist(), (cpu[1] - cpu[0]) / num_steps
