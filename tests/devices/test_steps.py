"""What a training step of each example asks of a GPU: so many kernels, and one wait, for the loss.

Counted on the stand-in for CuPy. The numbers of kernels are limits: whoever gets below one writes
the new one down.
"""

from __future__ import annotations

import gc
import importlib.util
import inspect
import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, optimizers
from paceline.strategies.devices import gpu

from .strict_cupy import Counts, counted, to_device

EXAMPLES = Path(__file__).parents[2] / "examples"
RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(64, 8, 8, 1)).astype(np.float32)
DIGITS = RNG.integers(0, 10, 64)


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def launches_in(function: Any) -> set[str]:
    """The names of all copies that a function of gpu.py may launch."""
    lines, first = inspect.getsourcelines(function)
    return {f"copy gpu.py:{first + i}" for i in range(len(lines))}


COPIES_FOR_A_SAVE = launches_in(gpu.copy_at_home)


def asked_by_a_step(train: Any) -> Counts:
    """What four more steps ask for, each a quarter of it: `train(num_steps)` is called twice."""
    runs = []
    for num_steps in (3, 7):
        gc.collect()  # what an earlier one has left waits for what is on its way to it
        with counted() as counts:
            train(num_steps)
        # What a save copies, at the first step and the last, depends on how far its thread is.
        counts.launches[:] = [name for name in counts.launches if name not in COPIES_FOR_A_SAVE]
        runs.append(counts)
    few, many = runs
    asked = Counts()
    for part in ("launches", "uploads", "waits", "events"):
        more = Counter(getattr(many, part)) - Counter(getattr(few, part))
        if part in ("launches", "waits"):
            getattr(asked, part).extend(list(more.elements())[::4])
        else:  # the thread that brings batches may be a step further in one of the runs
            getattr(asked, part).extend(n for n, num in more.items() for _ in range(round(num / 4)))
    return asked


def with_an_estimator(
    name: str, params: dict[str, Any], data: Any, tmp_path: Path, strategy: Any = None
) -> Any:
    model_fn = example(name).model_fn

    def train(num_steps: int) -> None:
        config = pl.RunConfig(
            model_dir=str(tmp_path / str(num_steps)),
            train_distribute=strategy or pl.OneDeviceStrategy("GPU:0"),
            save_checkpoints_steps=1000,
            log_step_count_steps=1000,
        )
        estimator = pl.Estimator(model_fn, config=config, params=params)
        batches = pl.Dataset.from_tensor_slices(data).repeat().batch(16)
        estimator.train(lambda: batches, steps=num_steps)

    return train


WORDS = {"word": RNG.integers(0, 50, 64), "beside": RNG.integers(0, 50, (64, 5))}
CLICKS = {name: RNG.integers(0, 100, (64, 3)) for name in ("ids", "crosses")}
RATE = {"learning_rate": 0.01}


@pytest.mark.parametrize(
    ("name", "params", "data", "num_uploads", "most_launches"),
    [
        ("digits", RATE, (IMAGES, DIGITS), 1, 42),
        ("residual", {**RATE, "depth": 4}, (IMAGES, DIGITS), 1, 300),
        ("word_embeddings", None, WORDS, 2, 112),  # the words drawn to compare with, too
        ("recommender", {**RATE, "rows": 100}, (CLICKS, DIGITS.astype(np.float32)), 1, 125),
    ],
)
def test_a_step_of_an_estimator_waits_for_an_event_of_its_loss_alone(
    name: str,
    params: Any,
    data: Any,
    num_uploads: int,
    most_launches: int,
    a_card: Any,
    tmp_path: Path,
) -> None:
    asked = asked_by_a_step(with_an_estimator(name, params, data, tmp_path))
    assert not asked.waits
    assert len(asked.events) == 2, asked.events  # the loss; and, in a thread, an earlier batch
    assert len(asked.uploads) == num_uploads, asked.uploads
    assert len(asked.launches) <= most_launches, Counter(asked.launches)


def network() -> Sequential:
    return Sequential([layers.Flatten(), layers.Dense(32, activation="relu"), layers.Dense(10)])


def with_fit(num_steps: int) -> None:
    with pl.OneDeviceStrategy("GPU:0").scope():
        model = network()
        model.compile(optimizers.SGD(0.1), loss="sparse_categorical_crossentropy")
    batches = pl.Dataset.from_tensor_slices((IMAGES, DIGITS)).repeat().batch(16)
    model.fit(batches, epochs=1, steps_per_epoch=num_steps, verbose=0)


