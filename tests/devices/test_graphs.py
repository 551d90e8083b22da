"""Steps that a card does as CUDA graphs, on the stand-in: the same numbers, in few launches."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import Tensor, operation, random_normal
from paceline.nn import initializers, layers, losses, optimizers

from ..hooks import Losses
from .strict_cupy import counted

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(20, 8, 8, 1)).astype(np.float32)
PADDED = IMAGES * (np.arange(8) < RNG.integers(1, 9, 20)[:, None])[:, :, None, None]
WEIGHTED = {"x": IMAGES[:, 0, :, 0], "weight": np.square(IMAGES[:, 0, 0, 0])}
WORDS = RNG.integers(0, 9, (20, 4))
LABELS = RNG.integers(0, 3, 20)
STEPS = 24


def classifier(*hidden: Any) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
        h = features
        for make in (*hidden, lambda: layers.Dense(3)):
            h = make()(h, training=mode == "train")
        loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, h)
        schedule = optimizers.schedules.ExponentialDecay(0.01, 3, 0.9)
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(schedule).minimize(loss))

    return model_fn


def with_a_variable_that_it_assigns(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    w = pl.get_variable("w", (64, 1), initializer=initializers.Ones())
    scale = pl.get_variable("scale", (), np.float32, 1.0, trainable=False)
    scale.assign(scale.value() * 0.9)
    outputs = np.reshape(features, (len(features), 64)) @ w * scale
    loss = np.mean(np.square(outputs[:, 0] - labels))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.001).minimize(loss))


CONVOLUTION = classifier(
    lambda: layers.Conv2D(2, 3, activation="relu"), layers.MaxPooling2D, layers.Flatten
)
NORMALIZED = classifier(layers.Flatten, lambda: layers.Dense(4, "gelu"), layers.BatchNormalization)
DROPPED = classifier(layers.Flatten, lambda: layers.Dropout(0.5))


class Drawing(layers.GaussianNoise):
    def call(self, inputs: Any, training: bool) -> Any:
        return inputs + drawn(self, inputs)


@operation
def drawn(layer: Any, inputs: Any) -> Any:
    return random_normal(layer.generator(), 0.1, inputs.shape, inputs.data)


DRAWN = classifier(layers.Flatten, lambda: Drawing(0.1))
ROWS = classifier(lambda: layers.Embedding(9, 2), layers.Flatten)
DROPPED_LATE = classifier(layers.Flatten, lambda: layers.Dense(4), lambda: layers.Dropout(0.5))


def with_weights(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    by_weight = losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    logits = layers.Dense(3)(layers.Flatten()(features))
    loss = by_weight(labels, logits, sample_weight=np.square(features[:, 0, 0, 0]))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.1).minimize(loss))


def with_a_head(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    head = pl.estimator.MultiClassHead(3, weight_column="weight", loss_reduction="sum")
    logits = layers.Dense(3)(layers.Dense(4, "tanh")(features["x"]))
    return head.create_estimator_spec(features, mode, logits, labels, optimizers.SGD(0.1))


def with_a_mask(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    h = layers.Masking()(features[..., 0])
    each = losses.SparseCategoricalCrossentropy(from_logits=True)
    loss = each(np.broadcast_to(labels[:, None], (len(labels), 8)), layers.Dense(3)(h))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(0.1).minimize(loss))


def trained(
    model_fn: Any,
    features: Any,
    directory: Path,
    replays: Any,
    strategy: Any = None,
    batch: int = 5,
) -> Any:
    """The losses, and the last checkpoint."""
    hook = Losses()
    config = pl.RunConfig(
        tf_random_seed=1,
        replay_steps=replays,
        train_distribute=strategy or pl.OneDeviceStrategy("GPU:0"),
        save_checkpoints_steps=10,
        log_step_count_steps=1000,
    )

    def input_fn() -> pl.Dataset:
        return pl.Dataset.from_tensor_slices((features, LABELS)).batch(batch).repeat()

    pl.Estimator(model_fn, directory, config).train(input_fn, [hook], STEPS)
    saved = pl.checkpoint.load(pl.checkpoint.latest_checkpoint(directory)).arrays()
    return hook.values, saved


def assert_same(one: Any, other: Any) -> None:
    assert one[0] == other[0]
    for name, value in one[1].items():
        np.testing.assert_array_equal(value, other[1][name], err_msg=name)


def weighted_by(weights: Callable[[], Any]) -> Any:
    def model_fn(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
        w = pl.get_variable("w", (64, 3), initializer=initializers.Ones())
        outputs = np.reshape(features, (len(features), 64)) @ w * weights()
        loss = np.mean(np.square(outputs[:, 0] - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.001).minimize(loss))

    return model_fn


ON_HOST = Tensor(np.array([1.0, 2.0, 3.0], np.float32))
WITH_A_TABLE = weighted_by(lambda: np.array([1.0, 2.0, 3.0], np.float32))
WITH_A_TENSOR = weighted_by(lambda: ON_HOST)


def with_two_losses(
    features: Any, labels: Any, mode: str, initial_scale: float = 8.0, weight: float = 1.0
) -> pl.EstimatorSpec:
    h = layers.Dense(4, "tanh", name="first")(layers.Flatten()(features))
    loss = losses.SparseCategoricalCrossentropy(from_logits=True)(labels, layers.Dense(3)(h))
    loss = loss * weight
    inner = optimizers.SGD(0.1)
    scaled = optimizers.LossScaleOptimizer(inner, True, initial_scale, dynamic_growth_steps=5)
    penalty = 0.01 * np.sum(np.square(pl.get_variable("first/kernel", (64, 4))))
    ops = [scaled.minimize(loss), optimizers.SGD(0.1, name="second").minimize(penalty)]
    return pl.EstimatorSpec(mode, loss=loss + penalty, train_op=ops)


def with_steps_that_are_skipped(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    return with_two_losses(features, labels, mode, initial_scale=2.0**127, weight=4.0)


MODELS = {
    "convolution": (CONVOLUTION, IMAGES, 2),
    "moving averages behind the graph": (NORMALIZED, IMAGES, 2),
    "two losses, one of them scaled by what changes": (with_two_losses, IMAGES, 3),
    "a scale that is too large for some steps": (with_steps_that_are_skipped, IMAGES, 3),
    "rows of a table, whose way back is no graph": (ROWS, WORDS, 1),
    "a table of the host's, which is uploaded once": (WITH_A_TABLE, IMAGES, 2),
    "a tensor of the host's, which is uploaded once": (WITH_A_TENSOR, IMAGES, 2),
    "a mean of what a mask leaves": (with_a_mask, PADDED, 2),
    "a mean by weights": (with_weights, IMAGES, 2),
    "labels and weights that the host looks at": (with_a_head, WEIGHTED, 2),
    "random numbers behind a graph": (DROPPED_LATE, IMAGES, 2),
    "random numbers: no graph": (DROPPED, IMAGES, 0),
    "random numbers in an operation that does not say so: no graph": (DRAWN, IMAGES, 0),
    "a variable that the step assigns: no graph": (with_a_variable_that_it_assigns, IMAGES, 0),
}


@pytest.mark.parametrize(("model_fn", "features", "graphs"), MODELS.values(), ids=MODELS)
def test_losses_and_checkpoints_are_those_of_called_steps(
    model_fn: Any, features: Any, graphs: int, a_card: Any, tmp_path: Path
) -> None:
    expected = trained(model_fn, features, tmp_path / "called", False)
    with counted() as counts:
        found = trained(model_fn, features, tmp_path / "captured", "captured")
    assert_same(found, expected)
    launched = [name for name in counts.launches if name.startswith("graph")]
    assert len(launched) == graphs * (STEPS - 3)


@pytest.mark.parametrize("batch", [5, 8])
@pytest.mark.parametrize(
    ("model_fn", "features"),
    [
        (CONVOLUTION, IMAGES),
        (with_a_mask, PADDED),
        (with_weights, IMAGES),
        (with_a_head, WEIGHTED),
    ],
)
def test_each_card_has_graphs_of_its_own(
    two_gpus: Any, tmp_path: Path, model_fn: Any, features: Any, batch: int
) -> None:
    strategy = pl.MirroredStrategy(["GPU:0", "GPU:1"])
    called = trained(model_fn, features, tmp_path / "called", False, strategy, batch)
    with counted() as counts:
        found = trained(model_fn, features, tmp_path / "captured", "captured", strategy, batch)
    assert_same(found, called)
    launched = Counter(name.split()[0] for name in counts.launches)
    assert launched["graph"] > 2 * STEPS


class Moving(pl.estimator.SessionRunHook):
    """Gives a variable another array in some steps."""

    def __init__(self, steps: tuple[int, ...]) -> None:
        self._steps = iter(range(STEPS))
        self._when = steps

    def after_run(self, run_context: Any, run_values: Any) -> None:
        if next(self._steps) in self._when:
            kernel = run_context.session.store.variables["dense/kernel"]
            kernel.assign(kernel.numpy() * 2)


def test_variables_that_have_moved_are_captured_anew(a_card: Any, tmp_path: Path) -> None:
    found = []
    for how in (False, "captured"):
        estimator = pl.Estimator(
            classifier(layers.Flatten),
            tmp_path / str(how),
            pl.RunConfig(
                tf_random_seed=1,
                replay_steps=how,
                train_distribute=pl.OneDeviceStrategy("GPU:0"),
            ),
        )
        losses_found = Losses()
        estimator.train(
            lambda: pl.Dataset.from_tensor_slices((IMAGES, LABELS)).batch(5).repeat(),
            [losses_found, Moving((7, 8, 20))],
            STEPS,
        )
        found.append(losses_found.values)
    assert found[0] == found[1]


@operation
def looked_at(x: Any) -> Any:
    """x, of which the host has seen a number."""
    assert np.isfinite(x.data.sum().get())
    return x.data.copy()


def waiting(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    w = pl.get_variable("w", (64, 3), initializer=initializers.Ones())
    outputs = np.reshape(features, (len(features), 64)) @ w
    loss = 1e-9 * np.mean(np.square(outputs * looked_at(outputs)))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.001).minimize(loss))


def uploading(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    w = pl.get_variable("w", (64, 3), initializer=initializers.Ones())
    outputs = np.reshape(features, (len(features), 64)) @ w
    loss = np.mean(np.square(outputs[:, [0, 2]]))
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.SGD(0.001).minimize(loss))


@pytest.mark.parametrize("model_fn", [waiting, uploading])
def test_what_cannot_be_captured_is_queued_as_ever_with_a_warning(
    model_fn: Any, a_card: Any, tmp_path: Path, caplog: Any
) -> None:
    expected = trained(model_fn, IMAGES, tmp_path / "called", False)
    with caplog.at_level(logging.WARNING, "paceline"):
        assert_same(trained(model_fn, IMAGES, tmp_path / "captured", "captured"), expected)
    assert "cannot be captured as a CUDA graph" in caplog.text


def test_a_captured_step_launches_little(a_card: Any, tmp_path: Path) -> None:
    """Per step: the batch into its place, forward, seed and backward, and the update."""
    with counted() as few:
        trained(CONVOLUTION, IMAGES, tmp_path, True)
    with counted() as counts:
        trained(CONVOLUTION, IMAGES, tmp_path / "captured", "captured")
    by_name = Counter(name.split()[0] for name in counts.launches)
    assert by_name["graph"] == 2 * (STEPS - 3)
    assert len(counts.launches) < len(few.launches) / 2
