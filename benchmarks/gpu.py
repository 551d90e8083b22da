"""Training steps on a GPU beside a loop by hand in CuPy and beside PyTorch, and what bounds them.

    python benchmarks/gpu.py --small                # does everything run? some seconds
    python benchmarks/gpu.py --json gpu.json

Times are medians, by events of the device, behind steps that warm up; data are random and lie on
the device. At the end is a table, and what was wanted beside what was found. Each measure stands by
itself: one that fails leaves its error in the place of its figures, so that one run on a machine
with a GPU tells all that it can. Small, it runs in the tests, on a stand-in for CuPy; it has run on
no GPU so far: see docs/gpu.md.

mlp          784-1024-1024-10, batch 256
cnn          3 x 3 convolution of 28 x 28, pool, two dense layers, batch 64 and 1024
resnet       the blocks of ResNet-18, images of 64 x 64, batch 128
embedding    32768 rows of a table of 10^7 x 64, by Adagrad
kernels      of our step: which kernels take longest (PyTorch's profiler sees them)
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import gpu_by_hand
import gpu_ours
import gpu_torch
import numpy as np
from gpu_timing import RATE, SMALL, Sizes, Step, batch_of, kernels_ms, step_ms

import paceline as pl
from paceline.checkpoint import Saver, keep_last, save
from paceline.nn import losses, optimizers
from paceline.nn.optimizers.rules import AdamRule
from paceline.strategies import Download, RuleStep, current_store


def main(given: Sequence[str] | None = None) -> dict[str, Any]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
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
        give_back_memory()
        if args.json:  # at once: what comes next may end the process
            with open(args.json, "w") as file:
                json.dump(found, file, indent=1)
    print("", *report(found), sep="\n")
    return found


def no_gpu() -> str | None:
    """Why nothing can be measured here, if so."""
    try:
        import cupy
    except ImportError as error:
        return f"no CuPy ({error}); pip install cupy-cuda13x, or cupy-cuda12x beside CUDA 12"
    return None if cupy.is_available() else "CuPy finds no GPU"


def give_back_memory() -> None:
    """What CuPy and PyTorch keep of the memory that they have taken, so that the next has it."""
    import cupy

    gc.collect()
    cupy.get_default_memory_pool().free_all_blocks()
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.cuda.empty_cache()


def about_the_gpu() -> dict[str, Any]:
    import cupy

    properties = cupy.cuda.runtime.getDeviceProperties(0)
    name = properties["name"]
    return {
        "cupy": cupy.__version__,
        "cuda": cupy.cuda.runtime.runtimeGetVersion(),
        "device": name.decode() if isinstance(name, bytes) else str(name),
    }


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
    measure = partial(step_ms, sizes=sizes)
    layers = partial(gpu_ours.dense_layers, n, n)
    in_layers = 5 * flops / gpu_ours.of_classifier(layers, (n,), n, measure)["device"]
    return {"product": alone, "layers": in_layers, "fraction": in_layers / alone}


def estimator_overhead(sizes: Sizes) -> dict[str, float]:
    """Host microseconds of a step of an Estimator more than those of the loop by hand."""
    num_steps = 4 * sizes.steps * sizes.rounds

    def model_fn(features: Any, labels: Any, mode: str) -> Any:
        logits = gpu_ours.dense_layers(*sizes.mlp[1:])(features)
        loss = np.mean(losses.sparse_categorical_crossentropy(labels, logits, from_logits=True))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(RATE).minimize(loss))

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
    by_hand = 1e3 * max(step_ms(gpu_by_hand.mlp(sizes), sizes).values())
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


MODELS = ("mlp", "cnn 64", "cnn 1024", "resnet", "embedding")

OURS: dict[str, Callable[[Sizes, gpu_ours.Measure[dict[str, float]]], dict[str, float]]] = {
    "mlp": gpu_ours.mlp,
    "cnn 64": lambda sizes, measure: gpu_ours.cnn(sizes, 0, measure),
    "cnn 1024": lambda sizes, measure: gpu_ours.cnn(sizes, 1, measure),
    "resnet": gpu_ours.resnet,
    "embedding": gpu_ours.embedding,
}


def theirs(library: Any) -> dict[str, Callable[[Sizes], Step]]:
    """What makes the step of each model by hand, or in PyTorch."""
    return {
        "mlp": library.mlp,
        "cnn 64": lambda sizes: library.cnn(sizes, 0),
        "cnn 1024": lambda sizes: library.cnn(sizes, 1),
        "resnet": library.resnet,
        "embedding": library.embedding,
    }


BY_HAND, IN_TORCH = theirs(gpu_by_hand), theirs(gpu_torch)


def measures_of(model: str) -> dict[str, Callable[[Sizes], dict[str, float]]]:
    def ours(sizes: Sizes) -> dict[str, float]:
        return OURS[model](sizes, lambda step: step_ms(step, sizes))

    def kernels(sizes: Sizes) -> dict[str, float]:
        return OURS[model](sizes, lambda step: kernels_ms(step, sizes))

    return {
        model: ours,
        f"{model} by hand": lambda sizes: step_ms(BY_HAND[model](sizes), sizes),
        f"{model} in torch": lambda sizes: step_ms(IN_TORCH[model](sizes), sizes, gpu_torch.event),
        f"{model} kernels": kernels,
    }


MEASURES: dict[str, Callable[[Sizes], dict[str, float]]] = {
    "bandwidth": bandwidth,
    "products": products,
    **{name: measure for model in MODELS for name, measure in measures_of(model).items()},
    "shared card": lambda sizes: gpu_ours.shared_card(sizes, lambda step: step_ms(step, sizes)),
    "estimator": estimator_overhead,
    "checkpoint": checkpoint,
}


# What is printed.


def report(found: Mapping[str, Any]) -> Iterator[str]:
    """The models' steps side by side, and what was wanted beside what was found."""
    heads = "ms a step", "paceline", "host", "by hand", "host", "PyTorch", "host"
    yield f"{heads[0]:12}" + "".join(f"{head:>10}" for head in heads[1:])
    for model in MODELS:
        ways = model, f"{model} by hand", f"{model} in torch"
        cells = [number(found, way, what) for way in ways for what in ("device", "host")]
        shown = ("-" if x is None else f"{x:.3f}" for x in cells)
        yield f"{model:12}" + "".join(f"{cell:>10}" for cell in shown)
    yield ""
    yield f"{'wanted':52}{'at':>10}{'found':>10}"
    for text, is_most, wanted, figure in goals(found):
        shown, verdict = "-", ""
        if figure is not None:
            is_reached = figure <= wanted if is_most else figure >= wanted
            shown, verdict = f"{figure:.2f}", "" if is_reached else "  missed"
        yield f"{text:52}{'≤' if is_most else '≥'}{wanted:>9g}{shown:>10}{verdict}"


