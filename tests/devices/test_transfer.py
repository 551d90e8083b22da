"""Batches travel to cards on a copy stream, from pinned memory, while the cards compute."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline.inputs import InputOptions, InputReplicationMode, nest
from paceline.strategies import select_replica
from paceline.strategies.devices import gpu
from paceline.strategies.devices.device import Device
from paceline.strategies.devices.transfer import transfer_to

from . import strict_cuda as cuda
from .strict_cupy import StrictArray, counted

CARD, PART = Device("GPU", 0), Device("GPU", 0, part=2)


pytestmark = pytest.mark.usefixtures("no_hazards")


def batch(number: int, size: int = 4) -> Any:
    rng = np.random.default_rng(number)
    return {
        "image": rng.normal(size=(size, 3, 2)).astype(np.float32),
        "flags": (rng.integers(0, 2, size).astype(bool), None),
        "ids": rng.integers(0, 99, (size, 2))[:, ::-1],
        "text": np.array([f"t{i}" for i in range(size)]),
        "day": np.arange(size).astype("datetime64[D]"),
        "rate": np.array(number / 7),
    }


def assert_equal(found: Any, expected: Any) -> None:
    for one, other in zip(nest.flatten(found), nest.flatten(expected), strict=True):
        if other is None or other.dtype.kind in "UM":
            assert one is other or (one == other).all()
        else:
            assert type(one) is StrictArray
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("device", [CARD, PART])
def test_what_arrives_is_what_set_out_whatever_its_structure_and_size(
    device: Device, a_card: Any
) -> None:
    transfer = transfer_to([device])
    sizes = [4, 7, 4, 0, 1, 9, 2]
    for number, size in enumerate(sizes):
        (found,) = transfer.finish(transfer.start((batch(number, size),)))
        assert_equal(found, batch(number, size))
        arrays = [leaf for leaf in nest.flatten(found) if isinstance(leaf, StrictArray)]
        assert {Device.of(array) for array in arrays} == {device}


def test_a_batch_is_one_copy_and_the_host_waits_for_none(a_card: Any) -> None:
    transfer = transfer_to([CARD])
    with counted() as counts:
        for number in range(5):
            transfer.finish(transfer.start((batch(number),)))
    assert (len(counts.uploads), len(counts.waits)) == (5, 0)


def test_batches_that_are_kept_stay_as_they_are(a_card: Any) -> None:
    """Memory is used again for later ones, which set out three steps ahead."""
    transfer = transfer_to([CARD])
    started = [transfer.start((batch(number),)) for number in range(3)]
    kept = []
    for number in range(3, 12):
        kept += transfer.finish(started.pop(0))
        started.append(transfer.start((batch(number),)))
    for number, found in enumerate(kept):
        assert_equal(found, batch(number))


def test_who_computes_waits_for_its_own_batch_and_not_for_the_next(a_card: Any) -> None:
    transfer = transfer_to([CARD])
    first, second = transfer.start((batch(0),)), transfer.start((batch(1),))
    copying, computing = (f(gpu._cupy(), 0, 0) for f in (gpu._copy_stream, gpu._stream))
    assert copying.number in cuda._non_blocking
    transfer.finish(first)
    waited_for_one = computing.seen[copying.number]
    assert waited_for_one < copying.last
    transfer.finish(second)
    assert waited_for_one < computing.seen[copying.number]


def test_an_iterator_that_is_left_with_batches_on_their_way_does_no_harm(a_card: Any) -> None:
    transfer = transfer_to([CARD])
    for number in range(6):
        lost, taken = transfer.start((batch(number + 50),)), transfer.start((batch(number),))
        del lost
        assert_equal(transfer.finish(taken)[0], batch(number))


DATA = pl.Dataset.from_tensor_slices((np.arange(30.0), np.arange(30) % 3)).shuffle(30, seed=1)
WAYS = {
    "global batches": lambda s: s.experimental_distribute_dataset(DATA.batch(4).repeat(2)),
    "of a function": lambda s: s.distribute_datasets_from_function(lambda _: DATA.batch(2)),
    "of one for each replica": lambda s: s.distribute_datasets_from_function(
        lambda _: DATA.batch(2),
        InputOptions(experimental_replication_mode=InputReplicationMode.PER_REPLICA),
    ),
    "nothing ahead": lambda s: s.experimental_distribute_dataset(
        DATA.batch(4), InputOptions(experimental_per_replica_buffer_size=0)
    ),
}


def parts(strategy: pl.Strategy, step: Any) -> list[Any]:
    return [select_replica(step, index, 2) for index in range(2)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("names", [["GPU:0", "GPU:1"], ["GPU:1:1", "GPU:1"]], ids=" ".join)
def test_replicas_on_cards_get_the_batches_that_replicas_on_the_host_get(
    way: str, names: list[str], two_gpus: Any
) -> None:
    cards, host = pl.MirroredStrategy(names), pl.MirroredStrategy(["CPU:0", "CPU:1"])
    on_cards = [parts(cards, step) for step in WAYS[way](cards)]
    on_host = [parts(host, step) for step in WAYS[way](host)]
    assert_equal(on_cards, on_host)
    for step in on_cards:
        for name, part in zip(names, step, strict=True):
            assert {Device.of(leaf) for leaf in part} == {Device.parse(name)}


def test_a_loop_on_a_card_resumes_at_every_step_where_one_on_the_host_has_stopped(
    a_card: Any,
) -> None:
    def steps(place: str, state: Any = None, most: int = 99) -> tuple[list[Any], Any]:
        iterator = iter(pl.OneDeviceStrategy(place).experimental_distribute_dataset(DATA.batch(4)))
        if state is not None:
            iterator.set_state(state)
        found = [next(iterator) for _ in range(most)] if most < 99 else list(iterator)
        state = iterator.get_state()
        iterator.close()
        return found, state

    whole, _ = steps("CPU:0")
    for done in range(len(whole)):
        for first, then in (("CPU:0", "GPU:0"), ("GPU:0", "CPU:0")):
            begun, state = steps(first, most=done)
            rest, _ = steps(then, state)
            for found, expected in zip([*begun, *rest], whole, strict=True):
                for one, other in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(one, other)


def test_memory_for_a_number_that_nobody_reads_stays_until_it_has_come(
    a_card: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CuPy would give it to others, and nobody waits for it: there Ctrl-C would be lost."""

    def num_kept() -> int:
        gpu.Fetched(CARD.put(np.ones(1)))
        return len(kept)

    kept: dict[int, Any] = {}
    has_come = [False]
    monkeypatch.setattr(gpu, "_on_their_way", kept)
    monkeypatch.setattr(cuda.Event, "done", property(lambda _: has_come[0]))
    found = [num_kept(), num_kept()]
    has_come[0] = True  # which the next number finds
    assert [*found, num_kept()] == [1, 2, 1]
