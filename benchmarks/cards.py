"""What workers with GPUs exchange, by NCCL, by MPI and through host memory, side by side.

    mpirun -n 2 python -m mpi4py benchmarks/cards.py [--cards 1] [--sizes 4096 …] [--ways host nccl]

reduce     `ReplicaContext.all_reduce` of an array of float32 on each replica's card
gradients  a step of SGD on a variable of that size: a bucket, which travels beside backward

Columns are ways: alone (each worker by itself, so what the exchange costs is the rest), host, mpi,
nccl. What all ways come to is compared. Workers with one card each, and half as many with two, are
two runs; the cards of a worker follow those of the worker before, or are all that it sees.
Medians of rounds, which alternate between the ways.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import paceline as pl
from paceline.collectives import Communicator
from paceline.collectives.mpi import mpi_communicator
from paceline.nn import optimizers
from paceline.strategies import Device, Strategy, StrategyExtended, VariableStore
from paceline.strategies.devices import gpu
from paceline.strategies.workers.gpu_aware_mpi import join_by_mpi
from paceline.strategies.workers.nccl import join_by_nccl
from paceline.strategies.workers.workers import Cards, Workers

WAYS = ("alone", "host", "mpi", "nccl")
SIZES = (4 << 10, 256 << 10, 4 << 20, 64 << 20)
CALLS = 10


@dataclass
class Way:
    """One way between the cards.

    Attributes:
        strategy: Exchanges by it.
        store: The variables of `gradients`.
    """

    strategy: Strategy
    store: VariableStore


def main(
    given: Sequence[str] | None = None,
    connect: Callable[[], Communicator] = mpi_communicator,
) -> dict[str, dict[str, float]]:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cards", type=int, default=1, help="cards of each worker")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=WAYS)
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args(given)
    if not gpu.count():
        print("Nothing was done: no GPU that CuPy can use.")
        sys.exit(0)
    found: dict[str, dict[str, float]] = {}
    with connect() as communicator:
        devices = devices_of(communicator, args.cards)
        for num_bytes in args.sizes:
            for name, measured in (("reduce", reduce), ("gradients", gradients)):
                ways = {w: way for w in args.ways if (way := open_way(w, communicator, devices))}
                line = f"{name} {num_bytes >> 10} KiB"
                found[line] = compared(ways, measured, num_bytes // 4, args.rounds, devices)
                if communicator.rank == 0:
                    columns = "".join(f"{w} {s:10.1f} µs   " for w, s in found[line].items())
                    print(f"{line:22}{columns}", flush=True)
    return found


def devices_of(communicator: Communicator, num_cards: int) -> list[Device]:
    """This worker's cards: all that it sees, or its share of them."""
    rank = communicator.rank
    hosts = [member.address for member in communicator.members]
    first = 0 if gpu.count() == num_cards else hosts[:rank].count(hosts[rank]) * num_cards
    return [Device("GPU", first + i) for i in range(num_cards)]


def open_way(name: str, communicator: Communicator, devices: list[Device]) -> Way | None:
    """None, said by what joins the workers, where it cannot be."""
    part = communicator.split(0, communicator.rank)
    part.takes_gpu_arrays = communicator.takes_gpu_arrays
    cards: Cards | None = None
    if name == "mpi":
        cards = join_by_mpi(part, devices[0])
    elif name == "nccl":
        cards = join_by_nccl(part, devices[0])
    if name in ("mpi", "nccl") and cards is None:
        return None
    workers = Workers(None if name == "alone" else part, cards=cards)
    extended = StrategyExtended(devices, devices, pl.NcclAllReduce(), workers)
    return Way(Strategy(extended), VariableStore(seed=1))


def reduce(way: Way, length: int) -> Any:
    def step() -> Any:
        value = np.ones(length, np.float32)
        replica = pl.get_replica_context()
        assert replica is not None
        here = replica.device.bring(value)
        for _ in range(CALLS):
            total = replica.all_reduce("MEAN", here)
        return total

    return way.strategy.run(step)


def gradients(way: Way, length: int) -> Any:
    def step() -> Any:
        variable = pl.get_variable("x", (length,), initializer=1.0)
        optimizers.SGD(1e-3).minimize(np.square(variable).sum())(1)
        return variable.value().data

    for _ in range(CALLS):
        with way.store.building():
            value = way.strategy.run(step)
    return value


def compared(
    ways: dict[str, Way],
    measured: Callable[[Way, int], Any],
    length: int,
    rounds: int,
    devices: Sequence[Device],
) -> dict[str, float]:
    """Microseconds of a call by each way, which all come to the same."""
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    ends: dict[str, np.ndarray] = {}
    for _ in range(rounds + 2):
        for name, way in ways.items():
            began = time.perf_counter()
            result = measured(way, length)
            for device in devices:
                gpu.end_of_work(device.index).synchronize()
            seconds[name].append((time.perf_counter() - began) / CALLS)
            (first, *_) = way.strategy.experimental_local_results(result)
            ends[name] = first[:8].get()
    for name, end in ends.items():
        np.testing.assert_allclose(end, next(iter(ends.values())), rtol=1e-4, err_msg=name)
    return {name: 1e6 * statistics.median(times[2:]) for name, times in seconds.items()}


if __name__ == "__main__":
    main()
