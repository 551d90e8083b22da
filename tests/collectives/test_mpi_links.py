"""Links over MPI keep the contract of all links, and nobody is held inside MPI by a lost peer."""

from pathlib import Path

import pytest

from .test_mpi import pytestmark as pytestmark
from .test_mpi import run_job

HERE = Path(__file__).parent
TASKS = HERE / "parameter_server" / "mpi_tasks.py"


def test_they_pass_the_suites_of_links_and_of_the_channel():
    status, output, _ = run_job(1, HERE / "mpi_links.py")
    assert status == 0, output
    assert "passed" in output


def test_arrays_of_all_sizes_come_back_unchanged_from_two_workers_at_once():
    status, output, _ = run_job(3, TASKS, "exchange")
    assert status == 0, output
    for worker in ("worker 0", "worker 1"):
        assert f"{worker} has all arrays back, over MPI" in output


@pytest.mark.parametrize("who", ["the server", pytest.param("the client", marks=pytest.mark.slow)])
def test_a_peer_that_is_stopped_in_the_midst_of_an_array_is_named(who):
    status, output, _ = run_job(2, TASKS, f"stop {who}")
    assert status != 0, output  # the one who is there ends the job: MPI could not
    lost, by = ("worker 0", "ps 0") if who == "the client" else ("ps 0", "worker 0")
    assert f"{by} has lost {lost}" in output
    assert "it has been silent for" in output
