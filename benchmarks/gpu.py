"""Training steps on a GPU beside a loop by hand in CuPy and beside PyTorch, and what bounds them.

    python benchmarks/gpu.py --json gpu.json

Times are those of the device between two events, behind steps that warm up: medians of a step. Each
measure stands by itself: one that fails leaves its error in the place of its figures, so that one
run on a machine with a GPU tells all that it can. Written without one: see docs/gpu.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import paceline as pl
from paceline.nn import Sequential, layers, losses, optimizers

WARM_UP, STEPS = 20, 100
CLASSES = 10
Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="a file for the figures; else they are printed only")
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument(
        "--why-not",
        action="store_true",
        help="only say why nothing can be done here; fails if it can",
    )
    args = parser.parse_args()
    why = no_gpu()
    if why:
        print(f"Nothing was done: {why}.")
    if why or args.why_not:
        sys.exit(0 if why else 1)
    found = {"python": sys.version.split()[0], **about_the_gpu()}
    for name in args.only:
        try:
            found[name] = MEASURES[name]()
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({name: found[name]}), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file, indent=1)


def no_gpu() -> str | None:
    """Why nothing can be measured here, if so."""
    try:
        import cupy
    except ImportError as error:
        return f"no CuPy ({error})"
    return None if cupy.is_available() else "CuPy finds no GPU"


def about_the_gpu() -> dict[str, Any]:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    name = properties["name"]
    return {
        "cupy": cupy.__version__,
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "device": name.decode() if isinstance(name, bytes) else str(name),
    }


def step_ms(step: Step) -> dict[str, float]:
    """The median of the device's milliseconds for a step, and of the host's."""
    import cupy

    for _ in range(WARM_UP):
        step()
    device, host = [], []
    for _ in range(STEPS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        began = time.perf_counter()
        begin.record()
        step()
        end.record()
        host.append(1e3 * (time.perf_counter() - began))
        end.synchronize()
        device.append(cupy.cuda.get_elapsed_time(begin, end))
    return {"device": statistics.median(device), "host": statistics.median(host)}


# Training steps.


def cnn() -> Any:
    tutorial = [layers.Conv2D(32, 3, activation="relu"), layers.MaxPooling2D(), layers.Flatten()]
    return Sequential([*tutorial, layers.Dense(64, activation="relu"), layers.Dense(CLASSES)])


def mlp() -> Any:
    hidden = [layers.Dense(1024, activation="relu") for _ in range(2)]
    return Sequential([*hidden, layers.Dense(CLASSES)])


class Block(layers.Layer):
    """Two convolutions around which the input goes, as in ResNet-18."""

    def __init__(self, depth: int, strides: int) -> None:
        super().__init__()
        normalized = [
            part
            for step in (strides, 1)
            for part in (
                layers.Conv2D(depth, 3, strides=step, padding="same", use_bias=False),
                layers.BatchNormalization(),
                layers.Activation("relu"),
            )
        ]
        self.convolutions = Sequential(normalized[:-1])
        self.shortcut = layers.Conv2D(depth, 1, strides=strides) if strides > 1 else None

    def call(self, inputs: Any, training: bool = False) -> Any:
        kept = inputs if self.shortcut is None else self.shortcut(inputs)
        return np.maximum(kept + self.convolutions(inputs, training=training), 0)


def resnet() -> Any:
    blocks = [Block(64 << stage, 2 if stage and not i else 1) for stage in range(4) for i in (0, 1)]
    stem = layers.Conv2D(64, 3, padding="same", activation="relu")
    return Sequential([stem, *blocks, layers.GlobalAveragePooling2D(), layers.Dense(CLASSES)])


def ours(make: Callable[[], Any], shape: tuple[int, ...], batch: int) -> dict[str, float]:
    """A step of a loop of one's own on GPU:0, on a batch that lies there."""
    strategy = pl.OneDeviceStrategy("GPU:0")
    x, y = batch_of(shape, batch)
    with strategy.scope():
        model, optimizer = make(), optimizers.SGD(0.01)

    def in_replica() -> None:
        device_x, device_y = pl.Tensor(x), pl.Tensor(y)  # uploaded once, and kept

        def step() -> None:
            with pl.GradientTape() as tape:
                logits = model(device_x, training=True)
                loss = np.mean(
                    losses.sparse_categorical_crossentropy(device_y, logits, from_logits=True)
                )
            variables = model.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        found.update(step_ms(step))

    found: dict[str, float] = {}
    strategy.run(in_replica)
    return found


