"""The channel over MPI: the conformance suite as a job under mpiexec."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Not resolved: the mpiexec of the virtual environment, whose MPI mpi4py loads, and no other.
MPIEXEC = Path(sys.executable).parent / "mpiexec"
OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None, reason="needs mpi4py"),
    pytest.mark.skipif(not MPIEXEC.exists(), reason=f"needs {MPIEXEC} (pip install mpich)"),
]


def run_job(size, *command):
    """Run a Python script on ``size`` ranks; return its exit status and output."""
    result = subprocess.run(
        [MPIEXEC, "-n", str(size), sys.executable, "-m", "mpi4py", *map(str, command)],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
        env={**os.environ, **OPEN_MPI},
    )
    return result.returncode, result.stdout + result.stderr


def test_conformance():
    status, output = run_job(3, HERE / "mpi_channel.py")
    assert status == 0, output
    assert "cases passed" in output


@pytest.mark.parametrize(
    ("problem", "texts"),
    [
        ("nobody_serves", ["worker 1 gave up: worker 1 is waiting for ps 0", "0.5 s"]),
        ("two_claim_one_rank", ["cannot join ps 0", "is already there as another process"]),
        ("the_server_ends", ["ServerLost", "ps 0", "has ended"]),
        ("the_server_gives_up", ["ServerLost", "ps 0", "a disk is full"]),
        ("a_request_takes_long", ["CollectiveTimeoutError", "timed out after 0.5", "ps 0"]),
    ],
)
def test_what_goes_wrong_is_said(problem, texts):
    status, output = run_job(3, HERE / "mpi_problems.py", problem)
    assert status == 0, output
    for text in texts:
        assert text in output
