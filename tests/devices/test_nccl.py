"""Arrays of several cards are added up: by NCCL, in groups, on one card (on the stand-in)."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.observe import forget_logged
from paceline.strategies import Device
from paceline.strategies.devices import gpu, nccl

from . import strict_cuda, strict_cupy, strict_nccl

NUM_CARDS = 4
OPS = {
    "one device": pl.ReductionToOneDevice(),
    "another device": pl.ReductionToOneDevice(reduce_to_device="GPU:3"),
    "accumulation_fn": pl.ReductionToOneDevice(accumulation_fn=sum),
    "groups of 2": pl.HierarchicalCopyAllReduce(group_size=2),
    "groups of 1": pl.HierarchicalCopyAllReduce(group_size=1),
    "groups of 4": pl.HierarchicalCopyAllReduce(),
    "nccl": pl.NcclAllReduce(),
}
SAME_ORDER = ("one device", "another device", "accumulation_fn", "groups of 4")


@pytest.fixture(autouse=True)
def four_cards() -> Iterator[Any]:
    strict_cuda.HAZARDS.clear()
    with strict_cupy.cards(NUM_CARDS) as library:
        yield library
    assert not strict_cuda.HAZARDS


PLACES = {
    "a card each": [(i, 0) for i in range(NUM_CARDS)],
    "one card": [(1, i) for i in range(NUM_CARDS)],
    "two of each": [(i // 2, i % 2) for i in range(NUM_CARDS)],
    "in turn": [(1, 2), (0, 0), (0, 1), (1, 1)],
}


@pytest.fixture(params=PLACES)
def devices(request: pytest.FixtureRequest) -> list[Device]:
    return [Device("GPU", index, part=part) for index, part in PLACES[request.param]]


@pytest.fixture(params=OPS)
def ops(request: pytest.FixtureRequest) -> pl.CrossDeviceOps:
    return OPS[request.param]


def card(index: int) -> Device:
    return Device("GPU", index)


CARDS = [card(i) for i in range(NUM_CARDS)]


def values_for(num: int, shape: tuple[int, ...] = (1000,), dtype: str = "float32") -> list[Any]:
    rng = np.random.default_rng(num)
    return [np.asarray(rng.normal(size=shape) * 8).astype(dtype) for _ in range(num)]


def on_cards(values: list[np.ndarray], devices: Sequence[Device] = CARDS) -> list[Any]:
    """Each on a device of its own, written there by what its replica computes."""
    return [device.put(value) for device, value in zip(devices, values, strict=False)]


@pytest.mark.parametrize(
    ("num", "shape", "dtype"),
    [
        *((num, (3, 4), "float32") for num in (1, 2, 3, NUM_CARDS)),
        *((3, shape, "float32") for shape in [(), (0,)]),
        *((2, (5,), dtype) for dtype in ("float16", "float64", "int32", "int64")),
    ],
)
def test_co_04_cards_add_up_what_the_host_adds_up(ops, devices, num, shape, dtype):
    values = values_for(num, shape, dtype)
    arrays, last = on_cards(values, devices), devices[num - 1]
    total = ops.reduce(arrays, last)
    assert (Device.of(total), total.dtype, total.shape) == (last, dtype, shape)
    rtol = 1e-2 if dtype == "float16" else 1e-5
    np.testing.assert_allclose(total.get(), np.sum(values, axis=0), rtol=rtol, atol=rtol)
    for array, value in zip(arrays, values, strict=True):
        np.testing.assert_array_equal(array.get(), value)


@pytest.mark.parametrize("name", SAME_ORDER)
def test_co_05_copies_give_the_bits_that_the_host_gives(name, devices):
    values = values_for(NUM_CARDS)
    on_host = pl.ReductionToOneDevice().reduce(values, Device("CPU", 0))
    assert (
        OPS[name].reduce(on_cards(values, devices), devices[0]).get().tobytes() == on_host.tobytes()
    )


def test_co_05_the_same_arrays_give_the_same_bits_on_all_devices(ops, devices):
    values, found = values_for(NUM_CARDS), set()
    for _ in range(3):
        arrays = on_cards(values, devices)
        ops.start_all_reduce(arrays, devices).wait()
        found |= {array.get().tobytes() for array in arrays}
    assert len(found) == 1


@pytest.mark.parametrize(
    ("where", "given"),
    [
        *(
            (where, given)
            for where in ("CPU:0", "GPU:1", "GPU:3", "GPU:1:1")
            for given in (None, "another")
        ),
        ("of the first", "the first"),
    ],
)
def test_a_sum_of_cards_goes_where_it_is_told_to(ops, devices, where, given):
    values = values_for(3, (6,))
    device = devices[0] if where == "of the first" else Device.parse(where)
    arrays = on_cards(values, devices)
    out = {
        None: None,
        "another": device.put(np.full(6, np.nan, np.float32)),
        "the first": arrays[0],
    }
    total = ops.reduce(arrays, device, out=out[given])
    assert given is None or total is out[given]
    assert Device.of(total) == device
    host = total if where == "CPU:0" else total.get()
    np.testing.assert_allclose(host, np.sum(values, axis=0), rtol=1e-5)


def test_nothing_waits_for_the_device(ops, devices):
    arrays = on_cards(values_for(NUM_CARDS), devices)
    with strict_cupy.counted() as counts:
        handle = ops.start_all_reduce(arrays, devices)
        handle.wait()
        ops.overwrite(arrays, devices)
    assert counts.waits == []
    assert counts.uploads == []


def test_a_card_goes_on_computing_while_nccl_adds_up():
    """Its own stream waits for the sum only where it is told to."""
    arrays, others = on_cards(values_for(2)), on_cards(values_for(2))
    handle = pl.NcclAllReduce().start_all_reduce(arrays, [card(0), card(1)])
    with card(0).use():
        np.multiply(others[0], 2, out=others[0])
        with pytest.raises(RuntimeError, match="without waiting for it"):
            np.multiply(arrays[0], 2, out=arrays[0])
        handle.wait()
        np.multiply(arrays[0], 2, out=arrays[0])


def test_what_is_added_up_is_what_the_card_had_computed_by_then():
    arrays = on_cards([np.ones(4, np.float32)] * 2)
    with card(1).use():
        np.multiply(arrays[1], 5, out=arrays[1])
    pl.NcclAllReduce().start_all_reduce(arrays, [card(0), card(1)]).wait()
    assert [array.get().tolist() for array in arrays] == [[6.0] * 4] * 2


def test_threads_that_reduce_at_the_same_time_agree_on_an_order():
    """As buckets are reduced by whichever replica's thread fills them last."""
    pairs = [on_cards([np.full(8, k, np.float32)] * 2) for k in range(40)]
    ops = pl.NcclAllReduce()

    def reduce(part: list[Any]) -> None:
        for arrays in part:
            ops.start_all_reduce(arrays, [card(0), card(1)]).wait()

    threads = [threading.Thread(target=reduce, args=(pairs[i::4],)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k, arrays in enumerate(pairs):
        assert [array.get().tolist() for array in arrays] == [[2.0 * k] * 8] * 2


@pytest.fixture
def lines_of_nccl(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What it has said, as in a new process."""
    forget_logged()
    caplog.set_level(logging.INFO, logger="paceline")
    return lambda: [line for line in caplog.messages if line.startswith("NcclAllReduce")]


@pytest.mark.parametrize("has_nccl", [True, False])
def test_co_03_arrays_of_one_card_need_no_nccl(has_nccl, lines_of_nccl):
    values = values_for(3)
    devices = [Device("GPU", 1, part=part) for part in range(3)]
    with strict_cupy.cards(NUM_CARDS, has_nccl=has_nccl):
        arrays = [device.put(value) for device, value in zip(devices, values, strict=True)]
        total = pl.NcclAllReduce().reduce(arrays, card(0)).get()
        pl.NcclAllReduce().start_all_reduce(arrays, devices).wait()
    for found in (total, *(array.get() for array in arrays)):
        np.testing.assert_allclose(found, np.sum(values, axis=0), rtol=1e-5, atol=1e-5)
    assert lines_of_nccl() == []


def test_co_03_without_nccl_arrays_are_copied_which_is_said_once(lines_of_nccl):
    values = values_for(3)
    with strict_cupy.cards(NUM_CARDS, has_nccl=False):
        for _ in range(2):
            total = pl.NcclAllReduce().reduce(on_cards(values), card(0)).get()
            np.testing.assert_allclose(total, np.sum(values, axis=0), rtol=1e-5, atol=1e-5)
    (line,) = lines_of_nccl()
    assert "CuPy finds no NCCL (pip install" in line


def test_nccl_that_is_asked_for_and_is_not_there_is_an_error_where_devices_are_strict():
    with strict_cupy.cards(2, has_nccl=False):
        with pytest.raises(ValueError, match="NcclAllReduce cannot work here: CuPy finds no NCCL"):
            pl.MirroredStrategy(cross_device_ops=pl.NcclAllReduce(), strict_devices=True)
        pl.MirroredStrategy(cross_device_ops=pl.NcclAllReduce())
        pl.MirroredStrategy(strict_devices=True)
    pl.MirroredStrategy(cross_device_ops=pl.NcclAllReduce(), strict_devices=True)


def test_bool_is_not_for_nccl():
    arrays = on_cards([np.array([True, False]), np.array([True, True])])
    assert pl.NcclAllReduce().reduce(arrays, card(0)).get().tolist() == [True, True]


# The stand-in itself.


@pytest.mark.parametrize("name", strict_cupy.API["nccl"])
def test_the_stand_in_has_what_cupys_nccl_has(name):
    of_class = name.startswith("NcclCommunicator.")
    ours = getattr(
        strict_nccl.NcclCommunicator if of_class else strict_nccl, name.split(".")[-1], None
    )
    if ours is None:
        pytest.skip("not used by the package")
    theirs = strict_cupy.API["nccl"][name]
    if isinstance(theirs, int):
        assert ours == theirs
        return
    names = [n for n in inspect.signature(ours).parameters if n != "self"]
    assert names == [part.split("=")[0] for part in theirs.split(", ") if part]


def test_the_stand_in_waits_for_all_ranks_and_is_told_to_abort():
    uid, made, found = strict_nccl.get_unique_id(), [None, None], [None, None]

    def join(rank: int) -> None:
        with gpu.use(rank):
            made[rank] = strict_nccl.NcclCommunicator(2, uid, rank)
            found[rank] = nccl.NcclRanks([made[rank]], [rank])

    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    arrays = on_cards([np.ones(3, np.float32)] * 2)
    (first,) = found[0].all_reduce(arrays[:1]).events
    assert not first.done
    (second,) = found[1].all_reduce(arrays[1:]).events
    assert first.done
    assert second.done
    (lonely,) = found[0].all_reduce(arrays[:1]).events
    made[0].abort()
    assert lonely.done
    lonely.synchronize()
    assert np.isnan(arrays[0].get()).all()
    with pytest.raises(strict_nccl.NcclError, match="invalid argument"):
        found[0].all_reduce(arrays[:1])


def test_the_stand_in_refuses_two_ranks_of_one_card():
    with pytest.raises(strict_nccl.NcclError, match="Duplicate GPU"):
        strict_nccl.NcclCommunicator.initAll([0, 0])


def test_the_stand_in_refuses_memory_that_another_stream_still_writes():
    array = card(0).put(np.ones(3, np.float32))
    (rank,) = strict_nccl.NcclCommunicator.initAll([0])
    with strict_cuda.Device(0):
        stream = strict_cuda.Stream(non_blocking=True)
    with pytest.raises(RuntimeError, match="without waiting for it"):
        rank.allReduce(array.data.ptr, array.data.ptr, 3, 7, 0, stream.ptr)