def with_clipping(num_steps: int) -> None:
    with pl.OneDeviceStrategy("GPU:0").scope():
        model = network()
        model.compile(optimizers.Adam(0.1, global_clipnorm=1.0), loss="mse")
    batches = pl.Dataset.from_tensor_slices((IMAGES, np.eye(10)[DIGITS])).repeat().batch(16)
    model.fit(batches, epochs=1, steps_per_epoch=num_steps, verbose=0)


def with_a_loop(num_steps: int) -> None:
    module = example("linear_regression")
    module.NUM_STEPS = num_steps
    module.with_a_loop(pl.OneDeviceStrategy("GPU:0"))


def with_a_game(num_steps: int) -> None:
    """The generator and the discriminator of examples/gan.py, in turn."""
    module = example("gan")
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        game = module.Game()
    batches = iter(strategy.experimental_distribute_dataset(module.real_points()))
    for _ in range(num_steps):
        strategy.run(game.discriminate, next(batches))
        strategy.run(game.generate, next(batches))


def with_a_distributed_loop(num_steps: int) -> None:
    """A loop of one's own as that of examples/custom_loop.py, which reads the loss of each step."""
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        model, optimizer = network(), optimizers.Adam(0.01)
    loss_of = pl.nn.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="none")
    dataset = pl.Dataset.from_tensor_slices((IMAGES, DIGITS)).repeat().batch(16).take(num_steps)

    def train_step(images: Any, labels: Any) -> Any:
        with pl.GradientTape() as tape:
            each = loss_of(labels, model(images, training=True))
            loss = pl.nn.compute_average_loss(each, global_batch_size=16)
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    for batch in strategy.experimental_distribute_dataset(dataset):
        strategy.reduce("SUM", strategy.run(train_step, batch))


@pytest.mark.parametrize(
    ("train", "most_launches"),
    [(with_fit, 45), (with_clipping, 60), (with_a_loop, 28), (with_a_game, 225)],
)
def test_no_step_of_fit_waits_and_none_of_a_loop(
    train: Any, most_launches: int, a_card: Any
) -> None:
    asked = asked_by_a_step(train)
    assert not asked.waits
    assert len(asked.launches) <= most_launches, Counter(asked.launches)


def test_a_loop_that_reads_its_losses_waits_once_a_step(a_card: Any) -> None:
    asked = asked_by_a_step(with_a_distributed_loop)
    assert len(asked.waits) == 1, asked.waits
    assert len(asked.launches) <= 46, Counter(asked.launches)


def of_a_script(name: str) -> Any:
    """`main` of an example, on so many batches of 16."""

    def train(num_steps: int) -> None:
        script = example(name)
        data = pl.Dataset.from_tensor_slices((IMAGES, DIGITS))
        sizes = {"train": 16 * num_steps, "test": 16}
        script.load = lambda split: data.repeat().take(sizes[split])
        options = ["--devices", "GPU:0", "--epochs", "1", "--batch-size", "16"]
        with patch.object(sys, "argv", [name, *options]):
            script.main()

    return train


def of_a_line(way: str) -> Any:
    """One of the ways of examples/linear_regression.py."""

    def train(num_steps: int) -> None:
        module = example("linear_regression")
        module.NUM_STEPS = num_steps
        getattr(module, way)(pl.OneDeviceStrategy("GPU:0"))

    return train


def of_a_model_as_an_estimator(num_steps: int) -> None:
    config = pl.RunConfig(train_distribute=pl.OneDeviceStrategy("GPU:0"), save_summary_steps=None)
    made = example("model_to_estimator").make_model()
    inputs = {"image": IMAGES, "ink": np.mean(IMAGES, axis=(1, 2))}
    batches = pl.Dataset.from_tensor_slices((inputs, DIGITS)).repeat().batch(16)
    pl.estimator.model_to_estimator(made, config=config).train(lambda: batches, steps=num_steps)


def of_the_guide(way: str) -> Any:
    """The cells of examples/guide.ipynb that make its model and train it in this way, once."""
    cells = json.loads((EXAMPLES / "guide.ipynb").read_text())["cells"]
    sources = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    (model,) = [source for source in sources if "def make_model" in source]
    (trained,) = [source for source in sources if way in source]
    trained = trained.partition("\nestimator.train(input_fn, steps=100)  # goes on")[0]
    for text, once in (("range(8)", "range(1)"), ("epochs=8", "epochs=1"), ("=100", "=num_steps")):
        trained = trained.replace(text, once)

    def train(num_steps: int) -> None:
        data = pl.Dataset.from_tensor_slices((IMAGES, DIGITS)).repeat()
        names = {name: getattr(pl.nn, name) for name in ("layers", "losses", "metrics")}
        names |= {"pl": pl, "nn": pl.nn, "np": np, "tempfile": tempfile, "plt": MagicMock()}
        names |= {"optimizers": optimizers, "Sequential": Sequential, "BATCH": 16}
        names |= {
            "num_steps": num_steps,
            "strategy": pl.OneDeviceStrategy("GPU:0"),
            "load": lambda split: data.take(16 * num_steps),
            "train_data": lambda: data.take(16 * num_steps).batch(16),
            "test_data": data.take(16).batch(16),
        }
        exec(compile(model, "guide", "exec"), names)
        exec(compile(trained, "guide", "exec"), names)

    return train


