"""Several replicas on one card, each on a stream of its own (on the stand-in)."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.autodiff import IndexedSlices, record
from paceline.strategies import Device, list_devices, set_visible_devices
from paceline.strategies.devices import gpu
from paceline.strategies.devices.download import Download

from . import strict_cuda as cuda
from . import strict_cupy
from .test_several_cards import trained, values_of
from .test_steps import DIGITS, IMAGES, RATE, asked_by_a_step, with_an_estimator

ONE_CARD = ["GPU:0", "GPU:0:1"]
FIRST, SECOND = (Device.parse(name) for name in ONE_CARD)
HOST = ["CPU:0", "CPU:1"]


@pytest.fixture(autouse=True)
def two_cards() -> Iterator[Any]:
    """No memory goes back to a stream that another one may still read."""
    cuda.HAZARDS.clear()
    with strict_cupy.cards(2) as library:
        yield library
    gc.collect()
    assert not cuda.HAZARDS, cuda.HAZARDS


WAYS = {
    "by default": None,
    "NCCL": pl.NcclAllReduce(),
    "one device": pl.ReductionToOneDevice(),
    "groups": pl.HierarchicalCopyAllReduce(group_size=2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "devices",
    [
        ONE_CARD,
        ["GPU:1:1", "GPU:1:2", "GPU:1:5"],
        ["GPU:0", "GPU:0:1", "GPU:1", "GPU:1:1"],
        ["GPU:0", "GPU:1", "GPU:0:1"],
    ],
    ids=" ".join,
)
def test_replicas_that_share_a_card_learn_what_replicas_on_the_host_learn(
    devices: list[str], way: str, tmp_path: Path
) -> None:
    """Over batches that are uneven at the end, and with what an optimizer keeps."""
    strategy = pl.MirroredStrategy(devices, cross_device_ops=WAYS[way])
    assert repr(strategy) == f"MirroredStrategy({', '.join(devices)})"
    cards = trained(strategy, tmp_path / "cards")
    host = pl.MirroredStrategy([f"CPU:{i}" for i in range(len(devices))])
    for name, value in trained(host, tmp_path / "host").items():
        np.testing.assert_allclose(cards[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_a_step_waits_for_two_replicas_of_a_card_as_for_one(tmp_path: Path) -> None:
    waits = {}
    for name, devices in (("one", ["GPU:0"]), ("two", ONE_CARD)):
        strategy = pl.MirroredStrategy(devices)
        train = with_an_estimator("digits", RATE, (IMAGES, DIGITS), tmp_path / name, strategy)
        waits[name] = asked_by_a_step(train)
    assert not waits["two"].waits
    assert len(waits["two"].events) == 2 * len(waits["one"].events)


def test_fit_and_evaluate_have_metrics_and_a_loss_of_all_replicas() -> None:
    found = {}
    for name, devices in (("host", HOST), ("card", ONE_CARD)):
        with pl.MirroredStrategy(devices).scope():
            pl.set_seed(1)
            model = pl.nn.Sequential(
                [
                    pl.nn.layers.Flatten(),
                    pl.nn.layers.BatchNormalization(synchronized=True),
                    pl.nn.layers.Dense(10),
                ]
            )
            loss = pl.nn.losses.SparseCategoricalCrossentropy(from_logits=True)
            model.compile(pl.nn.optimizers.Adam(0.01), loss, metrics=["accuracy"])
        history = model.fit(IMAGES[:50], DIGITS[:50], batch_size=16, epochs=2, verbose=0).history
        found[name] = {**history, "evaluated": model.evaluate(IMAGES[:21], DIGITS[:21], verbose=0)}
    for name, value in found["host"].items():
        np.testing.assert_allclose(found["card"][name], value, rtol=1e-3, err_msg=name)


def test_a_checkpoint_goes_from_the_host_over_a_shared_card_to_the_host_with_all_its_bits(
    tmp_path: Path,
) -> None:
    with pl.MirroredStrategy(HOST).scope():
        model = pl.nn.Sequential([pl.nn.layers.BatchNormalization(), pl.nn.layers.Dense(3)])
        model.compile(pl.nn.optimizers.Adam(0.1), loss="mse")
    flat, labels = IMAGES.reshape(64, 64), np.eye(3, dtype=np.float32)[DIGITS % 3]
    model.fit(flat, labels, batch_size=16, verbose=0)
    found = [values_of(model)]
    for number, devices in enumerate((ONE_CARD, HOST)):
        model.save(tmp_path / str(number))
        with pl.MirroredStrategy(devices).scope():
            model = pl.nn.load_model(tmp_path / str(number))
        model.evaluate(flat, labels, verbose=0)  # what was saved is read when it is asked for
        with model.distribute_strategy.scope():
            model.optimizer.create_slots(model.trainable_variables)
        homes = [gpu.home(v) for v in model.weights[0].local_values() if devices is ONE_CARD]
        assert homes == [(0, 0), (0, 1)][: len(homes)]
        found.append(values_of(model))
    assert found[1:] == found[:1] * 2


def test_each_replica_has_a_copy_of_a_variable_and_reads_its_own() -> None:
    with pl.MirroredStrategy(ONE_CARD).scope() as strategy:
        whole = pl.Variable(np.ones(2))
        own = pl.Variable(
            0.0,
            synchronization=pl.VariableSynchronization.ON_READ,
            aggregation=pl.VariableAggregation.SUM,
        )

    def step() -> Any:
        index = pl.get_replica_context().replica_id_in_sync_group
        own.assign_add(index + 1.0)
        return whole * (own + 0.0)

    for index, found in enumerate(strategy.experimental_local_results(strategy.run(step))):
        assert gpu.home(found.data) == (0, index)
        np.testing.assert_array_equal(found.data, np.full(2, index + 1.0))
    assert own.numpy() == 3
    with strategy.scope():
        whole.assign([5.0, 6.0])
    assert [copy.get().tolist() for copy in whole.local_values()] == [[5.0, 6.0]] * 2


def test_what_replicas_of_a_card_have_is_reduced_joined_and_handed_on() -> None:
    strategy = pl.MirroredStrategy(ONE_CARD)

    def step() -> Any:
        replica = pl.get_replica_context()
        index = replica.replica_id_in_sync_group
        rows = IndexedSlices(np.ones((1, 2)), np.array([index]), (2, 2))
        total, by_rows = replica.all_reduce("MEAN", (np.full(2, index + 1.0), rows))
        joined = replica.all_gather(np.arange(index + 1.0), axis=0)
        merged = replica.merge_call(lambda s, part: s.reduce("SUM", part), (total + index,))
        return total + 0, by_rows.to_dense(), joined + 0, merged

    parts = strategy.run(step)
    for part, value in zip(
        parts, [[1.5] * 2, np.full((2, 2), 0.5), [0, 0, 1], [4, 4]], strict=True
    ):
        for found in strategy.experimental_local_results(part):
            np.testing.assert_array_equal(found, value)
    assert strategy.reduce("SUM", parts[0], axis=None).tolist() == [3, 3]


# Where arrays are at home.


def test_an_array_belongs_to_the_part_that_has_made_it_and_so_do_its_views(two_cards: Any) -> None:
    assert gpu.home(two_cards.array(np.ones(3))) == (0, 0)  # outside replicas
    for device in (FIRST, SECOND, Device("GPU", 1, part=3)):
        array = device.put(np.ones((2, 3)))
        with device.use():
            made = [
                array,
                array[1:],
                array.T,
                array.reshape(-1),
                array * 2,
                np.zeros(2, like=array),
            ]
        assert {Device.of(one) for one in made} == {device}


def test_within_another_part_arrays_are_that_ones(two_cards: Any) -> None:
    array = FIRST.put(np.ones(3))
    with SECOND.use():
        with FIRST.use():
            assert Device.of(array * 2) == FIRST
            with SECOND.use():
                assert Device.of(two_cards.array(np.ones(2))) == SECOND
        with Device("GPU", 1).use():
            assert Device.of(two_cards.array(np.ones(2))) == Device("GPU", 1)
        assert Device.of(two_cards.array(np.ones(2))) == SECOND
    assert Device.of(two_cards.array(np.ones(2))) == FIRST


def test_memory_comes_from_the_programs_allocator_if_it_has_one(two_cards: Any) -> None:
    sizes = []

    def own(size: int) -> Any:
        sizes.append(size)
        return two_cards.cuda.MemoryPointer(two_cards.cuda.UnownedMemory(0, size, None, 0), 0)

    with two_cards.cuda.using_allocator(own):
        for device in (FIRST, SECOND):
            assert Device.of(device.put(np.ones(3))) == device
    assert len(sizes) == 2


@pytest.mark.parametrize(
    ("source", "target"),
    [(FIRST, SECOND), (SECOND, FIRST), (SECOND, Device("GPU", 1)), (SECOND, Device("CPU"))],
    ids=lambda device: device.short_name,
)
def test_who_needs_an_array_of_another_part_has_a_copy_that_stays_as_it_is(
    source: Device, target: Device
) -> None:
    array = source.put(np.ones(3))
    assert source.bring(array) is array
    with source.use():
        array *= 2  # the copy waits for this
    copy = target.bring(array)
    with source.use():
        array *= 2  # this waits for the copy
        np.add(array, 1, out=array)
    del array  # its memory, too, goes on behind the copy
    with target.use():
        np.testing.assert_array_equal((copy + 0) if target.kind == "CPU" else (copy + 0).get(), 2)


def test_who_reads_an_array_of_another_part_without_a_copy_is_found_out() -> None:
    array = FIRST.put(np.ones(3))
    with SECOND.use(), pytest.raises(RuntimeError, match="without waiting for it"):
        np.multiply(array, 2)


def test_a_download_copies_where_an_array_is_at_home_whoever_is_about_to_change_it() -> None:
    array, target = SECOND.put(np.ones(4)), np.zeros(4)
    download = Download({"w": [(target, array)]})
    with FIRST.use():
        download.before_change["w"]()
    with SECOND.use():
        array *= 5
    download.finish()
    np.testing.assert_array_equal(target, 1)


# Buckets.


def buffers(*devices: Device) -> list[Any]:
    return [device.put(np.full(4, i + 1.0, np.float32)) for i, device in enumerate(devices)]


def test_parts_go_on_computing_while_their_gradients_are_added_up() -> None:
    """Their own streams wait for the sum only where they are told to."""
    arrays, others = buffers(FIRST, SECOND), buffers(FIRST, SECOND)
    for device, array in zip((FIRST, SECOND), arrays, strict=True):
        with device.use():
            np.multiply(array, 2, out=array)
    handle = pl.NcclAllReduce().start_all_reduce(arrays, (FIRST, SECOND))
    for device, array, other in zip((FIRST, SECOND), arrays, others, strict=True):
        with device.use():
            np.multiply(other, 2, out=other)
            with pytest.raises(RuntimeError, match="without waiting for it"):
                np.multiply(array, 2, out=array)
    handle.wait()
    for device, array in zip((FIRST, SECOND), arrays, strict=True):
        with device.use():
            np.multiply(array, 2, out=array)
    assert [array.get().tolist() for array in arrays] == [[12.0] * 4] * 2


def test_adding_up_on_a_card_is_a_kernel_for_each_other_part_and_one_to_hand_it_on() -> None:
    devices = [FIRST, SECOND, Device("GPU", 0, part=2)]
    arrays = buffers(*devices)
    with strict_cupy.counted() as counts:
        pl.NcclAllReduce().start_all_reduce(arrays, devices).wait()
    names = [launch.split()[0] for launch in counts.launches]
    assert names == ["add", "add", "setitem", "setitem"]
    assert counts.waits == counts.uploads == []


class OwnSum(pl.CrossDeviceOps):
    """Brings what it adds up to where it is for, and leaves `out` aside."""

    def reduce(self, arrays: Any, destination: Device, out: Any = None) -> Any:
        return sum(destination.bring(array) for array in arrays)


def test_a_sum_of_ones_own_is_computed_where_it_is_for_whoever_asks() -> None:
    arrays, devices = buffers(FIRST, SECOND), (FIRST, SECOND)
    with SECOND.use():
        OwnSum().start_all_reduce(arrays, devices).wait()
        (total,) = OwnSum().batch_reduce([arrays], [FIRST])
    assert Device.of(total) == FIRST
    assert [array.get().tolist() for array in (*arrays, total)] == [[3.0] * 4] * 2 + [[6.0] * 4]


def test_gradients_that_nobody_waits_for_any_more_give_their_memory_back_behind_the_sum() -> None:
    arrays = buffers(FIRST, SECOND)
    kept = [weakref.ref(array) for array in arrays]
    handle = pl.NcclAllReduce().start_all_reduce(arrays, (FIRST, SECOND))
    del arrays, handle  # as a step that fails lets go of them
    assert all(array() is not None for array in kept)
    pl.NcclAllReduce().start_all_reduce(buffers(FIRST, SECOND), (FIRST, SECOND)).wait()
    assert all(array() is None for array in kept)


def test_a_step_that_failed_has_no_part_in_the_next_one() -> None:
    """What the failed one had begun to add up is over before buckets are filled again."""
    with pl.MirroredStrategy(ONE_CARD).scope() as strategy:
        first, second = pl.Variable(np.ones(2)), pl.Variable(np.ones(3))
        optimizer = pl.nn.optimizers.SGD(0.5)
    strategy.extended.bytes_per_pack = 1

    def step(fails: bool) -> None:
        loss = np.sum(np.square(failing(first) if fails else first)) + np.sum(second)
        optimizer.minimize(loss, var_list=[first, second])()

    def failing(variable: pl.Variable) -> Any:
        tensor = variable.tensor()
        return record(tensor.data, (tensor,), lambda gradient, outs: 1 / 0)  # behind the other's

    strategy.run(step, (False,))
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            strategy.run(step, (True,))
    strategy.run(step, (False,))
    assert [copy.get().tolist() for copy in first.local_values()] == [[0.0, 0.0]] * 2
    assert [copy.get().tolist() for copy in second.local_values()] == [[0.0] * 3] * 2


# Names.


def test_visible_logical_devices_of_a_card_are_taken_by_default() -> None:
    set_visible_devices(["GPU:1:1", "GPU:1"], "GPU")
    try:
        assert [d.short_name for d in list_devices("GPU")] == ["GPU:1:1", "GPU:1"]
        assert repr(pl.MirroredStrategy()) == "MirroredStrategy(GPU:1:1, GPU:1)"
    finally:
        set_visible_devices(None, "GPU")


@pytest.mark.parametrize(
    ("devices", "error"),
    [
        (["GPU:0", "GPU:0"], "GPU:0 more than once; .* as logical devices: 'GPU:0', 'GPU:0:1'"),
        (["GPU:0", "GPU:0:0"], "GPU:0 more than once"),
        (["GPU:0:1", "GPU:7:1"], "asks for GPU:7:1, but there are 2"),
        (["CPU:0:1"], "CPUs are logical, 'CPU:1' is another one"),
    ],
)
def test_devices_that_cannot_be_meant_are_refused(devices: list[str], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        pl.MirroredStrategy(devices, strict_devices=True)
