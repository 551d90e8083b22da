"""MPI that takes arrays on GPUs: what a library says of itself, and jobs on stand-ins."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paceline.collectives.mpi_gpu import has_cuda_memory, queries_say_yes

from . import test_mpi as jobs

JOB = jobs.HERE / "mpi_on_cards.py"


@pytest.mark.parametrize(
    ("kinds", "has_it"),
    [
        ("", False),
        ("mpi,system", False),
        ("mpi,system,cuda", True),
        ("system, mpi, CUDA:device", True),
        ("cuda:host,cuda:managed", False),
        ("cuda:host:device", True),
        ("rocm:device,level_zero:device", False),
    ],
)
def test_the_kinds_of_memory_that_a_communicator_names(kinds, has_it):
    assert has_cuda_memory(kinds) == has_it


def by_type(supported: int, error: int = 0) -> Any:
    """`MPIX_GPU_query_support` of a library that supports one type of GPU."""

    def query(type: int, is_supported: Any) -> int:
        is_supported._obj.value = type == supported
        return error

    return query


CUDA, HIP = 0, 2


@pytest.mark.parametrize(
    ("functions", "says_yes"),
    [
        ({}, False),
        ({"MPIX_Query_cuda_support": lambda: 1}, True),
        ({"MPIX_Query_cuda_support": lambda: 0}, False),
        ({"MPIX_GPU_query_support": by_type(CUDA)}, True),
        ({"MPIX_GPU_query_support": by_type(HIP)}, False),
        ({"MPIX_GPU_query_support": by_type(CUDA, error=16)}, False),
    ],
)
def test_a_library_is_asked_by_what_it_has(functions, says_yes):
    assert queries_say_yes(SimpleNamespace(**functions)) == says_yes


def test_a_library_that_is_not_found_says_no():
    assert not queries_say_yes(None)


@pytest.mark.host
@jobs.pytestmark[0]
@jobs.pytestmark[1]
class TestJobs:
    """On stand-ins for cards and for an MPI that takes arrays on them."""

    @pytest.mark.parametrize("size", [1, 2, 3])
    def test_arrays_on_cards_are_moved_as_those_on_the_host(self, size):
        status, output, _ = jobs.run_job(size, JOB, "conformance")
        assert status == 0, output
        assert "cases passed" in output

    @pytest.mark.parametrize("size", [2, 3])
    def test_st_24_models_exchange_by_mpi_what_they_do_through_host_memory(self, size):
        status, output, _ = jobs.run_job(size, JOB, "exchanges")
        assert status == 0, output
        assert output.count("the same everywhere") == size

    def test_a_strategy_gives_mpi_what_is_on_its_cards(self):
        status, output, _ = jobs.run_job(2, JOB, "strategy")
        assert status == 0, output
        assert output.count("from card to card") == 2
        assert "Arrays on cards are given to MPI as they are" in output

    def test_what_mpi_cannot_combine_on_a_card_is_refused_before_anything_is_sent(self):
        status, output, _ = jobs.run_job(2, JOB, "refuses")
        assert status == 0, output
        assert output.count("refused") == 2

    def test_the_benchmark_of_the_ways_between_cards_runs(self):
        status, output, _ = jobs.run_job(2, JOB, "benchmark")
        assert status == 0, output
        assert output.count("measured") == 2

    def test_a_rank_that_brings_its_array_on_the_host_is_named(self):
        status, output, _ = jobs.run_job(2, JOB, "mixed")
        assert status == 0, output
        assert "rank 0 (" in output
        assert "called all_reduce 'x' of float64[3] on a GPU, op sum" in output
        assert "called all_reduce 'x' of float64[3], op sum" in output
