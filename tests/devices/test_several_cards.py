"""Replicas on cards of their own: each on its stream, ordered by events (on the stand-in)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import IndexedSlices
from paceline.estimator import EstimatorSpec, NanLossDuringTrainingError, SessionRunHook
from paceline.nn.optimizers import SGD
from paceline.strategies import get_or_create_global_step, get_variable
from paceline.strategies.devices import gpu

from ..threads import in_threads
from . import strict_cupy
from .test_steps import DIGITS, IMAGES, RATE, asked_by_a_step, example, with_an_estimator


@pytest.fixture(params=["by NCCL", "by copies"])
def two_cards(request: pytest.FixtureRequest) -> Iterator[None]:
    with strict_cupy.cards(2, has_nccl=request.param == "by NCCL"):
        yield


def trained(strategy: pl.Strategy, model_dir: Path) -> dict[str, np.ndarray]:
    """The variables after two epochs, the last batch of which is one of two examples."""
    config = pl.RunConfig(model_dir=str(model_dir), train_distribute=strategy, tf_random_seed=1)
    estimator = pl.Estimator(example("digits").model_fn, config=config, params=RATE)
    data = pl.Dataset.from_tensor_slices((IMAGES[:50], DIGITS[:50]))
    estimator.train(lambda: data.batch(8).repeat(2))
    return {name: estimator.get_variable_value(name) for name in estimator.get_variable_names()}


def test_two_cards_learn_what_two_replicas_on_the_host_learn(
    two_cards: None, tmp_path: Path
) -> None:
    strategy = pl.MirroredStrategy()
    assert strategy.extended.worker_devices == tuple(
        f"/job:localhost/replica:0/task:0/device:GPU:{i}" for i in range(2)
    )
    cards = trained(strategy, tmp_path / "cards")
    host = trained(pl.MirroredStrategy(["CPU:0", "CPU:1"]), tmp_path / "host")
    assert cards.keys() == host.keys()
    for name, value in host.items():
        np.testing.assert_allclose(cards[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_threads_that_come_to_a_card_at_once_compute_on_one_stream(
    two_gpus: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else one of them reads what the other has not written yet, and no event says so."""
    cuda, both_make = gpu._cupy().cuda, threading.Barrier(2)
    make_stream = cuda.Stream

    def stream(*args: Any, **kwargs: Any) -> Any:
        with suppress(threading.BrokenBarrierError):
            both_make.wait(timeout=0.2)  # for a second one, which is not to come
        return make_stream(*args, **kwargs)

    def computes_on(_: int) -> Any:
        with gpu.use(1):
            return cuda.get_current_stream()

    monkeypatch.setattr(cuda, "Stream", stream)
    first, second = in_threads(2, computes_on)
    assert first is second


def test_a_card_and_the_host_go_on_from_checkpoints_of_each_other(
    a_card: Any, tmp_path: Path
) -> None:
    ways = {"host, card, host": ["CPU:0", "GPU:0", "CPU:0"], "host alone": ["CPU:0"] * 3}
    found = {}
    for way, places in ways.items():
        for place in places:
            found[way] = trained(pl.OneDeviceStrategy(place), tmp_path / way)
    for name, value in found["host alone"].items():
        np.testing.assert_allclose(
            found["host, card, host"][name], value, rtol=1e-3, atol=1e-5, err_msg=name
        )


def test_a_step_waits_for_two_cards_as_for_one(two_cards: None, tmp_path: Path) -> None:
    waits = {}
    for name, strategy in (
        ("one card", pl.OneDeviceStrategy("GPU:0")),
        ("two cards", pl.MirroredStrategy()),
    ):
        train = with_an_estimator("digits", RATE, (IMAGES, DIGITS), tmp_path / name, strategy)
        waits[name] = asked_by_a_step(train)
    assert not waits["two cards"].waits
    assert len(waits["two cards"].events) == 2 * len(waits["one card"].events)


