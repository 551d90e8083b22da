"""Training steps on a GPU beside a loop by hand in CuPy and beside PyTorch, and what bounds them.

    python benchmarks/gpu.py --small                # does everything run? some seconds
    python benchmarks/gpu.py --json gpu.json

Times are those of the device between two events, behind steps that warm up: medians of a step. Each
measure stands by itself: one that fails leaves its error in the place of its figures, so that one
run on a machine with a GPU tells all that it can. Small, it runs in the tests, on a stand-in for
CuPy; it has run on no GPU so far: see docs/gpu.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import gpu_by_hand
import numpy as np
from gpu_by_hand import CLASSES, Step, batch_of

import paceline as pl
from paceline.checkpoint import Saver, keep_last, save
from paceline.nn import Sequential, layers, losses, optimizers
from paceline.nn.optimizers.rules import AdamRule
from paceline.strategies import Download, RuleStep, current_store


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    warm_up: int = 20
    steps: int = 100
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
    steps=2,
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


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", help="a file for the figures; else they are printed only")
    parser.add_argument("--only", nargs="+", choices=list(MEASURES), default=list(MEASURES))
    parser.add_argument("--small", action="store_true", help="sizes that say nothing of speed")
    parser.add_argument(
        "--why-not",
        action="store_true",
        help="only say why nothing can be done here; fails if it can",
    )
    args = parser.parse_args(given)
    why = no_gpu()
    if why:
        print(f"Nothing was done: {why}.")
    if why or args.why_not:
        sys.exit(0 if why else 1)
    sizes = SMALL if args.small else Sizes()
    found = {"python": sys.version.split()[0], **about_the_gpu()}
    for name in args.only:
        try:
            found[name] = MEASURES[name](sizes)
        except Exception as error:
            found[name] = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps({name: found[name]}), flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(found, file, indent=1)
    return found


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


def step_ms(step: Step, sizes: Sizes, event: Callable[[], Any] | None = None) -> dict[str, float]:
    """The medians of a step's milliseconds on the device and of those that the host is busy.

    Args:
        step: What is measured.
        sizes: How often.
        event: Makes events of another library than CuPy.
    """
    import cupy

    for _ in range(sizes.warm_up):
        step()
    device, host = [], []
    for _ in range(sizes.steps):
        begin, end = ((event or cupy.cuda.Event)() for _ in range(2))
        began = time.perf_counter()
        begin.record()
        step()
        end.record()
        host.append(1e3 * (time.perf_counter() - began))
        end.synchronize()
        elapsed = begin.elapsed_time(end) if event else cupy.cuda.get_elapsed_time(begin, end)
        device.append(elapsed)
    return {"device": statistics.median(device), "host": statistics.median(host)}


# Training steps.


def dense_layers(*widths: int) -> Sequential:
    hidden = [layers.Dense(n, activation="relu") for n in widths[:-1]]
    return Sequential([*hidden, layers.Dense(widths[-1])])


def cnn(sizes: Sizes) -> Sequential:
    convolution = layers.Conv2D(sizes.filters, 3, activation="relu")
    dense = [layers.Dense(sizes.units, activation="relu"), layers.Dense(CLASSES)]
    return Sequential([convolution, layers.MaxPooling2D(), layers.Flatten(), *dense])


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


def resnet(sizes: Sizes) -> Sequential:
    places = [(stage, i) for stage in range(4) for i in (0, 1)]
    blocks = [Block(sizes.resnet_width << n, 2 if n and not i else 1) for n, i in places]
    stem = layers.Conv2D(sizes.resnet_width, 3, padding="same", activation="relu")
    return Sequential([stem, *blocks, layers.GlobalAveragePooling2D(), layers.Dense(CLASSES)])


def ours(
    sizes: Sizes, make: Callable[[], Any], shape: tuple[int, ...], batch: int
) -> dict[str, float]:
    """A step of a loop of one's own on GPU:0, on a batch that lies there."""
    strategy = pl.OneDeviceStrategy("GPU:0")
    x, y = batch_of(shape, batch)
    found: dict[str, float] = {}
    with strategy.scope():
        model, optimizer = make(), optimizers.SGD(0.01)

    def in_replica() -> None:
        device_x, device_y = pl.Tensor(x), pl.Tensor(y)  # uploaded once, and kept

        found.update(step_ms(lambda: train(model, optimizer, device_x, device_y), sizes))

    strategy.run(in_replica)
    return found


def train(model: Any, optimizer: Any, x: Any, y: Any) -> None:
    """A step of a classifier, in a replica."""
    with pl.GradientTape() as tape:
        logits = model(x, training=True)
        loss = np.mean(losses.sparse_categorical_crossentropy(y, logits, from_logits=True))
    variables = model.trainable_variables
    gradients = tape.gradient(loss, variables)
    optimizer.apply_gradients(zip(gradients, variables, strict=True))