def batch_of(shape: tuple[int, ...], batch: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.random((batch, *shape), dtype=np.float32), rng.integers(0, CLASSES, batch)


def mlp_by_hand(batch: int = 256, sizes: tuple[int, ...] = (784, 1024, 1024, 10)) -> Any:
    """The same MLP in bare CuPy."""
    import cupy

    x, y = (cupy.asarray(part) for part in batch_of((sizes[0],), batch))
    rng = np.random.default_rng(0)
    weights = [
        cupy.asarray(rng.normal(0, 0.05, pair).astype(np.float32))
        for pair in itertools.pairwise(sizes)
    ]
    biases = [cupy.zeros(n, np.float32) for n in sizes[1:]]
    examples = cupy.arange(batch)

    def step() -> None:
        outputs = [x]
        for i, (w, b) in enumerate(zip(weights, biases, strict=True)):
            z = outputs[-1] @ w + b
            outputs.append(cupy.maximum(z, 0) if i < len(weights) - 1 else z)
        z = outputs.pop()
        g = cupy.exp(z - z.max(axis=1, keepdims=True))
        g /= g.sum(axis=1, keepdims=True)
        g[examples, y] -= 1
        g /= batch
        for i in reversed(range(len(weights))):
            dw, db = outputs[i].T @ g, g.sum(axis=0)
            if i:
                g = (g @ weights[i].T) * (outputs[i] > 0)
            weights[i] -= 0.01 * dw
            biases[i] -= 0.01 * db

    return step_ms(step)


def in_torch(kind: str, shape: tuple[int, ...], batch: int) -> Any:
    """PyTorch eager: the CNN or the MLP."""
    import torch
    from torch import nn

    if kind == "mlp":
        sizes = (784, 1024, 1024)
        hidden = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(sizes)]
        model = nn.Sequential(*[part for pair in hidden for part in pair], nn.Linear(1024, CLASSES))
    else:
        model = nn.Sequential(
            *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            *(nn.Linear(32 * 13 * 13, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
        )
    model = model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x, y = (torch.as_tensor(part).cuda() for part in batch_of(shape, batch))
    x = x.permute(0, 3, 1, 2).contiguous() if x.ndim == 4 else x

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    for _ in range(WARM_UP):
        step()
    times = []
    for _ in range(STEPS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return {"device": statistics.median(times)}


def embedding(rows: int = 10**7, width: int = 64, batch: int = 4096) -> dict[str, float]:
    """A step of a model over one large table, of which it reads some rows."""
    strategy = pl.OneDeviceStrategy("GPU:0")
    indices = np.random.default_rng(0).integers(0, rows, (batch, 8))
    found: dict[str, float] = {}
    with strategy.scope():
        table, optimizer = layers.Embedding(rows, width), optimizers.Adagrad(0.1, sparse="lazy")

    def in_replica() -> None:
        device_indices = pl.Tensor(indices)

        def step() -> None:
            with pl.GradientTape() as tape:
                loss = np.mean(np.square(np.sum(table(device_indices), axis=1)))
            variables = table.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        found.update(step_ms(step))

    strategy.run(in_replica)
    return found


# What bounds them.


def bandwidth(size: int = 1 << 28) -> dict[str, float]:
    """GB/s of a copy, and of an update by Adam's rule, of floats that lie on the device."""
    import cupy

    from paceline.nn.optimizers.rules import AdamRule

    a, b = cupy.ones(size, np.float32), cupy.empty(size, np.float32)
    copied = step_ms(lambda: cupy.copyto(b, a))["device"]
    rule, slots = AdamRule(), [cupy.zeros(size // 8, np.float32) for _ in range(2)]
    value, gradient = a[: size // 8], b[: size // 8]
    updated = step_ms(lambda: rule.update(value, gradient, slots, 0.001, 3))["device"]
    # It reads value, gradient and two moments, and writes all but the gradient.
    rates = {"copy": 8 * size / copied / 1e6, "adam": 28 * (size // 8) / updated / 1e6}
    return {**rates, "fraction": rates["adam"] / rates["copy"]}


def products(n: int = 8192) -> dict[str, float]:
    """TFLOP/s of matrix products of float32."""
    import cupy

    a, b = (cupy.ones((n, n), np.float32) for _ in range(2))
    return {"tflops": 2 * n**3 / step_ms(lambda: a @ b)["device"] / 1e9}


def estimator_overhead(num_steps: int = 400) -> dict[str, float]:
    """Host microseconds of a step of an Estimator more than those of the loop by hand."""
    import tempfile

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        logits = mlp()(features)
        loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.01).minimize(loss))

    x, y = batch_of((784,), 4096)
    with tempfile.TemporaryDirectory() as model_dir:
        place = pl.OneDeviceStrategy("GPU:0")
        config = pl.RunConfig(model_dir, train_distribute=place, save_checkpoints_steps=10**9)
        estimator = pl.Estimator(model_fn, config=config)
        batches = pl.Dataset.from_tensor_slices((x, y)).repeat().batch(256)
        estimator.train(lambda: batches, steps=WARM_UP)
        began = time.perf_counter()
        estimator.train(lambda: batches, steps=num_steps)
        ours_us = 1e6 * (time.perf_counter() - began) / num_steps
    by_hand = 1e3 * max(mlp_by_hand().values())
    return {"estimator_us": ours_us, "by_hand_us": by_hand, "more_us": ours_us - by_hand}


IMAGE, FLAT = (28, 28, 1), (784,)
MEASURES: dict[str, Callable[[], Any]] = {
    "bandwidth": bandwidth,
    "products": products,
    "mlp": lambda: ours(mlp, FLAT, 256),
    "mlp by hand": mlp_by_hand,
    "mlp in torch": lambda: in_torch("mlp", FLAT, 256),
    "cnn 64": lambda: ours(cnn, IMAGE, 64),
    "cnn 64 in torch": lambda: in_torch("cnn", IMAGE, 64),
    "cnn 1024": lambda: ours(cnn, IMAGE, 1024),
    "cnn 1024 in torch": lambda: in_torch("cnn", IMAGE, 1024),
    "resnet": lambda: ours(resnet, (64, 64, 3), 128),
    "embedding": embedding,
    "estimator": estimator_overhead,
}


if __name__ == "__main__":
    main()