def test_a_bucket_is_added_up_while_backward_goes_on(tmp_path: Path) -> None:
    with strict_cupy.cards(2), strict_cupy.counted() as counts:
        strategy = pl.MirroredStrategy()
        strategy.extended.bytes_per_pack = 1
        with_an_estimator("digits", RATE, (IMAGES, DIGITS), tmp_path, strategy)(2)
    places = [i for i, launch in enumerate(counts.launches) if launch.startswith("allReduce")]
    # The first step only finds out how gradients go backward.
    between = counts.launches[places[len(places) // 2] : places[-1]]
    assert any("matmul" in launch for launch in between)


@pytest.mark.parametrize("num_cards", [1, 2])
def test_a_variable_created_outside_the_scope_is_read_and_trained_by_replicas_on_cards(
    num_cards: int, two_gpus: None
) -> None:
    """It stays on the host, with what its optimizer keeps beside it."""
    table, weights = pl.Variable(np.ones((3, 2))), pl.Variable(np.ones(2))
    with pl.MirroredStrategy([f"GPU:{i}" for i in range(num_cards)]).scope() as strategy:
        own, optimizer = pl.Variable(np.ones(2)), pl.nn.optimizers.Adam(0.5)

    def step(rows: Any) -> Any:
        loss = np.sum(np.take(table, rows, axis=0) * weights * own)
        optimizer.minimize(loss, var_list=[table, weights, own])()
        return loss.device

    places = strategy.run(step, (np.array([0, 2]),))
    assert {name[-5:] for name in strategy.experimental_local_results(places)} <= {"GPU:0", "GPU:1"}
    np.testing.assert_allclose(weights.numpy(), [0.5, 0.5], rtol=1e-5)
    np.testing.assert_allclose(table.numpy()[:, 0], [0.5, 1.0, 0.5], rtol=1e-5)
    assert all(isinstance(v.local_values()[0], np.ndarray) for v in (table, weights))
    assert not isinstance(own.local_values()[0], np.ndarray)


@pytest.mark.parametrize("others", [["GPU:0", "GPU:1"], ["GPU:0", "GPU:0:1"]])
def test_what_another_strategy_keeps_on_a_card_is_read_by_replicas_on_others_and_not_trained(
    others: list[str], two_gpus: None
) -> None:
    with pl.OneDeviceStrategy("GPU:0").scope():
        weights = pl.Variable(np.ones(2), name="weights")
    strategy = pl.MirroredStrategy(others)
    found = strategy.run(lambda: (weights * 2.0).numpy())
    np.testing.assert_array_equal(np.stack(strategy.experimental_local_results(found)), 2.0)

    def step() -> None:
        pl.nn.optimizers.SGD(0.5).minimize(np.sum(weights), var_list=[weights])()

    with pytest.raises(ValueError, match=r"'weights.*' lies on GPU:0, and a replica on GPU:.*1"):
        strategy.run(step)


@pytest.mark.parametrize("ops", [pl.ReductionToOneDevice(), pl.HierarchicalCopyAllReduce()])
def test_what_replicas_on_cards_have_is_reduced_and_joined_whoever_comes_last(
    ops: Any, two_gpus: None
) -> None:
    """Each is computed on the card that it is for, also where the cards' dtypes differ."""
    strategy = pl.MirroredStrategy(["GPU:0", "GPU:1"], cross_device_ops=ops)

    def step() -> Any:
        replica = pl.get_replica_context()
        index = replica.replica_id_in_sync_group
        mine = np.full(2, index + 1.0, [np.float32, np.float64][index])
        rows = IndexedSlices(np.ones((1, 2)), np.array([index]), (2, 2))
        total, by_rows = replica.all_reduce("MEAN", (mine, rows))
        joined = replica.all_gather(np.arange(index + 1.0), axis=0)
        return total + 0, by_rows.to_dense(), joined + 0

    expected = [[1.5, 1.5], np.full((2, 2), 0.5), [0, 0, 1]]
    for parts, value in zip(strategy.run(step), expected, strict=True):
        for part in strategy.experimental_local_results(parts):
            np.testing.assert_array_equal(part, value)


@pytest.mark.parametrize("in_replicas", [True, False])
def test_gradients_in_host_memory_change_what_lies_on_cards(
    in_replicas: bool, two_gpus: None
) -> None:
    with pl.MirroredStrategy(["GPU:0", "GPU:1"]).scope() as strategy:
        whole, table = pl.Variable(np.ones(2)), pl.Variable(np.ones((2, 1)))
        optimizer = pl.nn.optimizers.SGD(0.25, momentum=0.9)
    rows = IndexedSlices(np.ones((1, 1)), np.array([1]), (2, 1))

    def change() -> None:
        optimizer.apply_gradients([(np.ones(2), whole), (rows, table)])

    if in_replicas:
        strategy.run(change)
    else:
        with strategy.scope():
            change()
    change_of_each = 0.5 if in_replicas else 0.25
    for copy in whole.local_values():
        np.testing.assert_array_equal(copy, 1 - np.full(2, change_of_each))
    for copy in table.local_values():
        np.testing.assert_array_equal(copy, [[1], [1 - change_of_each]])


def test_a_tape_finds_gradients_of_what_the_host_keeps_for_replicas_on_cards(
    two_gpus: None,
) -> None:
    """Reading such a variable makes a copy on the card; the gradient is the variable's own."""
    strategy = pl.CentralStorageStrategy(["GPU:0", "GPU:1"], parameter_device="CPU:0")
    with strategy.scope():
        x = pl.Variable(np.array([1.0, 2.0]))

    def step() -> Any:
        with pl.GradientTape() as tape:
            loss = np.sum(x * x * x)
        slope = tape.gradient(loss, x)
        return (slope * x).numpy()

    for found in strategy.experimental_local_results(strategy.run(step)):
        np.testing.assert_array_equal(found, [3, 24])


@pytest.mark.parametrize("num_batches", [1, 2])
@pytest.mark.parametrize("places", [["CPU:0"], ["GPU:0"], ["GPU:0", "GPU:1"]])
def test_a_loss_that_is_no_number_ends_the_training_at_its_step(
    places: list[str], num_batches: int, two_gpus: None, tmp_path: Path
) -> None:
    """It is read behind the step, whose losses until then hooks have had."""
    seen = []

    class Look(SessionRunHook):
        def after_run(self, run_context: Any, run_values: Any) -> None:
            seen.append(run_context.session.loss)

    def model_fn(features: Any, labels: Any, mode: str) -> EstimatorSpec:
        w = get_variable("w", (), np.float32, 1.0)
        loss = np.mean((features * w - labels) ** 2)
        train_op = SGD(0.0).minimize(loss, get_or_create_global_step())
        return EstimatorSpec(mode, loss=loss, train_op=train_op)

    x = np.arange(1.0, 25.0, dtype=np.float32)
    x[16] = np.nan
    data = pl.Dataset.from_tensor_slices((x, 0 * x))
    config = pl.RunConfig(
        model_dir=str(tmp_path),
        train_distribute=pl.MirroredStrategy(places),
        gradient_accumulation_steps=num_batches,
    )
    estimator = pl.Estimator(model_fn, config=config)
    size = 8 // (num_batches * len(places))
    with pytest.raises(NanLossDuringTrainingError):
        estimator.train(lambda: data.batch(size), hooks=[Look()])
    expected = [np.mean(x[i : i + 8] ** 2) for i in (0, 8)]
    assert seen[:2] == pytest.approx(expected, rel=1e-6)
    assert np.isnan(seen[2:]).all()


def test_a_checkpoint_goes_from_the_host_over_a_card_to_the_host_with_all_its_bits(
    a_card: Any, tmp_path: Path
) -> None:
    """Weights, what the optimizer keeps beside them, and counters."""
    with pl.OneDeviceStrategy("CPU:0").scope():
        model = pl.nn.Sequential([pl.nn.layers.BatchNormalization(), pl.nn.layers.Dense(3)])
        model.compile(pl.nn.optimizers.Adam(0.1), loss="mse")
    flat, labels = IMAGES.reshape(64, 64), np.eye(3, dtype=np.float32)[DIGITS % 3]
    model.fit(flat, labels, batch_size=16, verbose=0)
    found = [values_of(model)]
    for place in ("GPU:0", "CPU:0"):
        model.save(tmp_path / place)
        with pl.OneDeviceStrategy(place).scope():
            model = pl.nn.load_model(tmp_path / place)
        model.evaluate(flat, labels, verbose=0)  # what was saved is read when it is asked for
        with model.distribute_strategy.scope():
            model.optimizer.create_slots(model.trainable_variables)
        model.save(tmp_path / "again")  # what is created late is here then
        is_on_card = place.startswith("GPU")
        assert isinstance(model.weights[0].local_values()[0], a_card) == is_on_card
        found.append(values_of(model))
    first, *others = found
    assert len(first) == 6 + 2 * 4 + 1  # weights, two slots of each trained one, the count
    assert others == [first] * 2


def values_of(model: Any) -> list[bytes]:
    variables = (*model.weights, *model.optimizer.variables)
    return [variable.numpy().tobytes() for variable in variables]
