"""Workers agree on whether MPI is given arrays on cards (on the stand-in; workers are threads)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import paceline as pl
from paceline.collectives import Communicator
from paceline.strategies import Device
from paceline.strategies.workers.gpu_aware_mpi import MpiCards, join_by_mpi
from paceline.strategies.workers.joining import join_cards

from . import strict_cupy
from .exchanges import on_threads

GPU, CPU = Device("GPU", 0), Device("CPU", 0)
NO_GPU = "worker 1: paceline finds no GPU there"
SAYS_NO = "its MPI does not say that it takes arrays on GPUs"


@pytest.fixture(autouse=True)
def four_cards() -> Iterator[None]:
    with strict_cupy.cards(4):
        yield


@pytest.mark.parametrize(
    ("wish", "says", "devices", "takes", "said"),
    [
        # wish, what the MPI of each of two workers says, their devices → by MPI? and the warning
        (None, (True, True), (GPU, GPU), True, ""),
        (None, (False, False), (GPU, GPU), False, ""),
        (None, (None, None), (GPU, GPU), False, ""),
        (None, (True, True), (CPU, CPU), False, ""),
        (None, (True, True), (GPU, CPU), False, f"since {NO_GPU}."),
        (None, (True, False), (GPU, GPU), False, f"since worker 1: {SAYS_NO}."),
        (True, (False, False), (GPU, GPU), True, ""),
        (True, (False, False), (GPU, CPU), False, f"since {NO_GPU}."),
        (True, (None, None), (GPU, GPU), False, "worker 0: it communicates by RING, not by MPI;"),
        (False, (True, True), (GPU, GPU), False, ""),
    ],
)
@pytest.mark.parametrize("strict", [False, True])
def test_one_worker_without_makes_all_go_through_host_memory(
    wish, says, devices, takes, said, strict, caplog
):
    def body(communicator: Communicator) -> bool:
        rank = communicator.rank
        communicator.takes_gpu_arrays = says[rank]
        cards = join_by_mpi(communicator, devices[rank], wish, strict)
        assert communicator.takes_gpu_arrays == (takes or says[rank])
        return cards is not None

    found = on_threads(2, body)
    if wish and said and strict:
        for error in found:
            assert isinstance(error, ValueError)
            assert "gpu_aware_mpi is True, but worker " in str(error)
        return
    assert found == [takes, takes]
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == (2 if said else 0)
    assert all(said in text for text in warnings)


@pytest.mark.parametrize(
    ("options", "is_by_mpi", "said"),
    [
        ({}, True, []),
        ({"gpu_aware_mpi": False}, False, []),
        ({"wire_dtype": "float16"}, False, []),
        ({"gpu_aware_mpi": True, "wire_dtype": "float16"}, False, ["wire_dtype='float16' needs"]),
        ({"implementation": "NCCL"}, True, ["workers 0 and 1 have the same card"]),
    ],
)
def test_the_ways_between_cards_in_their_order(options, is_by_mpi, said, caplog):
    """NCCL for who wants it and can, then MPI, then host memory."""

    def body(communicator: Communicator) -> object:
        communicator.takes_gpu_arrays = True
        return join_cards(communicator, pl.CommunicationOptions(**options), GPU, strict=False)

    for cards in on_threads(2, body):
        assert isinstance(cards, MpiCards) == is_by_mpi
    warnings = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert len(warnings) == 2 * len(said)
    assert all(text in warning for text in said for warning in warnings)


@pytest.mark.parametrize(
    ("dtype", "takes"),
    [("float32", True), ("float64", True), ("int64", True), ("float16", False), ("bool", False)],
)
def test_mpi_is_given_what_it_adds_up_itself(dtype, takes):
    def body(communicator: Communicator) -> bool:
        return MpiCards(communicator, GPU).takes(GPU.put(np.ones(3, dtype)))

    assert on_threads(1, body) == [takes]


@pytest.mark.parametrize(
    "verb", ["all_reduce", "start_all_reduce", "reduce_scatter", "broadcast", "all_gather"]
)
def test_links_refuse_arrays_on_cards_and_say_what_to_do(verb):
    def body(communicator: Communicator) -> None:
        assert communicator.takes_gpu_arrays is None
        with pytest.raises(TypeError, match=r"'x' is in the memory of a GPU.*array\.get\(\)"):
            getattr(communicator, verb)(GPU.put(np.ones(3)), "x")
        communicator.barrier("nothing was sent")

    assert on_threads(2, body) == [None, None]


def test_options_that_mean_nothing_are_refused():
    with pytest.raises(ValueError, match="gpu_aware_mpi must be True, False or None"):
        pl.CommunicationOptions(gpu_aware_mpi="yes")  # type: ignore[arg-type]
