"""A GPU decides itself whether a step of scaled gradients is made, and the host learns it later."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.nn import Sequential, layers, mixed_precision, optimizers
from paceline.nn.optimizers import LossScaleOptimizer
from paceline.strategies import VariableStore

from . import strict_cuda as cuda
from .strict_cupy import COUNTS, counted
from .test_steps import DIGITS, IMAGES, RATE, asked_by_a_step, with_an_estimator

RNG = np.random.default_rng(0)
MATRIX, TABLE = (RNG.normal(size=shape).astype(np.float32) for shape in ((3, 2), (6, 2)))
FACTORS = (1.0, 2.0, np.inf, 1.0, np.nan, -1.0, 1.0, 3.0)
"""By which the losses of steps are multiplied: gradients of two of them are no numbers."""


class Own(optimizers.Optimizer):
    """Somebody's own, which keeps the sum of all gradients."""

    def build(self, variables: Any) -> None:
        super().build(variables)
        for variable in variables:
            self.add_variable_from_reference(variable, "sum")

    def update_step(self, gradient: Any, variable: Any, learning_rate: float) -> None:
        self.get_slot(variable, "sum").assign_add(gradient)
        variable.assign_sub(learning_rate * gradient)


INNER = {
    "SGD": lambda: optimizers.SGD(0.1),
    "momentum": lambda: optimizers.SGD(0.1, momentum=0.9, nesterov=True),
    "Adam": lambda: optimizers.Adam(0.1),
    "AMSGrad": lambda: optimizers.Adam(0.1, amsgrad=True),
    "AdamW": lambda: optimizers.AdamW(0.1, weight_decay=0.1),
    "Adagrad": lambda: optimizers.Adagrad(0.1),
    "RMSprop": lambda: optimizers.RMSprop(0.1, momentum=0.5, centered=True),
    "Ftrl": lambda: optimizers.Ftrl(0.1, l1_regularization_strength=0.01),
    "Adadelta": lambda: optimizers.Adadelta(1.0),
    "Adamax": lambda: optimizers.Adamax(0.1),
    "Nadam": lambda: optimizers.Nadam(0.1),
    "Lion": lambda: optimizers.Lion(0.01),
    "Lamb": lambda: optimizers.Lamb(0.1),
    "Adafactor": lambda: optimizers.Adafactor(0.1),
    "of rows": lambda: optimizers.Adam(0.1, sparse="lazy"),
    "clipped by the norm of all": lambda: optimizers.Adam(0.1, global_clipnorm=0.5),
    "clipped by values": lambda: optimizers.Adam(0.1, clipvalue=0.5),
    "averaged": lambda: optimizers.SGD(0.1, use_ema=True, ema_overwrite_frequency=3),
    "of several steps": lambda: optimizers.Adam(0.1, gradient_accumulation_steps=2),
    "somebody's own": lambda: Own("own", learning_rate=0.1),
}

PLACES = {
    "one card": lambda: pl.OneDeviceStrategy("GPU:0"),
    "two cards": lambda: pl.MirroredStrategy(["GPU:0", "GPU:1"]),
    "two replicas of one card": lambda: pl.MirroredStrategy(["GPU:0", "GPU:0:1"]),
    "variables of the host": lambda: pl.CentralStorageStrategy(["GPU:0", "GPU:1"]),
}


def at_most_one(value: Any) -> Any:
    return np.minimum(value, 1.0)


def trained(strategy: pl.Strategy, inner: str) -> list[dict[str, np.ndarray]]:
    """All saved values behind each step. It is the last replica whose gradients are no numbers."""
    store, found = VariableStore(seed=1, averages_replicas=True), []

    def step(factor: float) -> None:
        with store.building():
            optimizer = LossScaleOptimizer(INNER[inner](), True, 8.0, dynamic_growth_steps=2)
            replica = pl.get_replica_context()
            is_last = replica.replica_id_in_sync_group == strategy.num_replicas_in_sync - 1
            matrix = pl.get_variable("matrix", initializer=MATRIX, constraint=at_most_one)
            table = pl.get_variable("table", initializer=TABLE)
            small = pl.get_variable("small", initializer=np.ones(3, np.float32))
            rows = np.take(table, [1, 4, 1], axis=0)
            loss = np.sum(np.square(matrix * small[:, None])) + np.sum(rows * rows)
            optimizer.minimize(loss * (factor if is_last else 1.0))()

    for factor in FACTORS:
        with strategy.scope(), np.errstate(invalid="ignore"):
            strategy.run(step, (factor,))
            found.append({n: np.array(a) for n, a in store.saved_values().items()})
    return found


def by_suffix(values: dict[str, np.ndarray]) -> dict[str, float]:
    """The numbers among them, without the optimizer's name."""
    return {name.split("/")[-1]: v.item() for name, v in values.items() if v.ndim == 0}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("inner", INNER)