def shared_card(sizes: Sizes) -> dict[str, float]:
    """A step of two replicas that share a card, and of a single one with the batches of both."""
    found = {}
    for name, devices in (("one", ["GPU:0"]), ("two", ["GPU:0", "GPU:0:1"])):
        batch = 2 * sizes.mlp_batch // len(devices)
        for what, ms in of_replicas(sizes, devices, batch).items():
            found[f"{name}, {what}"] = ms
    return found


def of_replicas(sizes: Sizes, devices: list[str], batch: int) -> dict[str, float]:
    """A step of the MLP in replicas, each on a batch of its own that lies there."""
    strategy = pl.MirroredStrategy(devices)
    x, y = batch_of(sizes.mlp[:1], batch)
    with strategy.scope():
        model, optimizer = dense_layers(*sizes.mlp[1:]), optimizers.SGD(0.01)
    batches = strategy.run(lambda: (pl.Tensor(x), pl.Tensor(y)))
    return step_ms(lambda: strategy.run(train, (model, optimizer, *batches)), sizes)


def our_cnn(sizes: Sizes, which: int) -> dict[str, float]:
    return ours(sizes, lambda: cnn(sizes), sizes.image, sizes.cnn_batches[which])


def our_mlp(sizes: Sizes) -> dict[str, float]:
    return ours(sizes, lambda: dense_layers(*sizes.mlp[1:]), sizes.mlp[:1], sizes.mlp_batch)


def our_resnet(sizes: Sizes) -> dict[str, float]:
    return ours(sizes, lambda: resnet(sizes), sizes.resnet_image, sizes.resnet_batch)


def our_embedding(sizes: Sizes) -> dict[str, float]:
    """A step of a model over one large table, of which it reads some rows."""
    strategy = pl.OneDeviceStrategy("GPU:0")
    indices = np.random.default_rng(0).integers(0, sizes.rows, sizes.ids)
    found: dict[str, float] = {}
    with strategy.scope():
        table = layers.Embedding(sizes.rows, sizes.width)
        optimizer = optimizers.Adagrad(0.1, sparse="lazy")

    def in_replica() -> None:
        device_indices = pl.Tensor(indices)

        def step() -> None:
            with pl.GradientTape() as tape:
                loss = np.mean(np.square(np.sum(table(device_indices), axis=1)))
            variables = table.trainable_variables
            gradients = tape.gradient(loss, variables)
            optimizer.apply_gradients(zip(gradients, variables, strict=True))

        found.update(step_ms(step, sizes))

    strategy.run(in_replica)
    return found


def cnn_by_hand(sizes: Sizes, which: int) -> dict[str, float]:
    step = gpu_by_hand.cnn(sizes.cnn_batches[which], sizes.image, sizes.filters, sizes.units)
    return step_ms(step, sizes)


def mlp_by_hand(sizes: Sizes) -> dict[str, float]:
    return step_ms(gpu_by_hand.mlp(sizes.mlp_batch, sizes.mlp), sizes)


def embedding_by_hand(sizes: Sizes) -> dict[str, float]:
    return step_ms(gpu_by_hand.embedding(sizes.rows, sizes.width, sizes.ids), sizes)


def in_torch(sizes: Sizes, kind: str, batch: int, *arguments: Any) -> dict[str, float]:
    step, event = gpu_by_hand.in_torch(kind, batch, arguments)
    return step_ms(step, sizes, event)


def cnn_in_torch(sizes: Sizes, which: int) -> dict[str, float]:
    batch = sizes.cnn_batches[which]
    return in_torch(sizes, "cnn", batch, sizes.image, sizes.filters, sizes.units)


# What bounds them.


def bandwidth(sizes: Sizes) -> dict[str, float]:
    """GB/s of a copy, and of an update by Adam's rule, of floats that lie on the device."""
    import cupy

    size, part = sizes.floats, sizes.floats // 8
    a, b = cupy.ones(size, np.float32), cupy.empty(size, np.float32)
    copied = step_ms(lambda: cupy.copyto(b, a), sizes)["device"]
    value, gradient = a[:part], b[:part]
    slots = [cupy.zeros(part, np.float32) for _ in range(2)]
    how = RuleStep(AdamRule(), 0.001, 3)
    updated = step_ms(lambda: how.change(value, gradient, slots), sizes)["device"]
    # It reads value, gradient and two moments, and writes all but the gradient.
    rates = {"copy": 8 * size / copied / 1e6, "adam": 28 * part / updated / 1e6}
    return {**rates, "fraction": rates["adam"] / rates["copy"]}


