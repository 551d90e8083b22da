"""Gradients on cards are added up over workers by NCCL (on the stand-in; workers are threads)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import paceline as pl
from paceline import collectives
from paceline.collectives import Communicator, Op, PeerLostError
from paceline.nn import layers, optimizers
from paceline.strategies import Device, Strategy, StrategyExtended, VariableStore
from paceline.strategies.devices import nccl
from paceline.strategies.workers.joining import join_cards
from paceline.strategies.workers.nccl import Account, NcclWorkers, join_by_nccl, obstacle
from paceline.strategies.workers.workers import Workers

from ..conformance import communicator as conformance
from . import strict_cuda, strict_cupy, strict_nccl
from .exchanges import on_threads

NUM_CARDS = 4
SIZES = (1, 2, 3)


@pytest.fixture(autouse=True)
def four_cards() -> Iterator[None]:
    strict_cuda.HAZARDS.clear()
    with strict_cupy.cards(NUM_CARDS), strict_nccl.nobody_waits_any_more():
        yield
    assert not strict_cuda.HAZARDS


def run(size: int, body: Callable[[Any], Any], timeout_secs: float = 20.0) -> list[Any]:
    """One outcome for each worker, of its own card: what `body` has returned or raised."""

    def with_card(communicator: Communicator) -> Any:
        device = Device("GPU", communicator.rank)
        cards = join_by_nccl(communicator, device, strict=True)
        return body(OnCards(communicator, cards, device))

    return on_threads(size, with_card, timeout_secs)


class OnCards:
    """A communicator whose sums are made on cards, where NCCL knows their dtype."""

    def __init__(self, communicator: Communicator, cards: NcclWorkers, device: Device) -> None:
        self._communicator, self.cards, self.device = communicator, cards, device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._communicator, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name in ("_communicator", "cards", "device")
        object.__setattr__(self if own else self._communicator, name, value)

    def __enter__(self) -> OnCards:
        return self

    def __exit__(self, *exc_info: Any) -> None:
        self._communicator.__exit__(*exc_info)

    def all_reduce(self, array: np.ndarray, name: str, op: Op = Op.SUM) -> None:
        if op is not Op.SUM or type(array) is not np.ndarray or not nccl.knows(array.dtype):
            self._communicator.all_reduce(array, name, op)
            return
        on_card = self.device.put(array)
        self.cards.start_all_reduce(on_card, np.zeros(1), name).wait()
        array[...] = on_card.get()


CASES = [
    case
    for case in conformance.cases(SIZES)
    if case.name in ("all_reduce", "equal bits", "shapes", "many calls of one name", "closed")
    and (not case.arguments or case.arguments[-1] is Op.SUM)
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_sums_on_cards_are_those_of_a_communicator(case):
    case(run)


def test_a_worker_that_raises_is_named_and_nobody_waits_for_its_card():
    def body(communicator: Any) -> None:
        array = np.zeros(1000)
        with communicator:
            for turn in range(5):
                if turn == 3 and communicator.rank == 2:
                    raise KeyError("no such column")
                communicator.all_reduce(array, "gradients")

    first, second, last = run(3, body)
    assert isinstance(last, KeyError)
    for outcome in (first, second):
        assert isinstance(outcome, PeerLostError)
        assert "all_reduce 'gradients (float64 of 1000 on cards)'" in str(outcome)
    assert any("no such column" in str(outcome) for outcome in (first, second))


def test_a_worker_that_dies_in_the_midst_of_a_sum_is_named():
    """It has come to the call, by its numbers, and its card never did."""

    def body(communicator: Any) -> None:
        if communicator.rank == 1:
            name = "gradients (float64 of 8 on cards)"
            communicator.start_all_reduce(np.zeros(1), name).wait()
            communicator.close("its card fell off the bus")
        else:
            communicator.all_reduce(np.zeros(8), "gradients")

    error, _ = run(2, body)
    assert isinstance(error, PeerLostError)
    assert "gradients (float64 of 8 on cards)" in str(error)
    assert "its card fell off the bus" in str(error)


def test_a_card_that_never_comes_is_an_error_at_the_deadline_on_all():
    def body(communicator: Any) -> None:
        if communicator.rank == 1:
            name = "gradients (float64 of 8 on cards)"
            communicator.start_all_reduce(np.zeros(1), name).wait()
            communicator.barrier("alive")
        else:
            communicator.all_reduce(np.zeros(8), "gradients")

    late, other = run(2, body, timeout_secs=0.5)
    assert isinstance(late, collectives.CollectiveTimeoutError)
    assert "does not say which card" in str(late)
    assert "rank 1" in str(late)
    assert isinstance(other, collectives.CollectiveError)


def test_at_the_end_of_the_program_no_card_waits_for_what_was_begun():
    def body(communicator: Any) -> None:
        array = communicator.device.put(np.ones(3))
        if communicator.rank == 0:
            communicator.cards.start_all_reduce(array, np.zeros(1), "a")
        communicator.cards.leave()
        array.device.synchronize()

    assert run(2, body) == [None, None]


def test_what_was_waited_for_is_not_given_up_at_the_end_of_the_program():
    """Others may still be at it, and even go on."""

    def body(communicator: Any) -> list[float]:
        array = np.ones(3)
        for _ in range(2):
            communicator.all_reduce(array, "a")
            communicator.cards.leave()
        return array.tolist()

    assert run(2, body) == [[4.0] * 3] * 2


@pytest.mark.parametrize("difference", ["name", "length", "dtype"])
def test_workers_that_do_not_do_the_same_are_named(difference):
    other = {"name": ("b", 3, "f4"), "length": ("a", 4, "f4"), "dtype": ("a", 3, "f8")}[difference]

    def body(communicator: Any) -> None:
        name, length, dtype = other if communicator.rank else ("a", 3, "f4")
        communicator.all_reduce(np.ones(length, dtype), name)

    for error in run(2, body):
        assert isinstance(error, collectives.MismatchError)
        assert "all_reduce 'a (float32 of 3 on cards)'" in str(error)


def test_what_nccl_reports_by_itself_ends_all():
    def body(communicator: Any) -> None:
        communicator.barrier("start")
        if communicator.rank == 1:
            communicator.start_all_reduce(np.zeros(1), "a (float32 of 3 on cards)").wait()
            communicator.barrier("never")
        else:
            communicator.all_reduce(np.zeros(3, np.float32), "a")

    with strict_nccl.broken("remote process exited or there was a network error"):
        error, other = run(2, body)
    assert "remote process exited" in str(error)
    assert "remote process exited" in str(other)
    assert isinstance(other, PeerLostError)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"implementation": "AUTO"}, []),
        ({"implementation": "NCCL", "wire_dtype": "float16"}, ["wire_dtype='float16' needs"] * 2),
    ],
)
def test_nccl_is_for_those_who_ask_for_it_and_for_nothing_else(options, said, caplog):
    def body(communicator: Communicator) -> Any:
        device = Device("GPU", communicator.rank)
        return join_cards(communicator, pl.CommunicationOptions(**options), device, strict=False)

    assert on_threads(2, body) == [None, None]
    assert len(caplog.records) == len(said)
    for record, text in zip(caplog.records, said, strict=True):
        assert text in record.getMessage()


HERE = Account("", "0000:01:00.0 of m", 22707)


@pytest.mark.parametrize(
    ("accounts", "text"),
    [
        ([HERE, Account("", "0000:02:00.0 of m", 22707)], ""),
        ([HERE, Account("", "0000:01:00.0 of n", 22707)], ""),
        ([HERE, HERE], "workers 0 and 1 have the same card (GPU 0000:01:00.0 of m)"),
        ([HERE, Account("paceline finds no GPU there")], "worker 1: paceline finds no GPU there"),
        ([HERE, Account("", "another", 22800)], "different versions of NCCL ([22707, 22800])"),
    ],
)
def test_why_nccl_cannot_join_workers(accounts, text):
    assert text in obstacle(accounts)
    assert bool(obstacle(accounts)) == bool(text)


@pytest.mark.parametrize("strict", [False, True])
def test_workers_that_share_a_card_go_through_host_memory_which_is_said(strict, caplog):
    def body(communicator: Communicator) -> Any:
        return join_by_nccl(communicator, Device("GPU", 1), strict)

    outcomes = on_threads(2, body)
    said = outcomes if strict else [r.getMessage() for r in caplog.records]
    assert len(said) == 2
    for text in said:
        assert "communication is NCCL, but workers 0 and 1 have the same card" in str(text)
    assert strict or outcomes == [None, None]


def trained(
    num_workers: int, num_cards: int, by_nccl: bool, num_steps: int = 3
) -> tuple[np.ndarray, list[str]]:
    """What workers with a few cards each learn in some steps, and what their cards were asked."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(2, 5, 8, 5)).astype(np.float32)

    def train(communicator: Communicator) -> np.ndarray:
        devices = [Device("GPU", communicator.rank * num_cards + i) for i in range(num_cards)]
        cards = join_by_nccl(communicator, devices[0], strict=True) if by_nccl else None
        workers = Workers(communicator, cards=cards)
        ops = pl.NcclAllReduce()
        strategy = Strategy(StrategyExtended(devices, devices, ops, workers, bytes_per_pack=8))
        num_replicas = num_workers * num_cards

        def step(number: int) -> None:
            context = pl.get_replica_context()
            replica = context.replica_id_in_sync_group
            rows = slice(replica, None, num_replicas)
            model = layers.Dense(5, name="model")
            loss = np.mean(np.square(model(x[number][rows]) - y[number][rows]))
            optimizers.SGD(0.1, momentum=0.9).minimize(loss)(len(x[number][rows]))

        store = VariableStore(seed=1)
        for number in range(num_steps):
            with store.building():
                strategy.run(step, (number,))
        return np.concatenate([v.numpy().reshape(-1) for v in store.trainable_variables()])

    with strict_cupy.counted() as counts:
        found = conformance.results_of(on_threads, num_workers, train)
    assert len({variables.tobytes() for variables in found}) == 1
    return found[0], counts.launches


@pytest.mark.parametrize(("num_workers", "num_cards"), [(2, 1), (3, 1), (2, 2)])
def test_workers_with_cards_learn_what_one_process_learns(num_workers, num_cards):
    alone, _ = trained(1, 1, by_nccl=False)
    by_host, _ = trained(num_workers, num_cards, by_nccl=False)
    by_nccl, launches = trained(num_workers, num_cards, by_nccl=True)
    np.testing.assert_allclose(by_nccl, alone, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(by_host, alone, rtol=1e-4, atol=1e-6)
    assert any(launch.startswith("allReduce") for launch in launches)


def test_on_the_way_through_host_memory_nothing_waits_in_the_midst_of_backward():
    """A bucket is copied to pinned memory, and back, behind the host's back."""
    found = []
    for num_steps in (2, 5):
        with strict_cupy.counted() as counts:
            trained(2, 1, by_nccl=False, num_steps=num_steps)
        found.append(len(counts.waits))
    assert found[0] == found[1]