def test_steps_are_made_and_skipped_as_on_the_host(
    inner: str, place: str, two_gpus: Any, no_hazards: None
) -> None:
    strategy = PLACES[place]()
    devices = ["CPU:0", "CPU:1"][: strategy.num_replicas_in_sync]
    on_host = trained(pl.MirroredStrategy(devices), inner)
    on_cards = trained(strategy, inner)
    for found, expected in zip(on_cards, on_host, strict=True):
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, 1e-5, 1e-6, err_msg=name)
    assert [by_suffix(found)["loss_scale"] for found in on_cards] == [8, 16, 8, 8, 4, 4, 8, 8]
    assert [by_suffix(found)["good_steps"] for found in on_cards] == [1, 0, 0, 1, 0, 1, 0, 1]
    num_made = np.cumsum(np.isfinite(FACTORS)) // (2 if inner == "of several steps" else 1)
    assert [by_suffix(found)["iterations"] for found in on_cards] == num_made.tolist()
    for skipped in np.flatnonzero(~np.isfinite(FACTORS)):
        before, behind = on_cards[skipped - 1], on_cards[skipped]
        changed = [n for n, v in behind.items() if v.tobytes() != before[n].tobytes()]
        assert {name.split("/")[-1] for name in changed} <= {
            "global_step",
            "loss_scale",
            "good_steps",
        }


def half_precision() -> Sequential:
    hidden = layers.Dense(32, activation="relu")
    return Sequential([layers.Flatten(), hidden, layers.Dense(10, dtype="float32")])


@pytest.fixture
def mixed_float16() -> Iterator[None]:
    mixed_precision.set_global_policy("mixed_float16")
    yield
    mixed_precision.set_global_policy("float32")


@pytest.mark.parametrize("cards", [1, 2])
def test_a_step_of_fit_in_half_precision_waits_for_nothing_but_an_event_of_the_step_before(
    cards: int, two_gpus: Any, mixed_float16: None
) -> None:
    def train(num_steps: int) -> None:
        with pl.MirroredStrategy([f"GPU:{card}" for card in range(cards)]).scope():
            model = half_precision()
            model.compile(optimizers.Adam(0.1), pl.nn.losses.SparseCategoricalCrossentropy(True))
        batches = pl.Dataset.from_tensor_slices((IMAGES, DIGITS)).repeat().batch(16)
        model.fit(batches, epochs=1, steps_per_epoch=num_steps, verbose=0)

    asked = asked_by_a_step(train)
    assert not asked.waits
    assert len(asked.events) <= 3 * cards  # a batch, the loss, and the decision
    assert len(asked.launches) <= {1: 42, 2: 92}[cards], asked.launches


def test_a_step_of_an_estimator_in_half_precision_waits_for_events_only(
    a_card: Any, mixed_float16: None, tmp_path: Any
) -> None:
    asked = asked_by_a_step(with_an_estimator("digits", RATE, (IMAGES, DIGITS), tmp_path))
    assert not asked.waits
    assert len(asked.events) <= 3, asked.events
    assert len(asked.launches) <= 57, asked.launches


def test_the_card_has_the_next_forward_pass_when_the_host_asks_what_was_decided(
    a_card: Any, monkeypatch: Any
) -> None:
    store, queued = VariableStore(seed=1), []
    monkeypatch.setattr(cuda, "on_event_wait", lambda: queued.append(COUNTS.launches.copy()))

    def step() -> None:
        with store.building():
            loss = np.mean(np.tanh(pl.get_variable("w", (3, 2)) * 2.0))
            LossScaleOptimizer(optimizers.Adam(0.1)).minimize(loss)()

    with counted():
        for _ in range(3):
            pl.OneDeviceStrategy("GPU:0").run(step)
    assert len(queued) == 2  # the last one nobody has asked for
    for launches in queued:
        names = [launch.split()[0] for launch in launches]
        behind = names[len(names) - names[::-1].index("isfinite") :]
        assert any("sqrt" in name for name in behind), "the update"
        assert "tanh" in behind, "the next forward pass"


def test_a_number_that_is_on_its_way_to_the_host_is_in_all_that_is_read(a_card: Any) -> None:
    """Printed, read, added to, assigned, saved, and asked of the optimizer: never an old one."""
    strategy = pl.OneDeviceStrategy("GPU:0")
    with strategy.scope():
        weight = pl.Variable(np.ones(2, np.float32), name="w")
        optimizer = LossScaleOptimizer(optimizers.SGD(0.5), True, 8.0, dynamic_growth_steps=1)

    def made(factor: float) -> list[Any]:
        strategy.run(lambda: optimizer.minimize(np.sum(weight * factor), var_list=[weight])())
        return optimizer.variables

    iterations, scale, good_steps = made(1.0)
    assert iterations.cell.is_late
    assert repr(iterations).endswith("numpy=1>")
    assert not iterations.cell.is_late
    made(np.inf)
    assert (int(iterations), float(scale), int(good_steps)) == (1, 8, 0)
    made(1.0)
    iterations.assign_add(10)
    assert int(iterations) == 12
    made(1.0)
    iterations.assign(0)
    assert int(iterations) == 0
    made(1.0)
    saver = pl.checkpoint.Checkpoint(optimizer=optimizer)
    assert sorted(float(a) for a in saver.arrays().values() if a.ndim == 0) == [0, 1, 64]
    assert optimizer.loss_scale == 64
