"""One rank of an MPI job whose arrays are on cards: ``mpiexec -n N python -m mpi4py <this> WHAT``.

The cards and the MPI that takes arrays on them are stand-ins (`tests/devices`). WHAT is
the name of one of the functions below.
"""

import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from mpi4py import MPI

sys.path.append(str(Path(__file__).parents[2]))  # the last: the package is the installed one

import paceline as pl
from paceline.collectives import Handle, MismatchError, Op
from paceline.collectives.mpi import mpi_communicator
from paceline.strategies.workers.gpu_aware_mpi import join_by_mpi
from tests.benchmarks.loading import load
from tests.collectives import mpi_conformance as suite
from tests.devices import strict_cuda, strict_cupy, strict_mpi
from tests.devices.exchanges import PROGRAMS, assert_alike, devices_of, strategy_of

NUM_CARDS = 8
NAMES = {
    *("all_reduce", "reduce_scatter", "all_gather", "broadcast", "send and receive"),
    *("equal bits", "shapes", "a name may change its length", "started operations run in order"),
    *("many calls of one name", "closed"),
}
MPI_CALLS = {"Allreduce", "Reduce_scatter", "Allgatherv", "Bcast", "Send", "Recv"}


def on_cards():
    communicator = mpi_communicator(strict_mpi.Comm(MPI.COMM_WORLD), timeout_secs=20.0)
    assert communicator.takes_gpu_arrays is False  # what the MPI of the tests says of itself
    communicator.takes_gpu_arrays = True
    return communicator


class OnCards:
    """A communicator that is given arrays on this rank's card, where it may be."""

    def __init__(self, communicator):
        self._communicator = communicator

    def __getattr__(self, name):
        return getattr(self._communicator, name)

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self._communicator.__exit__(*exc_info)

    def _put(self, array):
        with strict_cuda.Device(self._communicator.rank), strict_cuda.Stream() as stream:
            return strict_cupy.array(array), stream.record()

    def all_reduce(self, array, name, op=Op.SUM):
        self.start_all_reduce(array, name, op, at_once=True).wait()

    def start_all_reduce(self, array, name, op=Op.SUM, at_once=False):
        if not combined_by_mpi(array, op):
            return self._communicator.start_all_reduce(array, name, op)
        there, written = self._put(array)
        if not at_once:
            handle = self._communicator.start_all_reduce(there, name, op, after=written)
            return Fetched(handle, there, array)
        written.synchronize()
        self._communicator.all_reduce(there, name, op)
        return Fetched(None, there, array)

    def reduce_scatter(self, array, name, op=Op.SUM):
        if not combined_by_mpi(array, op):
            return self._communicator.reduce_scatter(array, name, op)
        return self._ready(array, lambda there: self._communicator.reduce_scatter(there, name, op))

    def all_gather(self, array, name):
        there, written = self._put(array)
        written.synchronize()
        return [part.get() for part in self._communicator.all_gather(there, name)]

    def broadcast(self, array, name, root=0):
        def broadcast(there):
            self._communicator.broadcast(there, name, root)
            return there

        array[...] = self._ready(array, broadcast)

    def send(self, array, name, to):
        there, written = self._put(array)
        written.synchronize()
        self._communicator.send(there, name, to)

    def receive(self, array, name, source):
        there, written = self._put(array)
        written.synchronize()
        self._communicator.receive(there, name, source)
        array[...] = there.get()

    def _ready(self, array, function):
        there, written = self._put(array)
        written.synchronize()
        return function(there).get()


class Fetched(Handle):
    def __init__(self, handle, there, array):
        self._handle, self._there, self._array = handle, there, array

    def wait(self):
        if self._handle is not None:
            self._handle.wait()
        self._array[...] = self._there.get()


def combined_by_mpi(array, op):
    kind = array.dtype.kind if type(array) is np.ndarray else ""
    return array.dtype != np.float16 and (
        kind == "i" or (kind == "f" and op in (Op.SUM, Op.PRODUCT))
    )


def on(communicator):
    """How a case runs: with arrays on cards."""
    return lambda _size, body, _secs=0: suite.run_on(OnCards(communicator()), body)


