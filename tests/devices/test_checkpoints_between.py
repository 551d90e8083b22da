"""A checkpoint goes from the host to cards and back with all its bits, whatever a model keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import Checkpoint, latest_checkpoint, load
from paceline.estimator import SessionRunHook
from paceline.nn import layers, optimizers
from paceline.nn.optimizers import LossScaleOptimizer, Optimizer

from .strict_cupy import StrictArray
from .test_loss_scale import INNER
from .test_metrics import CASES, UNMASKED

OPTIMIZERS: dict[str, Callable[[], Any]] = {
    **INNER,
    # The first steps overflow, so that the scale and both counts are of their own.
    "scaled": lambda: LossScaleOptimizer(optimizers.Adam(0.1), True, 2.0**127, 2),
    "scaled, of several steps": lambda: LossScaleOptimizer(
        optimizers.Nadam(0.1, gradient_accumulation_steps=2), True, 8.0, 2
    ),
    "scaled by a fixed number": lambda: LossScaleOptimizer(
        optimizers.Adafactor(0.1), False, initial_scale=8.0
    ),
}
PLACES = {
    "one card": (["CPU:0"], lambda: pl.OneDeviceStrategy("GPU:0")),
    "two cards": (["CPU:0", "CPU:1"], lambda: pl.MirroredStrategy(["GPU:0", "GPU:1"])),
    "two replicas of one card": (
        ["CPU:0", "CPU:1"],
        lambda: pl.MirroredStrategy(["GPU:0", "GPU:0:1"]),
    ),
    "variables of the host": (
        ["CPU:0", "CPU:1"],
        lambda: pl.CentralStorageStrategy(["GPU:0", "GPU:1"]),
    ),
}
RNG = np.random.default_rng(0)
IDS, X = RNG.integers(0, 9, (32, 3)), RNG.normal(size=(32, 4)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def test_the_table_has_every_optimizer_of_the_package() -> None:
    public = {getattr(optimizers, name) for name in optimizers.__all__}
    kinds = {one for one in public if isinstance(one, type) and issubclass(one, Optimizer)}
    assert kinds - {Optimizer} <= {type(make()) for make in OPTIMIZERS.values()}


class Restored(SessionRunHook):
    """The values that a run begins with."""

    def after_create_session(self, session: Any, coord: Any = None) -> None:
        self.values = {name: value.copy() for name, value in session.values().items()}


def trained(strategy: pl.Strategy, model_dir: Path, name: str) -> tuple[Any, Any]:
    """What three more steps begin with, and the checkpoint that they leave."""

    def model_fn(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
        ids, x = features
        rows = layers.Flatten()(layers.Embedding(9, 2)(ids))
        hidden = layers.BatchNormalization()(layers.Dense(5)(x), training=True)
        outputs = layers.Dense(1)(np.concatenate([rows, hidden], axis=1))
        loss = np.mean(np.square(outputs - labels))
        return pl.EstimatorSpec(mode, loss=loss, train_op=OPTIMIZERS[name]().minimize(loss))

    config = pl.RunConfig(train_distribute=strategy, tf_random_seed=1, save_summary_steps=None)
    restored = Restored()
    data = pl.Dataset.from_tensor_slices(((IDS, X), Y)).repeat().batch(4)
    with np.errstate(over="ignore", invalid="ignore"):
        pl.Estimator(model_fn, model_dir, config).train(lambda: data, [restored], steps=3)
    return restored.values, load(latest_checkpoint(model_dir)).arrays()


def assert_same_bits(found: Any, expected: Any) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        one = np.asarray(found[name])
        assert (one.dtype, one.shape) == (value.dtype, value.shape), name
        assert one.tobytes() == value.tobytes(), name


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *[(name, place) for name in OPTIMIZERS for place in ("one card", "two cards")],
        *[(name, place) for name in ("Adafactor", "averaged", "scaled") for place in PLACES],
    ],
)
def test_what_an_estimator_keeps_has_its_bits_on_cards_and_back_on_the_host(
    name: str, place: str, two_gpus: Any, tmp_path: Path
) -> None:
    """Weights, slots, averages, moving means, tables, the scale of a loss, and counts."""
    devices, on_cards = PLACES[place]
    strategies = pl.MirroredStrategy(devices), on_cards(), pl.MirroredStrategy(devices)
    _, saved = trained(strategies[0], tmp_path, name)
    for strategy in strategies[1:]:
        restored, then = trained(strategy, tmp_path, name)
        assert_same_bits(restored, saved)
        saved = then
    assert saved["global_step"] == 9


@pytest.mark.parametrize("cards", [1, 2])
@pytest.mark.parametrize("name", [*CASES, *UNMASKED])
def test_what_a_metric_has_counted_has_its_bits_on_cards_and_back_on_the_host(
    name: str, cards: int, two_gpus: Any, tmp_path: Path
) -> None:
    make, batch = {**CASES, **UNMASKED}[name]
    on_host = pl.MirroredStrategy([f"CPU:{i}" for i in range(cards)])
    on_cards = pl.MirroredStrategy([f"GPU:{i}" for i in range(cards)])
    path = None
    for step, strategy in enumerate((on_host, on_cards, on_host)):
        pl.set_seed(1)  # names are counted from the beginning
        with strategy.scope():
            metric = make()
            parts = Checkpoint(metric=metric)
            strategy.run(metric.update_state, batch)
            if path is not None:  # what it has just counted is forgotten
                parts.restore(path)
                assert_same_bits(parts.arrays(), load(path).arrays())
                strategy.run(metric.update_state, batch)
            path = parts.save(tmp_path, step)
            on_card = isinstance(metric.variables[0].local_values()[0], StrictArray)
            assert on_card == (strategy is on_cards)
    expected = make()
    for _ in range(3 * cards):
        expected.update_state(*batch)
    assert metric.result() == pytest.approx(expected.result(), rel=1e-6)