FURTHER = {
    "custom_loop, which reads each loss": (of_a_script("custom_loop"), 1, 1, 42),
    "fit": (of_a_script("fit"), 0, 3, 56),
    "linear_regression, an Estimator": (of_a_line("with_an_estimator"), 0, 1, 15),
    "linear_regression, fit": (of_a_line("with_fit"), 0, 2, 26),
    "model_to_estimator": (of_a_model_as_an_estimator, 0, 1, 33),
    "guide, fit": (of_the_guide("history = model.fit"), 0, 3, 47),
    "guide, a loop that reads each loss": (of_the_guide("step_losses.append"), 1, 1, 34),
    "guide, an Estimator": (of_the_guide("estimator.train"), 0, 2, 43),
}
"""How they train, and what a step asks for: waits, uploads (the batch, and for each metric how many
examples it had), kernels at most."""


@pytest.mark.parametrize(
    ("train", "num_waits", "num_uploads", "most_launches"), FURTHER.values(), ids=FURTHER
)
def test_a_step_of_an_example_waits_where_it_reads_the_loss_and_nowhere_else(
    train: Any, num_waits: int, num_uploads: int, most_launches: int, a_card: Any
) -> None:
    asked = asked_by_a_step(train)
    assert len(asked.waits) == num_waits, asked.waits
    assert len(asked.uploads) == num_uploads, asked.uploads
    assert len(asked.launches) <= most_launches, Counter(asked.launches)


COUNTED = {
    *("custom_loop", "digits", "fit", "gan", "guide", "linear_regression", "model_to_estimator"),
    *("recommender", "residual", "wine", "word_embeddings"),
}
WITHOUT_DEVICES = {"k_means", "kubernetes"}