def products(sizes: Sizes) -> dict[str, float]:
    """TFLOP/s of a matrix product of float32, and of a step of two dense layers of its size."""
    import cupy

    n = sizes.wide
    a, b = (cupy.ones((n, n), np.float32) for _ in range(2))
    flops = 2 * n**3 / 1e9
    alone = flops / step_ms(lambda: a @ b, sizes)["device"]
    # Forward and for the weights of both, and for the inputs of the second: five products.
    in_layers = 5 * flops / ours(sizes, lambda: dense_layers(n, n), (n,), n)["device"]
    return {"product": alone, "layers": in_layers, "fraction": in_layers / alone}


def estimator_overhead(sizes: Sizes) -> dict[str, float]:
    """Host microseconds of a step of an Estimator more than those of the loop by hand."""
    num_steps = 4 * sizes.steps

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        logits = dense_layers(*sizes.mlp[1:])(features)
        loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.01).minimize(loss))

    x, y = batch_of(sizes.mlp[:1], 16 * sizes.mlp_batch)
    with tempfile.TemporaryDirectory() as model_dir:
        place = pl.OneDeviceStrategy("GPU:0")
        config = pl.RunConfig(model_dir, train_distribute=place, save_checkpoints_steps=10**9)
        estimator = pl.Estimator(model_fn, config=config)
        batches = pl.Dataset.from_tensor_slices((x, y)).repeat().batch(sizes.mlp_batch)
        times = []
        # Beginning and ending a training takes the same in both.
        for steps in (sizes.warm_up, num_steps, 2 * num_steps):
            began = time.perf_counter()
            estimator.train(lambda: batches, steps=steps)
            times.append(time.perf_counter() - began)
        ours_us = 1e6 * (times[2] - times[1]) / num_steps
    by_hand = 1e3 * max(mlp_by_hand(sizes).values())
    return {"estimator_us": ours_us, "by_hand_us": by_hand, "more_us": ours_us - by_hand}


def checkpoint(sizes: Sizes) -> dict[str, float]:
    """Milliseconds by which a save holds up a run: those of its start, and of the update behind it.

    Both are waited for, on the host and on the card; `save` is a save that the run waits for.
    """
    import cupy

    shape = (sizes.checkpoint_floats,)
    place = pl.OneDeviceStrategy("GPU:0")
    with place.scope(), tempfile.TemporaryDirectory() as folder:
        for i in range(sizes.checkpoint_arrays):
            pl.get_variable(f"array_{i}", shape, initializer=1.0)
        store = current_store()

        def update() -> None:
            for variable in reversed(store.trainable_variables()):
                array = variable.leaf(0).writable()
                array *= 0.999

        def updated_ms(before: Callable[[], None]) -> float:
            began = time.perf_counter()
            before()
            place.run(update)
            cupy.cuda.Device(0).synchronize()
            return 1e3 * (time.perf_counter() - began)

        began = time.perf_counter()
        save(f"{folder}/at_once", 0, store.saved_values())
        at_once = 1e3 * (time.perf_counter() - began)
        plain, with_save = [], []
        with Saver(f"{folder}/saver", keep_last(1)) as saver:

            def start() -> None:
                arrays = store.saved_arrays()
                store.lend(saver.start(len(plain), arrays, download=Download))

            for _ in range(5):
                plain.append(updated_ms(lambda: None))
                with_save.append(updated_ms(start))
                saver.wait()
    blocked = statistics.median(with_save) - statistics.median(plain)
    return {"save": at_once, "blocked": blocked, "fraction": blocked / at_once}


MEASURES: dict[str, Callable[[Sizes], Any]] = {
    "bandwidth": bandwidth,
    "products": products,
    "mlp": our_mlp,
    "mlp by hand": mlp_by_hand,
    "mlp in torch": lambda sizes: in_torch(sizes, "mlp", sizes.mlp_batch, sizes.mlp),
    "cnn 64": lambda sizes: our_cnn(sizes, 0),
    "cnn 64 by hand": lambda sizes: cnn_by_hand(sizes, 0),
    "cnn 64 in torch": lambda sizes: cnn_in_torch(sizes, 0),
    "cnn 1024": lambda sizes: our_cnn(sizes, 1),
    "cnn 1024 by hand": lambda sizes: cnn_by_hand(sizes, 1),
    "cnn 1024 in torch": lambda sizes: cnn_in_torch(sizes, 1),
    "resnet": our_resnet,
    "embedding": our_embedding,
    "embedding by hand": embedding_by_hand,
    "embedding in torch": lambda sizes: in_torch(
        sizes, "embedding", 0, sizes.rows, sizes.width, sizes.ids
    ),
    "shared card": shared_card,
    "estimator": estimator_overhead,
    "checkpoint": checkpoint,
}


if __name__ == "__main__":
    main()