def goals(found: Mapping[str, Any]) -> Iterator[tuple[str, bool, float, float | None]]:
    """What is wanted: in words, whether at most so much or at least, how much, what was found."""
    yield "Adam's update, of the bandwidth of a copy", False, 0.8, number(found, "bandwidth")
    for model in MODELS:
        ratio = ratio_of(found, model, f"{model} by hand")
        yield f"a step of {model}, of one by hand", True, 1.1, ratio
    for model in ("mlp", "embedding"):
        ratio = ratio_of(found, model, f"{model} in torch")
        yield f"a step of {model}, of PyTorch's", True, 1.0, ratio
    more = number(found, "estimator", "more_us")
    yield "a step of an Estimator, µs more than by hand", True, 60.0, more
    blocked = number(found, "checkpoint")
    yield "what a save in the background blocks, of a save", True, 0.05, blocked


def ratio_of(found: Mapping[str, Any], ours: str, other: str) -> float | None:
    pair = [number(found, way, "device") for way in (ours, other)]
    return None if None in pair else pair[0] / pair[1]


def number(found: Mapping[str, Any], measure: str, what: str = "fraction") -> float | None:
    """One figure; None where it was not measured, or could not be."""
    return found.get(measure, {}).get(what)


if __name__ == "__main__":
    main()