def test_the_steps_of_all_examples_are_counted() -> None:
    files = {path.stem for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert files == COUNTED | WITHOUT_DEVICES


def with_metrics(metrics: list[Any]) -> Any:
    def train(num_steps: int) -> None:
        with pl.OneDeviceStrategy("GPU:0").scope():
            model = network()
            loss = "sparse_categorical_crossentropy"
            model.compile(optimizers.SGD(0.1), loss=loss, metrics=metrics)
        batches = pl.Dataset.from_tensor_slices((IMAGES, DIGITS)).repeat().batch(16)
        model.fit(batches, epochs=1, steps_per_epoch=num_steps, verbose=0)

    return train


@pytest.mark.parametrize(
    "metric", ["accuracy", "sparse_top_k_categorical_accuracy", "sparse_categorical_crossentropy"]
)
def test_metrics_of_fit_are_added_up_on_the_device_and_nothing_waits(
    metric: str, a_card: Any
) -> None:
    assert not asked_by_a_step(with_metrics([metric])).waits


@pytest.mark.parametrize(
    ("metric", "most_launches"),
    [
        (lambda: pl.nn.metrics.AUC(), 150),
        (lambda: pl.nn.metrics.Precision(0.4), 150),
        (lambda: pl.nn.metrics.RecallAtPrecision(0.5), 150),
    ],
    ids=["AUC", "Precision", "RecallAtPrecision"],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_confusions_are_counted_on_the_device(
    weighted: bool, metric: Any, most_launches: int, a_card: Any
) -> None:
    weights = (RNG.random(64).astype(np.float32),) if weighted else ()

    def train(num_steps: int) -> None:
        with pl.OneDeviceStrategy("GPU:0").scope():
            model = Sequential([layers.Flatten(), layers.Dense(1, activation="sigmoid")])
            named = {"weighted_metrics" if weighted else "metrics": [metric()]}
            model.compile(optimizers.SGD(0.1), loss="binary_crossentropy", **named)
        parts = (IMAGES, (DIGITS > 4).astype(np.float32), *weights)
        batches = pl.Dataset.from_tensor_slices(parts).repeat().batch(16)
        model.fit(batches, epochs=1, steps_per_epoch=num_steps, verbose=0)

    asked = asked_by_a_step(train)
    assert not asked.waits
    assert len(asked.launches) <= most_launches, Counter(asked.launches)


LOSSES = {
    "hinge": ("hinge", {}),
    "squared_hinge": ("squared_hinge", {}),
    "weighted mean": (pl.nn.losses.MeanSquaredError("mean_with_sample_weight"), {"weighted": True}),
    "masked": ("mse", {"masked": True}),
    "masked and weighted": (
        pl.nn.losses.MeanSquaredError("mean_with_sample_weight"),
        {"weighted": True, "masked": True},
    ),
}


@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_loss_of_labels_weights_or_masks_is_not_waited_for(
    loss: str, cards: int, two_gpus: Any
) -> None:
    how, options = LOSSES[loss]
    x = np.where(RNG.random((64, 3, 4)) < 0.3, 0, RNG.normal(size=(64, 3, 4)))
    x[:, 0] = 1.0
    y = np.where(RNG.random((64, 3, 1)) < 0.5, 1.0, -1.0)
    weights = (RNG.random((64, 3)),) if "weighted" in options else ()

    def train(num_steps: int) -> None:
        with pl.MirroredStrategy([f"GPU:{card}" for card in range(cards)]).scope():
            masking = [layers.Masking(0.0)] if "masked" in options else []
            model = Sequential([*masking, layers.Dense(8, activation="relu"), layers.Dense(1)])
            model.compile(optimizers.SGD(0.1), loss=how)
        parts = tuple(part.astype(np.float32) for part in (x, y, *weights))
        batches = pl.Dataset.from_tensor_slices(parts).repeat().batch(16)
        model.fit(batches, epochs=1, steps_per_epoch=num_steps, verbose=0)

    assert not asked_by_a_step(train).waits


@pytest.mark.parametrize("labels", [[0.5, 1], [-1, 0], [2, 1], [np.nan, 1]])
@pytest.mark.parametrize("loss", [pl.nn.losses.hinge, pl.nn.losses.squared_hinge])
def test_a_margin_of_wrong_labels_is_no_number_on_a_device(
    loss: Any, labels: list[float], a_card: Any
) -> None:
    scores = to_device(np.zeros(2, np.float32))
    with counted() as counts:
        found = np.mean(loss(to_device(np.array(labels)), scores))
    assert not counts.waits
    assert np.isnan(found.item())
    assert loss(to_device(np.array([0, 1])), scores).numpy().tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("optimizer", "most_launches"), [(optimizers.Lamb, 70), (optimizers.Adafactor, 88)]
)
def test_an_optimizer_that_takes_norms_of_whole_variables_waits_for_none(
    optimizer: Any, most_launches: int, a_card: Any
) -> None:
    def train(num_steps: int) -> None:
        with pl.OneDeviceStrategy("GPU:0").scope():
            model = network()
            model.compile(optimizer(0.01), loss="sparse_categorical_crossentropy")
        batches = pl.Dataset.from_tensor_slices((IMAGES, DIGITS)).repeat().batch(16)
        model.fit(batches, epochs=1, steps_per_epoch=num_steps, verbose=0)

    asked = asked_by_a_step(train)
    assert not asked.waits
    assert len(asked.launches) <= most_launches, Counter(asked.launches)


@pytest.mark.parametrize(
    ("index", "most_launches", "num_waits"), [(0, 35, 0), (1, 150, 4), (2, 52, 0), (3, 215, 4)]
)
def test_a_step_of_a_premade_estimator_waits_for_what_the_host_computes(
    index: int, most_launches: int, num_waits: int, a_card: Any, tmp_path: Path
) -> None:
    """Those of examples/wine.py: buckets and crosses of columns are found on the host.

    Labels are words, which never leave it.
    """
    module = example("wine")
    x = RNG.normal(size=(64, 13)).astype(np.float32)
    data = module.features(x), np.array(module.CULTIVARS)[DIGITS % 3]

    def train(num_steps: int) -> None:
        config = pl.RunConfig(
            train_distribute=pl.OneDeviceStrategy("GPU:0"),
            save_checkpoints_steps=1000,
            log_step_count_steps=1000,
        )
        estimators = module.models(str(tmp_path / str(num_steps)), x, config)
        estimator = list(estimators)[index]
        batches = pl.Dataset.from_tensor_slices(data).repeat().batch(16)
        estimator.train(lambda: batches, steps=num_steps)

    asked = asked_by_a_step(train)
    assert len(asked.waits) == num_waits, asked.waits
    assert len(asked.launches) <= most_launches, Counter(asked.launches)
