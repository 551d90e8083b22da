"""Values that are restored come to cards in few copies, and nobody waits for what cards compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import Checkpoint
from paceline.nn import Sequential, layers, optimizers
from paceline.strategies.devices import upload as module
from paceline.strategies.devices.device import Device
from paceline.strategies.devices.upload import put_together

from .strict_cupy import StrictArray, counted, to_device
from .test_download import VALUES

PLACES = {
    "one card": ["GPU:0"],
    "two cards": ["GPU:1", "GPU:0"],
    "two devices of a card": ["GPU:0:1", "GPU:0"],
    "a card and the host": ["GPU:0", "CPU:0"],
}


pytestmark = pytest.mark.usefixtures("no_hazards")


@pytest.mark.parametrize("room_bytes", [1, 16, 100, 1 << 20])
@pytest.mark.parametrize("place", PLACES)
def test_what_arrives_is_what_set_out_in_order_of_c_on_its_device(
    place: str, room_bytes: int, two_gpus: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "ROOM_BYTES", room_bytes)
    devices = [Device.parse(name) for name in PLACES[place]]
    pairs = [(value, devices[i % len(devices)]) for i, value in enumerate(VALUES.values())]
    found = put_together(pairs)
    for (value, device), array in zip(pairs, found, strict=True):
        assert Device.of(array) == device
        assert (array.dtype, array.shape) == (value.dtype, value.shape)
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, value)


def test_what_lies_on_a_card_already_is_copied_there(two_gpus: Any) -> None:
    here, there = to_device(np.arange(3.0), 0), to_device(np.arange(4.0), 1)
    first, second = put_together([(here, Device("GPU", 0)), (there, Device("GPU", 0))])
    assert first is not here
    assert {Device.of(first), Device.of(second)} == {Device("GPU", 0)}
    np.testing.assert_array_equal(second, np.arange(4.0))


@pytest.mark.parametrize(("room_bytes", "num_copies"), [(1 << 20, 1), (500, 5), (100, 24)])
def test_an_upload_is_a_copy_for_each_room_full_and_no_wait_for_what_is_computed(
    room_bytes: int, num_copies: int, a_card: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "ROOM_BYTES", room_bytes)
    pairs = [(np.full((3, 5), i, np.float32), Device("GPU", 0)) for i in range(40)]
    with counted() as counts:
        put_together(pairs)
    assert not counts.waits
    assert len(counts.uploads) == num_copies
    assert len(counts.events) == num_copies + min(num_copies, 2)


STRATEGIES = {
    "one card": (lambda: pl.OneDeviceStrategy("GPU:0"), 1),
    "two cards": (lambda: pl.MirroredStrategy(["GPU:0", "GPU:1"]), 1),
    "two replicas of one card": (lambda: pl.MirroredStrategy(["GPU:0", "GPU:0:1"]), 1),
    "variables of the host": (lambda: pl.CentralStorageStrategy(["GPU:0", "GPU:1"]), 0),
}
X = np.random.default_rng(0).normal(size=(16, 5)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def trained(strategy: pl.Strategy, epochs: int = 1) -> Sequential:
    pl.set_seed(1)  # names are counted from the beginning
    with strategy.scope():
        hidden = [layers.Dense(6, "tanh"), layers.BatchNormalization()]
        model = Sequential([layers.Input((5,)), *hidden, layers.Dense(1)])
        model.compile(optimizers.Adam(0.1), "mse", metrics=["mae"])
    model.fit(X, Y, 8, epochs=epochs, shuffle=False, verbose=0)
    return model


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_model_is_loaded_in_one_copy_to_a_card(
    strategy: str, two_gpus: Any, tmp_path: Path
) -> None:
    make, num_copies = STRATEGIES[strategy]
    source, model = trained(pl.get_strategy(), epochs=2), trained(make())
    source.save_weights(tmp_path / "w")
    with counted() as counts:
        model.load_weights(tmp_path / "w")
    assert not counts.waits
    assert len(counts.uploads) == num_copies, counts.uploads
    for found, expected in zip(model.weights, source.weights, strict=True):
        for copy in found.local_values():
            np.testing.assert_array_equal(np.asarray(copy), expected.numpy())
    model.fit(X, Y, 8, epochs=1, shuffle=False, verbose=0)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_checkpoint_of_a_loop_is_restored_in_one_copy_for_each_part_and_goes_on_to_the_bit(
    strategy: str, two_gpus: Any, tmp_path: Path
) -> None:
    make, num_copies = STRATEGIES[strategy]
    strategies = [make(), make()]
    models = [trained(one) for one in strategies]
    checkpoints = [Checkpoint(model=one, optimizer=one.optimizer) for one in models]
    path = checkpoints[0].save(tmp_path, 0)
    values = []
    for one, model, restored in zip(strategies, models, checkpoints, strict=True):
        with one.scope():
            model.fit(X, Y, 8, epochs=1, shuffle=False, verbose=0)
            with counted() as counts:
                restored.restore(path)
            model.fit(X, Y, 8, epochs=1, shuffle=False, verbose=0)
        values.append([variable.numpy() for variable in model.weights])
        assert not counts.waits, counts.waits
        assert len(counts.uploads) == 2 * num_copies, counts.uploads
    for one, other in zip(*values, strict=True):
        np.testing.assert_array_equal(one, other)


def test_nothing_is_set_where_one_value_does_not_fit(a_card: Any) -> None:
    with pl.OneDeviceStrategy("GPU:0").scope():
        first, second = pl.Variable(np.ones(3)), pl.Variable(np.ones(2))
    with pytest.raises(ValueError, match="was assigned a value of shape"):
        pl.Variable.assign_together([(first, np.zeros(3)), (second, np.zeros(3))])
    np.testing.assert_array_equal(first.numpy(), 1)


def test_a_sum_over_replicas_stays_the_sum(two_gpus: Any) -> None:
    with pl.MirroredStrategy(["GPU:0", "GPU:1"]).scope():
        seen = pl.Variable(
            5.0,
            trainable=False,
            synchronization=pl.VariableSynchronization.ON_READ,
            aggregation=pl.VariableAggregation.SUM,
        )
    pl.Variable.assign_together([(seen, np.float32(7))])
    assert seen.numpy() == 7
    assert [copy.item() for copy in seen.local_values()] == [7, 0]
    assert all(type(copy) is StrictArray for copy in seen.local_values())


def test_in_replicas_it_is_an_assignment_after_the_other(two_gpus: Any) -> None:
    strategy = pl.MirroredStrategy(["GPU:0", "GPU:1"])
    with strategy.scope():
        means = [
            pl.Variable(float(i), aggregation=pl.VariableAggregation.MEAN, trainable=False)
            for i in range(2)
        ]

    def step() -> None:
        number = float(pl.get_replica_context().replica_id_in_sync_group)
        pl.Variable.assign_together([(mean, np.float32(number)) for mean in means])

    strategy.run(step)
    assert [float(mean) for mean in means] == [0.5, 0.5]
