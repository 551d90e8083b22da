"""What models exchange over workers with cards: by NCCL, and through host memory (stand-ins)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline import collectives
from paceline.autodiff import IndexedSlices
from paceline.collectives import Communicator, PeerLostError
from paceline.strategies import Device, Strategy, StrategyExtended
from paceline.strategies.workers.nccl import join_by_nccl
from paceline.strategies.workers.workers import Workers

from ..conformance import communicator as conformance
from . import strict_cuda, strict_cupy, strict_nccl
from .exchanges import PROGRAMS, assert_alike, devices_of, on_threads, strategy_of


@pytest.fixture(autouse=True)
def four_cards() -> Iterator[None]:
    strict_cuda.HAZARDS.clear()
    with strict_cupy.cards(4), strict_nccl.nobody_waits_any_more():
        yield
    assert not strict_cuda.HAZARDS


def outcomes(
    name: str, num_workers: int, num_cards: int, by_nccl: bool, num_parts: int = 0
) -> list[list[np.ndarray]]:
    """What a program comes to on each worker."""

    def work(communicator: Communicator) -> list[np.ndarray]:
        first = devices_of(communicator.rank, num_cards, num_parts)[0]
        cards = join_by_nccl(communicator, first, strict=True) if by_nccl else None
        return PROGRAMS[name](strategy_of(communicator, cards, num_cards, num_parts))

    return conformance.results_of(on_threads, num_workers, work)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    ("num_workers", "num_cards", "num_parts"),
    [(2, 1, 0), (3, 1, 0), (2, 2, 0), (2, 1, 1), (2, 1, 2), (2, 2, 2)],
)
def test_st_24_what_cards_exchange_is_what_goes_through_host_memory(
    name, num_workers, num_cards, num_parts
):
    by_host = outcomes(name, num_workers, num_cards, False, num_parts)
    by_nccl = outcomes(name, num_workers, num_cards, True, num_parts)
    for found in by_nccl:
        assert_alike(found, by_host[0])
    assert len({b"".join(a.tobytes() for a in found) for found in by_nccl}) == 1


@pytest.mark.parametrize("num_workers", [2, 3])
def test_workers_with_cards_make_of_it_what_replicas_of_one_process_do(num_workers):
    (alone,) = [PROGRAMS["trained"](strategy_of(None, None, num_workers))]
    for found in outcomes("trained", num_workers, 1, by_nccl=True):
        assert_alike(found, alone)


def test_nothing_that_nccl_knows_goes_through_host_memory():
    """Of what `reduced` exchanges that is all; of MPI's and RING's own, float16 (the next test)."""
    found = {}
    for by_nccl in (False, True):
        with strict_cupy.counted() as counts:
            outcomes("reduced", 2, 1, by_nccl)
        found[by_nccl] = [wait for wait in counts.waits if wait.startswith("get gpu.py")]
    assert found[False]
    assert not found[True]


@pytest.mark.parametrize("name", PROGRAMS)
def test_workers_with_several_replicas_on_one_card_exchange_the_same(name):
    def work(by_nccl: bool) -> list[list[np.ndarray]]:
        def body(communicator: Communicator) -> list[np.ndarray]:
            card = f"GPU:{communicator.rank}"
            devices = [Device.parse(card), Device.parse(f"{card}:1")]
            cards = join_by_nccl(communicator, devices[0], strict=True) if by_nccl else None
            workers = Workers(communicator, cards=cards)
            extended = StrategyExtended(devices, devices, pl.NcclAllReduce(), workers)
            return PROGRAMS[name](Strategy(extended))

        return conformance.results_of(on_threads, 2, body)

    by_host = work(by_nccl=False)
    for found in work(by_nccl=True):
        assert_alike(found, by_host[0])


def with_cards(body: Any, timeout_secs: float = 20.0) -> list[Any]:
    """What each of two workers with a card comes to, as `body(workers, device, communicator)`."""

    def work(communicator: Communicator) -> Any:
        device = Device("GPU", communicator.rank)
        workers = Workers(communicator, cards=join_by_nccl(communicator, device, strict=True))
        return body(workers, device, communicator)

    return on_threads(2, work, timeout_secs)


def slices_on(
    device: Device, dtype: str = "f4", width: int = 2, num_rows: int = 3
) -> IndexedSlices:
    values, rows = np.ones((num_rows, width), dtype), np.arange(num_rows)
    return IndexedSlices(device.put(values), device.put(rows), (10, width))


@pytest.mark.parametrize("num_rows", [(0, 0), (0, 3), (5, 0), (2, 3)])
def test_rows_of_all_workers_come_in_their_order_however_many_each_has(num_rows):
    def body(workers: Workers, device: Device, communicator: Communicator) -> Any:
        own = slices_on(device, num_rows=num_rows[communicator.rank])
        parts = workers.gather_slices(own, "table")
        assert all(part.values.device.id == device.index for part in parts)
        return [(part.values.get().tolist(), part.indices.get().tolist()) for part in parts]

    expected = [([[1.0, 1.0]] * n, list(range(n))) for n in num_rows]
    assert with_cards(body) == [expected, expected]


@pytest.mark.parametrize(
    ("difference", "texts"),
    [
        ({"width": 3}, ["(float32 rows of (2,) on cards)", "(float32 rows of (3,) on cards)"]),
        ({"dtype": "f8"}, ["(float32 rows of (2,) on cards)", "(float64 rows of (2,) on cards)"]),
    ],
)
def test_rows_that_do_not_fit_together_are_named(difference, texts):
    def body(workers: Workers, device: Device, communicator: Communicator) -> None:
        options = difference if communicator.rank else {}
        workers.gather_slices(slices_on(device, **options), "table")

    for error in with_cards(body):
        assert isinstance(error, collectives.MismatchError)
        for text in texts:
            assert f"all_gather 'rows of table {text}'" in str(error)


def test_values_of_other_shapes_or_on_the_host_are_named():
    """One worker keeps on the host what the other has on its card."""

    def body(workers: Workers, device: Device, communicator: Communicator) -> None:
        value = np.ones(3, np.float32)
        workers.add_up_counted([device.put(value) if communicator.rank else value], 1, "x", 1)

    for error in with_cards(body):
        assert isinstance(error, collectives.MismatchError)
        assert "all_reduce 'x of shape (3)' of float32[4]" in str(error)
        assert "all_reduce 'x of shape (3) (float32 of 3 on cards)'" in str(error)


def test_a_worker_that_dies_between_the_rows_is_named_and_nobody_waits_for_its_card():
    """It has told how many rows it has, and its card never sends them."""

    def body(workers: Workers, device: Device, communicator: Communicator) -> None:
        if communicator.rank:
            name = "rows of table (float32 rows of (2,) on cards)"
            communicator.all_gather(np.array([3]), name)
            communicator.close("its card fell off the bus")
        else:
            workers.gather_slices(slices_on(device), "table")

    error, _ = with_cards(body)
    assert isinstance(error, PeerLostError)
    assert "rows of table (float32 rows of (2,) on cards)" in str(error)
    assert "its card fell off the bus" in str(error)


def test_a_worker_that_skips_a_reduction_of_the_model_is_named():
    def body(workers: Workers, device: Device, communicator: Communicator) -> None:
        values = [device.put(np.ones(3, np.float32))]
        for name in ("b",) if communicator.rank else ("a", "b"):
            workers.add_up_counted(values, 1, name, 1 << 20)

    for error in with_cards(body):
        assert isinstance(error, collectives.CollectiveError)
    errors = " ".join(map(str, with_cards(body)))
    for name in ("a", "b"):
        assert f"all_reduce '{name} of shape (3) (float32 of 3 on cards)'" in errors


def test_the_time_of_one_reduction_holds_on_cards_as_well():
    def body(workers: Workers, device: Device, communicator: Communicator) -> None:
        if communicator.rank:
            communicator.start_all_reduce(
                np.ones(1), "x of shape (3) (float32 of 3 on cards)"
            ).wait()
            communicator.barrier("alive")
        else:
            workers.add_up_counted(
                [device.put(np.ones(3, np.float32))], 1, "x", 1, timeout_secs=0.3
            )

    late, other = with_cards(body)
    assert isinstance(late, collectives.CollectiveTimeoutError)
    assert isinstance(other, collectives.CollectiveError)


def test_a_model_without_examples_anywhere_gets_numbers_as_ever():
    def body(communicator: Communicator) -> list[np.ndarray]:
        (device,) = devices_of(communicator.rank, 1)
        cards = join_by_nccl(communicator, device, strict=True)
        strategy = strategy_of(communicator, cards, 1)

        def step() -> Any:
            replica = pl.get_replica_context()
            replica.stand_in()
            return replica.all_reduce("MEAN", np.full(2, 4.0)).get()

        return strategy.run(step)

    for found in conformance.results_of(on_threads, 2, body):
        assert found.tolist() == [4.0, 4.0]
