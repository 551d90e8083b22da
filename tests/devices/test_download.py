"""Values of cards are saved while these compute: a step waits for nothing, who writes once."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.checkpoint import Saver, keep_last, list_checkpoints, load
from paceline.estimator import SessionRunHook
from paceline.nn import optimizers
from paceline.strategies import VariableStore
from paceline.strategies.devices import download as module
from paceline.strategies.devices import gpu
from paceline.strategies.devices.device import Device
from paceline.strategies.devices.download import Download

from . import strict_cuda as cuda
from .strict_cupy import StrictArray, counted, to_device

RNG = np.random.default_rng(0)


pytestmark = pytest.mark.usefixtures("no_hazards")

VALUES = {
    "matrix": RNG.normal(size=(7, 5)).astype(np.float32),
    "transposed": RNG.normal(size=(4, 6)).T,
    "number": np.array(3.5, np.float16),
    "flags": RNG.random(9) < 0.5,
    "nothing": np.zeros((0, 4)),
    "counts": RNG.integers(0, 9, (2, 3)),
}


def on_cards(num_cards: int) -> dict[str, StrictArray]:
    return {
        name: to_device(value, index % num_cards)
        for index, (name, value) in enumerate(VALUES.items())
    }


def started(arrays: dict[str, Any]) -> tuple[dict[str, np.ndarray], Download]:
    targets = {name: np.empty(a.shape, a.dtype) for name, a in arrays.items()}
    return targets, Download({name: [(targets[name], a)] for name, a in arrays.items()})


def overwrite(arrays: dict[str, Any], download: Download) -> None:
    """What a step does, on the streams of the cards."""
    for name, array in arrays.items():
        with Device("GPU", array.device.id).use():
            download.before_change[name]()
            array[...] = 0


def assert_as_before(targets: dict[str, np.ndarray]) -> None:
    for name, value in VALUES.items():
        np.testing.assert_array_equal(targets[name], value, err_msg=name)


@pytest.mark.parametrize("num_cards", [1, 2])
def test_a_download_waits_once_for_each_card(num_cards: int, two_gpus: Any) -> None:
    arrays = on_cards(num_cards)
    with counted() as counts:
        targets, download = started(arrays)
        download.finish()
    assert_as_before(targets)
    assert (len(counts.events), counts.waits) == (num_cards, [])


@pytest.mark.parametrize("free_bytes", [1 << 30, 100, 0])
@pytest.mark.parametrize("num_cards", [1, 2])
@pytest.mark.parametrize("room_bytes", [16, 100, 1 << 20])
def test_what_arrives_is_of_the_moment_of_the_start_whenever_it_is_overwritten(
    room_bytes: int, num_cards: int, free_bytes: int, two_gpus: Any, monkeypatch: Any
) -> None:
    """Before the download begins, while it waits for its n-th filling, and when it has ended."""
    monkeypatch.setattr(module, "ROOM_BYTES", room_bytes)
    monkeypatch.setattr(gpu._cupy().cuda, "free_bytes", free_bytes)
    num_waits = overwritten_at = 0
    while overwritten_at <= num_waits + 1:
        num_waits = max(num_waits, overwritten_at_wait(overwritten_at, num_cards, monkeypatch))
        overwritten_at += 1
    assert num_waits >= num_cards


def overwritten_at_wait(number: int, num_cards: int, monkeypatch: Any) -> int:
    """A download, all of whose arrays are overwritten in the midst; how often it has waited."""
    arrays = on_cards(num_cards)
    targets, download = started(arrays)
    waits = 0
    if number == 0:
        overwrite(arrays, download)

    def waiting() -> None:
        nonlocal waits
        waits += 1
        if waits == number:
            overwrite(arrays, download)

    with monkeypatch.context() as patches:
        patches.setattr(cuda, "on_event_wait", waiting)
        download.finish()
    if waits < number:
        overwrite(arrays, download)
    assert_as_before(targets)
    for array in arrays.values():
        assert not np.any(np.asarray(array))
    return waits


def test_a_step_waits_only_where_the_card_has_no_room_for_a_copy(
    a_card: Any, monkeypatch: Any
) -> None:
    for free_bytes, num_waits in [(1 << 30, 0), (0, len(VALUES) - 1)]:
        monkeypatch.setattr(gpu._cupy().cuda, "free_bytes", free_bytes)
        arrays = on_cards(1)
        targets, download = started(arrays)
        with counted() as counts:
            overwrite_by_the_package(arrays, download)
        assert len(counts.waits) == num_waits, counts.waits
        download.finish()
        assert_as_before(targets)


def overwrite_by_the_package(arrays: dict[str, Any], download: Download) -> None:
    for name, array in arrays.items():
        with Device("GPU", array.device.id).use():
            download.before_change[name]()


def test_a_step_may_keep_what_arrives_at_that_moment(
    a_card: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = on_cards(1)
    targets, download = started(arrays)
    is_queued, may_arrive = threading.Event(), threading.Event()
    writer = threading.Thread(target=download.finish)

    def until_it_may_arrive() -> None:
        is_queued.set()
        may_arrive.wait(20)

    class ArrivesMeanwhile:
        """Asked whether the source is a copy, behind the look whether it has arrived."""

        def __bool__(self) -> bool:
            may_arrive.set()
            writer.join(timeout=0.2)
            return False

    monkeypatch.setattr(cuda, "on_event_wait", until_it_may_arrive)
    download._sources["matrix"][0].is_own = ArrivesMeanwhile()  # type: ignore[assignment]
    writer.start()
    is_queued.wait(20)
    with Device("GPU", 0).use():
        download.before_change["matrix"]()
    writer.join()
    assert_as_before(targets)


def test_an_array_that_nobody_else_holds_any_more_arrives(a_card: Any) -> None:
    arrays = on_cards(1)
    targets, download = started(arrays)
    with Device("GPU", 0).use():
        del arrays
        gc.collect()
        others = [to_device(np.full((7, 5), 9, np.float32)) for _ in range(20)]
    download.finish()
    assert_as_before(targets)
    assert len(others) == 20


def model(num_variables: int) -> tuple[pl.Strategy, VariableStore, Callable[[], None]]:
    strategy, store = pl.OneDeviceStrategy("GPU:0"), VariableStore()
    optimizer = optimizers.Adam(0.1)

    def step() -> None:
        with store.building():
            values = [
                pl.get_variable(f"w{i}", (3, 2), initializer=float(i)) for i in range(num_variables)
            ]
            optimizer.minimize(sum(np.sum(np.square(value)) for value in values))()

    return strategy, store, step


@pytest.mark.parametrize("num_variables", [1, 40])
def test_a_save_of_any_number_of_variables_is_one_wait_of_the_thread_that_writes(
    num_variables: int, a_card: Any, tmp_path: Path
) -> None:
    strategy, store, step = model(num_variables)
    with Saver(tmp_path, keep_last(None)) as saver, strategy.scope():
        strategy.run(step)
        for number in range(3):
            with counted() as counts:
                expected = {name: np.array(a) for name, a in store.saved_arrays().items()}
                arrays = store.saved_arrays()
                store.lend(saver.start(number, arrays, download=Download))
                strategy.run(step)
                saver.wait()
            assert not counts.waits, counts.waits
            assert len(counts.events) == 1, counts.events
            found = load(tmp_path / f"model.ckpt-{number}").arrays()
            assert found.keys() == expected.keys()
            for name, value in expected.items():
                np.testing.assert_array_equal(found[name], value)


def linear_model(features: Any, labels: Any, mode: str) -> pl.EstimatorSpec:
    w = pl.get_variable("w", (3, 1), initializer=0.0)
    table = pl.get_variable("table", (50, 4), initializer=1.0)
    seen = pl.get_variable(
        "seen",
        (),
        np.float32,
        0.0,
        trainable=False,
        synchronization=pl.VariableSynchronization.ON_READ,
        aggregation=pl.VariableAggregation.SUM,
    )
    seen.assign_add(float(len(features)))
    loss = np.mean(np.square(features @ w - labels)) + np.mean(table) * 0.1
    return pl.EstimatorSpec(mode, loss=loss, train_op=optimizers.Adam(0.1).minimize(loss))


class Notes(SessionRunHook):
    """What the variables were behind each step."""

    def __init__(self) -> None:
        self.values: dict[int, dict[str, np.ndarray]] = {}

    def after_run(self, run_context: Any, run_values: Any) -> None:
        session = run_context.session
        found = {name: np.array(value) for name, value in session.values().items()}
        self.values[session.global_step] = found


STRATEGIES = {
    "one card": lambda: pl.OneDeviceStrategy("GPU:0"),
    "two replicas of one card": lambda: pl.MirroredStrategy(["GPU:0", "GPU:0:1"]),
    "two cards": lambda: pl.MirroredStrategy(["GPU:0", "GPU:1"]),
    "variables of the host": lambda: pl.CentralStorageStrategy(["GPU:0", "GPU:1"]),
}


@pytest.mark.parametrize("free_bytes", [1 << 30, 0])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_checkpoints_of_a_training_have_the_values_of_their_steps(
    strategy: str, free_bytes: int, two_gpus: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(gpu._cupy().cuda, "free_bytes", free_bytes)
    x = RNG.normal(size=(32, 3)).astype(np.float32)
    data = pl.Dataset.from_tensor_slices((x, x.sum(axis=1, keepdims=True))).repeat().batch(8)
    config = pl.RunConfig(
        train_distribute=STRATEGIES[strategy](), save_checkpoints_steps=1, keep_checkpoint_max=None
    )
    notes = Notes()
    estimator = pl.Estimator(linear_model, tmp_path, config)
    estimator.train(lambda: data, steps=6, hooks=[notes])
    saved = {step: load(path).arrays() for path, step in list_checkpoints(tmp_path)}
    assert sorted(saved) == list(range(7))  # on disk when train returns
    for step, values in notes.values.items():
        assert saved[step].keys() == values.keys()
        for name, value in values.items():
            np.testing.assert_array_equal(saved[step][name], value, err_msg=f"{name}, {step}")


def test_without_a_download_what_lies_on_a_card_is_refused(a_card: Any, tmp_path: Path) -> None:
    with (
        Saver(tmp_path) as saver,
        pytest.raises(
            TypeError, match="'w' must be a NumPy array or a list of TensorSlice; got StrictArray"
        ),
    ):
        saver.save(0, {"w": to_device(np.zeros(3))})


@pytest.mark.parametrize("error", [RuntimeError("cudaErrorIllegalAddress"), KeyboardInterrupt()])
def test_an_error_of_the_card_is_told_and_leaves_neither_a_checkpoint_nor_a_copy_on_its_way(
    error: BaseException, a_card: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    strategy, store, step = model(2)
    errors = [error]

    def waiting() -> None:
        if errors:
            raise errors.pop()

    with strategy.scope(), Saver(tmp_path) as saver:
        strategy.run(step)
        monkeypatch.setattr(cuda, "on_event_wait", waiting)
        store.lend(saver.start(0, store.saved_arrays(), download=Download))
        with pytest.raises(type(error)) as told:
            saver.wait()
        assert told.value is error
        strategy.run(step)
    assert list(tmp_path.glob("*ckpt*")) == []
    assert not gpu._download_stream(gpu._cupy(), 0).downloads