def conformance():
    size = MPI.COMM_WORLD.size
    cases = [case for case in suite.conformance.cases([size]) if case.name in NAMES]
    assert {case.name for case in cases} == NAMES
    in_order = [case for case in cases if case.name != "closed"]
    with on_cards() as shared:
        failed = [suite.failure(case, on(lambda: shared)) for case in in_order]
    failed += [suite.failure(case, on(on_cards)) for case in cases if case not in in_order]
    failed = [text for text in failed if text]
    assert failed or size == 1 or {*strict_mpi.CALLS} == MPI_CALLS
    if MPI.COMM_WORLD.rank == 0:
        print("\n".join([*failed, f"{len(cases) - len(failed)} cases passed"]))
    sys.exit(bool(failed))


def exchanges():
    """By MPI from card to card, and through host memory: the same numbers, on all ranks."""
    for name, program in PROGRAMS.items():
        for places in ((1,), (2,), (1, 2)):
            found = {}
            for by_mpi in (False, True):
                strict_mpi.CALLS.clear()
                with on_cards() as communicator:
                    device = devices_of(communicator.rank, *places)[0]
                    cards = join_by_mpi(communicator, device, by_mpi, strict=True)
                    found[by_mpi] = program(strategy_of(communicator, cards, *places))
                assert bool(strict_mpi.CALLS) == by_mpi, (name, strict_mpi.CALLS)
            assert_alike(found[True], found[False])
            everywhere = MPI.COMM_WORLD.allgather(b"".join(a.tobytes() for a in found[True]))
            assert len(set(everywhere)) == 1, name
    assert not strict_cuda.HAZARDS, strict_cuda.HAZARDS
    print("the same everywhere")


def strategy():
    """From the one line of a script: workers divide the cards that all of them see, ask MPI, agree,
    and give it what is on their cards."""
    options = pl.CommunicationOptions(gpu_aware_mpi=True)
    with patch.object(MPI, "COMM_WORLD", strict_mpi.Comm(MPI.COMM_WORLD)):
        made = pl.MultiWorkerMirroredStrategy(communication_options=options, strict_devices=True)
    rank, share = MPI.COMM_WORLD.rank, NUM_CARDS // MPI.COMM_WORLD.size
    own = [f"GPU:{rank * share + i}" for i in range(share)]
    assert [name.rpartition("device:")[2] for name in made.extended.worker_devices] == own
    for name, program in PROGRAMS.items():
        strict_mpi.CALLS.clear()
        program(made)
        assert {*strict_mpi.CALLS} <= {"Allreduce", "Allgatherv"}, (name, strict_mpi.CALLS)
        assert strict_mpi.CALLS, name
    print("from card to card")


def refuses():
    """What NumPy would have to add up, and arrays on a card where MPI does not take them."""
    with on_cards() as communicator, strict_cuda.Device(communicator.rank):
        for dtype, op in (("float16", Op.SUM), ("float32", Op.MAX)):
            array = strict_cupy.array(np.ones(3, dtype))
            for call in (communicator.all_reduce, communicator.reduce_scatter):
                with pytest.raises(TypeError, match=f"MPI cannot combine {dtype} by {op.value}"):
                    call(array, "x", op)
        communicator.takes_gpu_arrays = False
        with pytest.raises(TypeError, match="'x' is in the memory of a GPU, which this comm"):
            communicator.all_reduce(array, "x")
        communicator.barrier("the communicator is as it was")
    print("refused")


def benchmark():
    """Small: that no name in it is wrong."""
    options = "--sizes 64 --rounds 1 --ways alone host mpi"
    found = load("cards").main(options.split(), on_cards)
    assert [*found] == ["reduce 0 KiB", "gradients 0 KiB"]
    assert all([*times] == ["alone", "host", "mpi"] for times in found.values())
    print("measured")


def mixed():
    """One rank's array is on the host: all hear of it."""
    with on_cards() as communicator:
        own = communicator if communicator.rank else OnCards(communicator)
        with pytest.raises(MismatchError) as raised:
            own.all_reduce(np.ones(3), "x")
        print(raised.value)


if __name__ == "__main__":
    with strict_cupy.cards(NUM_CARDS):
        globals()[sys.argv[1]]()
