"""What workers with cards exchange in a step, as programs for any way between the cards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import paceline as pl
from paceline import collectives
from paceline.autodiff import GradientTape, IndexedSlices, Tensor
from paceline.collectives import Communicator
from paceline.nn import layers, optimizers
from paceline.strategies import Device, Strategy, StrategyExtended, VariableStore
from paceline.strategies.workers.workers import Cards, Workers

from ..threads import in_threads


def on_threads(
    size: int, body: Callable[[Communicator], Any], timeout_secs: float = 20.0
) -> list[Any]:
    """One outcome for each worker: what `body` has returned or raised."""
    communicators = collectives.threads(size, timeout_secs)

    def work(rank: int) -> Any:
        try:
            return body(communicators[rank])
        except BaseException as error:
            communicators[rank].close(repr(error))
            return error

    outcomes: list[Any] = in_threads(size, work)
    for communicator in communicators:
        communicator.close()
    return outcomes


def devices_of(worker: int, num_cards: int, num_parts: int = 0) -> list[Device]:
    """A worker's cards, or so many parts of each: those of the worker before come first."""
    cards = [worker * num_cards + i for i in range(num_cards)]
    parts = range(1, 1 + num_parts) if num_parts else (0,)
    return [Device("GPU", card, part=part) for card in cards for part in parts]


def strategy_of(
    communicator: Communicator | None, cards: Cards | None, num_cards: int, num_parts: int = 0
) -> Strategy:
    """That of a worker with so many cards, or so many parts of each."""
    rank = 0 if communicator is None else communicator.rank
    devices = devices_of(rank, num_cards, num_parts)
    workers = Workers(communicator, cards=cards)
    ops = pl.NcclAllReduce()
    return Strategy(StrategyExtended(devices, devices, ops, workers, bytes_per_pack=1 << 10))


def _on_host(array: Any) -> np.ndarray:
    return array if isinstance(array, np.ndarray) else array.get()


def reduced(strategy: Strategy) -> list[np.ndarray]:
    """Structures of several dtypes; the first replica of all has no examples in the second call."""

    def step(has_all: bool) -> list[Any]:
        replica = pl.get_replica_context()
        n = replica.replica_id_in_sync_group
        if not has_all and n == 0:
            replica.stand_in()
        value = {
            "single": np.full(3, n + 1, np.float32),
            "double": [np.full((2, 2), 2.0 * n), np.full((), 3.0 * n)],
            "half": np.full(2, n, np.float16),
            "whole": n,
            "rows": IndexedSlices(
                np.full((n + 1, 2), n + 1.0, np.float32), np.arange(n + 1), (40, 2)
            ),
        }
        found = []
        for op in ("SUM", "MEAN"):
            of_all = replica.all_reduce(op, value)
            rows = of_all.pop("rows").to_dense()
            found += [_on_host(a) for a in (of_all["single"], *of_all["double"], of_all["half"])]
            found += [_on_host(of_all["whole"]), _on_host(rows)]
        return found

    found: list[np.ndarray] = []
    for has_all in (True, False):
        for value in strategy.run(step, (has_all,)):
            found += strategy.experimental_local_results(value)
    return found


def gathered(strategy: Strategy) -> list[np.ndarray]:
    """Arrays of other lengths on each replica, along two axes, and what flows back through them.

    The first replica of all has no examples in the second call.
    """

    def step(has_all: bool) -> list[Any]:
        replica = pl.get_replica_context()
        n = replica.replica_id_in_sync_group
        if not has_all and n == 0:
            replica.stand_in()
        rows = np.arange(2.0 * n).reshape(n, 2).astype(np.float32)
        columns = replica.device.bring(np.full((3, n + 1), n, np.int64))
        single = Tensor(replica.device.bring(np.full(n + 1, n, np.float32)), requires_grad=True)
        with GradientTape() as tape:
            tape.watch(single)
            joined = replica.all_gather(single, axis=0)
            loss = (joined * joined).sum() * (n + 1)
        gradient = replica.all_gather(tape.gradient(loss, single), axis=0)
        found = [replica.all_gather(rows, axis=0), replica.all_gather(columns, axis=1)]
        return [_on_host(a) for a in (*found, joined.data, gradient.data)]

    found: list[np.ndarray] = []
    for has_all in (True, False):
        for value in strategy.run(step, (has_all,)):
            found += strategy.experimental_local_results(value)
    return found


def trained(strategy: Strategy, num_steps: int = 4) -> list[np.ndarray]:
    """Variables after some steps: rows of a table, synchronized batch norm, dense gradients.

    The last replica of all has no examples in every third step.
    """
    rng = np.random.default_rng(0)
    num_replicas = strategy.num_replicas_in_sync
    numbers = rng.integers(0, 50, (num_steps, 12))
    targets = rng.normal(size=(num_steps, 12, 5)).astype(np.float32)

    def step(number: int) -> None:
        replica = pl.get_replica_context()
        index = replica.replica_id_in_sync_group
        rows = slice(index, None, num_replicas)
        own, wanted = numbers[number][rows], targets[number][rows]
        num_examples = len(own)
        if number % 3 == 2 and index == num_replicas - 1 and num_replicas > 1:
            replica.stand_in()
        hidden = layers.Embedding(50, 6, name="table")(own)
        hidden = layers.BatchNormalization(synchronized=True, name="norm")(hidden, training=True)
        loss = np.mean(np.square(layers.Dense(5, name="dense")(hidden) - wanted))
        optimizers.Adam(0.1).minimize(loss)(num_examples)

    store = VariableStore(seed=1)
    for number in range(num_steps):
        with store.building():
            strategy.run(step, (number,))
    return [np.asarray(variable.numpy()) for variable in store.trainable_variables()]


PROGRAMS: dict[str, Callable[[Strategy], list[np.ndarray]]] = {
    "reduced": reduced,
    "gathered": gathered,
    "trained": trained,
}


def assert_alike(found: list[np.ndarray], right: list[np.ndarray]) -> None:
    """Equal but for the order in which numbers were added up."""
    assert len(found) == len(right)
    for one, other in zip(found, right, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=2e-4, atol=2e-6)
